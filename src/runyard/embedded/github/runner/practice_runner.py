"""A runner program for the practice GitHub: connects, runs its one job, reports how that ended, and exits.

It stands where GitHub's runner would be and needs nothing but a Python: it imports the standard library and the
folder `practice` beside it, no part of runyard imports it, and it is started as
`python3 -I -S -B practice_runner.py --jitconfig-file PATH` (by `run.sh`, which explains why a file). The file is
removed once it was read.

    start       the command line, and who the JIT configuration says we are
    life        starts and ends processes, reports; hears of all others, and of signals, through one queue
    listener    connects, waits for the job, then for its cancellation                            (thread)
    program     a process group; one thread reads what it writes, one waits for its end          (threads)
    log         keeps that, and carries it to GitHub, in order, from where it has got to          (thread)
    place       the job's user, directory and environment
    link        the way to GitHub
    telling     what they all tell each other, and whoever reads our output

Exit codes: 0 the job's end was reported, whatever it was, or there was none to run; 1 GitHub refused this runner
or had given it up; 2 wrong usage; 143 it was told to end while a job ran, and said so.

Invariants:
- GitHub may be away at any time for long: everything is tried again, and the job goes on meanwhile. What the
  job writes never blocks it: the log is bounded, the rest is read and dropped.
- The job sees a clean environment: nothing of this program's own but PATH and the language. With
  RUNYARD_JOB_USER (`uid:gid`, when we are root) it runs as that user, without groups and without a way to more
  rights. Our memory, with the session's key in it, is closed to others of our own user too; root sees all.
- However the job ends, its whole process group has ended before its end is reported.
"""

import importlib
import os
import sys
from pathlib import Path

if __name__ == "__main__":
    # An isolated Python does not look beside its script; and whatever lies there must not stand in for the
    # standard library, so it is looked at last.
    sys.path.append(str(Path(__file__).resolve().parent))
    code = importlib.import_module("practice.start").main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # threads that wait for a GitHub that is away are not waited for
