"""From the command line to the exit code."""

from __future__ import annotations

import base64
import json
import signal
from pathlib import Path
from typing import Any

from .life import Runner
from .link import Link, Refused
from .place import job_user
from .program import DUMPABLE, restrict
from .telling import say


def read_jit(argv: list[str]) -> str:
    """The JIT configuration from the command line, or from a file that is then removed."""
    jit = ""
    rest = [each for each in argv if each != "--disableupdate"]
    if len(rest) == 2 and rest[0] == "--jitconfig":
        jit = rest[1]
    elif len(rest) == 2 and rest[0] == "--jitconfig-file":
        jit = Path(rest[1]).read_text(encoding="ascii").strip()
        Path(rest[1]).unlink()
    return jit


def identity_of(jit: str) -> dict[str, Any]:
    """Who the JIT configuration says we are."""
    try:
        files = json.loads(base64.b64decode(jit, validate=True))
        identity = json.loads(base64.b64decode(files[".runner"], validate=True))
        if not isinstance(identity["serverUrl"], str) or not isinstance(identity["agentName"], str):
            raise TypeError
    except (ValueError, KeyError, TypeError):
        raise Refused("this is no JIT configuration of a practice GitHub") from None
    return dict(identity)


def main(argv: list[str]) -> int:
    """From the command line to the exit code."""
    try:
        jit = read_jit(argv)
    except (OSError, ValueError) as error:
        say(f"the JIT configuration cannot be read: {error}")
        return 2
    if not jit:
        say("usage: practice_runner.py --jitconfig JIT | --jitconfig-file PATH [--disableupdate]")
        return 2
    try:
        identity = identity_of(jit)
        runner = Runner(Link(identity["serverUrl"]), jit, identity, job_user())
    except (Refused, ValueError) as error:
        say(f"this runner cannot be started: {error}")
        return 2
    restrict(DUMPABLE, 0)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # A queue of this kind may be put into while its reader is interrupted; a lock could not be taken.
        signal.signal(number, lambda *_: runner.events.put(("stop",)))
    return runner.live()
