"""Compares a bundle's tests with what Apple's xcresulttool prints, on a Mac with Xcode.

Off by default. The child process writes what the tool should print (`formats/apple.py`); this module runs the tool and
compares type, name, result and identifier of all nodes. Differences are counted and logged; the results do not change.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from runyard import proc
from runyard.telemetry.catalogue import RUNYARD_PROCESSOR_VERIFICATIONS_TOTAL
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter
from runyard.xcresult.processor.scratch import Workdir

_COMPARED = ("nodeType", "name", "result", "nodeIdentifier")
_SHOWN = 5
_DEPTH = 100


class Checker:
    """Runs xcresulttool and compares, if it is configured."""

    def __init__(self, program: str, *, within: float, meter: Meter) -> None:
        self._program = program
        self._within = within
        self._meter = meter

    @property
    def wanted(self) -> bool:
        """Whether bundles are compared."""
        return bool(self._program)

    async def check(self, workdir: Workdir, bundle: Path, *, log: Logger) -> None:
        """Compare, count and log the differences."""
        if not self.wanted:
            return
        argv = [self._program, "xcresulttool", "get", "test-results", "tests", "--compact"]
        try:
            done = await proc.run(
                [*argv, "--path", str(bundle)],
                timeout=self._within,
                limit=1 << 30,
                cwd=workdir.path,
            )
            if done.code != 0:
                raise proc.ProcError(done.stderr.decode(errors="replace").strip()[:200])
            theirs = msgspec.json.decode(done.stdout)
        except (proc.ProcError, msgspec.DecodeError) as error:
            self._meter.inc(RUNYARD_PROCESSOR_VERIFICATIONS_TOTAL, outcome="failed")
            log.warning("xcresulttool failed", error=str(error))
            return
        found = differences(msgspec.json.decode(workdir.expected.read_bytes()), theirs)
        self._meter.inc(
            RUNYARD_PROCESSOR_VERIFICATIONS_TOTAL, outcome="different" if found else "same"
        )
        if found:
            log.warning(
                "xcresulttool prints other tests", differences=found[:_SHOWN], count=len(found)
            )


def differences(ours: object, theirs: object) -> list[str]:
    """Nodes that are in only one of two trees of test nodes."""
    mine, other = Counter(_nodes(ours)), Counter(_nodes(theirs))
    missing = [f"only xcresulttool: {each}" for each in (other - mine).elements()]
    return missing + [f"only runyard: {each}" for each in (mine - other).elements()]


def _nodes(tree: object) -> Iterator[str]:
    waiting = [("", node, 0) for node in _list(tree, "testNodes")]
    while waiting:
        path, node, depth = waiting.pop()
        label = f"{path}/{' '.join(str(_get(node, key)) for key in _COMPARED)}"
        yield label
        if depth < _DEPTH:
            waiting += [(label, child, depth + 1) for child in _list(node, "children")]


def _get(node: object, key: str) -> object:
    return node.get(key, "") if isinstance(node, dict) else ""


def _list(node: object, key: str) -> list[object]:
    found = _get(node, key)
    return found if isinstance(found, list) else []
