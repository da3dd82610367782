"""Switches to another user and runs a program: `python -I -S become.py UID:GID PROGRAM ARGUMENT…` (`-`: no switch).

The job runs as another user than the poller: it can neither read the poller's memory and files nor report in its
name. The same process becomes the program, so signals and the exit code are the program's own.
"""

import os
import signal
import sys
from typing import NoReturn


def main(user: str, program: list[str]) -> NoReturn:
    """Switches to the user, then executes the program."""
    if user != "-":
        uid, _, gid = user.partition(":")
        os.setgroups([])
        os.setgid(int(gid or uid))
        os.setuid(int(uid))
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # background shells and Python ignore some of them
    os.execvp(program[0], program)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
