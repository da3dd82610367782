"""Reading a bundle in a child process, from the worker's side.

A parser of strangers' files may hang, take all memory or crash natively. The child does so alone: it is ended at the
limit with everything that it started, and what became of it is told by its answer, or by how it died.
"""

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

import runyard
from runyard import proc
from runyard.telemetry.log import Logger
from runyard.xcresult.plans.attempts import Outcome
from runyard.xcresult.processor.order import Answer, Order
from runyard.xcresult.processor.scratch import Room

MODULE = "runyard.xcresult.processor.child"
_OURS = str(Path(runyard.__file__).parents[1])
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "DYLD_LIBRARY_PATH", "LD_LIBRARY_PATH")
_TOLD = 2000
_ANSWER = 32 * 1024 * 1024


async def read(
    order: Order, room: Room, *, limit: float, grace: float, log: Logger
) -> Answer | Outcome:
    """What the bundle says, or how the attempt ended. Cancelled, the child is ended and gone first."""
    try:
        done = await proc.run(
            [sys.executable, "-P", "-m", MODULE],  # -P: nothing is imported from its room
            input=msgspec.json.encode(order),
            timeout=limit,
            grace=grace,
            env=environment(room, os.environ),
            cwd=room.path,
            limit=_ANSWER,
        )
    except proc.DeadlineExceeded:
        return Outcome(end="late", code="timeout", reason=f"not read within {limit:g} s")
    if done.code == 0:
        return msgspec.json.decode(done.stdout, type=Answer)
    told = done.stderr.decode(errors="replace")[-_TOLD:]
    log.warning("the reader died", code=done.code, stderr=told)
    return _died(done.code, told)


def environment(room: Room, ours: Mapping[str, str]) -> dict[str, str]:
    """What the child knows of the world: no credential of ours, and no place for files but its room."""
    return {
        **{name: ours[name] for name in _PASSED_ON if name in ours},
        "PYTHONPATH": _OURS,
        "HOME": str(room.temporary),
        "TMPDIR": str(room.temporary),
        "SQLITE_TMPDIR": str(room.temporary),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _died(code: int, told: str) -> Outcome:
    if code == -signal.SIGXCPU:
        return Outcome(end="late", code="timeout", reason="it used up its processor time")
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
        return Outcome(end="failed", code="reader_crashed", reason=f"the reader died of {name}")
    last = told.strip().rsplit("\n", 1)[-1][:200]
    return Outcome(
        end="failed", code="reader_crashed", reason=f"the reader ended with {code}: {last}"
    )
