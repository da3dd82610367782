"""Give up who we are and run a program: `python -I -S become.py UID:GID PROGRAM ARGUMENT…` (`-`: stay who we are).

For the job, which must not be the poller: it then can neither look into the poller's memory and files nor
report in its name. The same process becomes the program, so signals and the exit code are the program's own.
"""

import os
import signal
import sys
from typing import NoReturn


def main(user: str, program: list[str]) -> NoReturn:
    """Become that user, then that program."""
    if user != "-":
        uid, _, gid = user.partition(":")
        os.setgroups([])
        os.setgid(int(gid or uid))
        os.setuid(int(uid))
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # a shell's background and Python itself ignore some
    os.execvp(program[0], program)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
