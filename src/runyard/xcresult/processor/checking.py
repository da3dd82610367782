"""A second opinion: what Apple's own tool says of the same bundle, on a Mac with Xcode.

Off unless asked for. The child writes down what the tool should say (`formats/apple.py`); here the tool is asked and
the two trees are compared by type, name, result and identifier of their nodes. A difference is counted and logged with
its first places; it changes nothing: the results stay ours.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from runyard import proc
from runyard.telemetry.catalogue import RUNYARD_PROCESSOR_CHECKS_TOTAL
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter
from runyard.xcresult.processor.scratch import Room

_COMPARED = ("nodeType", "name", "result", "nodeIdentifier")
_SHOWN = 5
_DEPTH = 100


class Checker:
    """Asks Apple's tool, if there is one to ask."""

    def __init__(self, program: str, *, within: float, meter: Meter) -> None:
        self._program = program
        self._within = within
        self._meter = meter

    @property
    def wanted(self) -> bool:
        """Whether anything is compared."""
        return bool(self._program)

    async def check(self, room: Room, bundle: Path, *, log: Logger) -> None:
        """Compare, count and tell."""
        if not self.wanted:
            return
        argv = [self._program, "xcresulttool", "get", "test-results", "tests", "--compact"]
        try:
            done = await proc.run(
                [*argv, "--path", str(bundle)],
                timeout=self._within,
                limit=1 << 30,
                cwd=room.path,
            )
            if done.code != 0:
                raise proc.ProcError(done.stderr.decode(errors="replace").strip()[:200])
            theirs = msgspec.json.decode(done.stdout)
        except (proc.ProcError, msgspec.DecodeError) as error:
            self._meter.inc(RUNYARD_PROCESSOR_CHECKS_TOTAL, outcome="failed")
            log.warning("Apple's tool could not be asked", error=str(error))
            return
        found = differences(msgspec.json.decode(room.expected.read_bytes()), theirs)
        self._meter.inc(RUNYARD_PROCESSOR_CHECKS_TOTAL, outcome="different" if found else "same")
        if found:
            log.warning("Apple's tool says otherwise", differences=found[:_SHOWN], count=len(found))


def differences(ours: object, theirs: object) -> list[str]:
    """Where two trees of test nodes differ, by path."""
    mine, other = Counter(_nodes(ours)), Counter(_nodes(theirs))
    missing = [f"only Apple's: {each}" for each in (other - mine).elements()]
    return missing + [f"only ours: {each}" for each in (mine - other).elements()]


def _nodes(tree: object) -> Iterator[str]:
    waiting = [("", node, 0) for node in _list(tree, "testNodes")]
    while waiting:
        path, node, depth = waiting.pop()
        told = f"{path}/{' '.join(str(_get(node, key)) for key in _COMPARED)}"
        yield told
        if depth < _DEPTH:
            waiting += [(told, child, depth + 1) for child in _list(node, "children")]


def _get(node: object, key: str) -> object:
    return node.get(key, "") if isinstance(node, dict) else ""


def _list(node: object, key: str) -> list[object]:
    found = _get(node, key)
    return found if isinstance(found, list) else []
