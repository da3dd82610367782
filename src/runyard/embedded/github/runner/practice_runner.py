"""A runner program for the practice GitHub: connects, runs its one job, reports how that ended, and exits.

It replaces GitHub's runner and needs nothing but a Python: it imports the standard library and the folder `practice`
beside it, no code of runyard imports it, and it is started as
`python3 -I -S -B practice_runner.py --jitconfig-file PATH` (by `run.sh`, which explains why a file). The file is
removed once it was read.

    start       the command line and the JIT configuration
    lifecycle   starts and ends processes, reports; receives all events and signals through one queue
    listener    connects, waits for the job, then for its cancellation                            (thread)
    program     a process group; one thread reads what it writes, one waits for its end          (threads)
    log         buffers that and sends it to GitHub, in order, from where it stopped              (thread)
    workspace   the job's user, directory and environment
    client      HTTP requests to GitHub
    events      the queue between the threads, and the lines that this program prints

Exit codes: 0 the job's end was reported, whatever it was, or there was no job; 1 GitHub refused this runner
or had given it up; 2 wrong usage; 143 TERM arrived while a job ran, and that was reported.

Invariants:
- GitHub may be unreachable at any time for long: everything is retried, and the job continues meanwhile. The job's
  output never blocks it: the log is bounded, the rest is read and dropped.
- The job has a clean environment: nothing of this program's own but PATH and the language. With
  RUNYARD_JOB_USER (`uid:gid`, when we are root) it runs as that user, without groups and without a way to more
  rights. Other processes of our user cannot read our memory, which holds the session's key; root can.
- However the job ends, its whole process group has ended before its end is reported.
"""

import importlib
import os
import sys
from pathlib import Path

if __name__ == "__main__":
    # An isolated Python does not search beside its script; and nothing there may shadow the standard library, so it is
    # searched last.
    sys.path.append(str(Path(__file__).resolve().parent))
    code = importlib.import_module("practice.start").main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # do not wait for threads that wait for an unreachable GitHub
