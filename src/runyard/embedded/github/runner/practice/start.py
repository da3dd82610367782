"""Runs the program from the command line to the exit code."""

from __future__ import annotations

import base64
import json
import signal
from pathlib import Path
from typing import Any

from .client import Client, Refused
from .events import print_line
from .lifecycle import Runner
from .program import DUMPABLE, restrict
from .workspace import job_user


def read_jit(argv: list[str]) -> str:
    """Reads the JIT configuration from the command line, or from a file that is then removed."""
    jit = ""
    rest = [each for each in argv if each != "--disableupdate"]
    if len(rest) == 2 and rest[0] == "--jitconfig":
        jit = rest[1]
    elif len(rest) == 2 and rest[0] == "--jitconfig-file":
        jit = Path(rest[1]).read_text(encoding="ascii").strip()
        Path(rest[1]).unlink()
    return jit


def identity_of(jit: str) -> dict[str, Any]:
    """The `.runner` object of the JIT configuration."""
    try:
        files = json.loads(base64.b64decode(jit, validate=True))
        identity = json.loads(base64.b64decode(files[".runner"], validate=True))
        if not isinstance(identity["serverUrl"], str) or not isinstance(identity["agentName"], str):
            raise TypeError
    except (ValueError, KeyError, TypeError):
        raise Refused("this is not a JIT configuration of a practice GitHub") from None
    return dict(identity)


def main(argv: list[str]) -> int:
    """Runs from the command line to the exit code."""
    try:
        jit = read_jit(argv)
    except (OSError, ValueError) as error:
        print_line(f"the JIT configuration cannot be read: {error}")
        return 2
    if not jit:
        print_line(
            "usage: practice_runner.py --jitconfig JIT | --jitconfig-file PATH [--disableupdate]"
        )
        return 2
    try:
        identity = identity_of(jit)
        runner = Runner(Client(identity["serverUrl"]), jit, identity, job_user())
    except (Refused, ValueError) as error:
        print_line(f"this runner cannot be started: {error}")
        return 2
    restrict(DUMPABLE, 0)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # A signal handler may put into this kind of queue while its reader is interrupted; others would deadlock.
        signal.signal(number, lambda *_: runner.events.put(("stop",)))
    return runner.run()
