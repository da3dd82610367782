"""What all reconcilers have in common: a mode, a counter, and the fields of their log.

Every finding is told whenever it is found, so at every tick while it lasts: with the Pod, its age, the grace that it
had, the reason and what came of it. A finding that fails is counted and does not stop the others.
"""

import msgspec

from runyard.db.contract import DatabaseError
from runyard.dispatch.recovery.modes import Mode, Modes, Reconciler
from runyard.github.errors import GitHubError
from runyard.http.errors import TransportError
from runyard.kube.errors import KubeError
from runyard.telemetry.catalogue import RUNYARD_RECONCILED_TOTAL, TUIST_RUNNERS_RECOVERY_COUNT
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter

WORLD = (KubeError, TransportError, GitHubError, DatabaseError)  # what may fail without our fault


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is to be healed."""

    pod: str  # or the runner's name, or the job's number
    reason: str
    age: float = 0.0
    grace: float = 0.0


class Desk:
    """Keeps the books of one reconciler."""

    def __init__(self, reconciler: Reconciler, *, modes: Modes, meter: Meter, log: Logger) -> None:
        self.reconciler = reconciler
        self.mode = modes.of(reconciler)
        self._meter = meter
        self._log = log

    @property
    def off(self) -> bool:
        """Does it rest?"""
        return self.mode is Mode.OFF

    @property
    def dry(self) -> bool:
        """Does it only say what it would do?"""
        return self.mode is Mode.DRY_RUN

    def would(self, finding: Finding, what: str) -> None:
        """In a dry run: this is what would have been done."""
        self._tell(finding, f"would {what}", outcome="would")

    def healed(self, finding: Finding, *, kind: str, rows: int = 1) -> None:
        """It was healed; `kind` is empty if that was counted elsewhere."""
        self._tell(finding, "healed", outcome="healed")
        if kind:
            self._meter.inc(TUIST_RUNNERS_RECOVERY_COUNT, rows, kind=kind)

    def left(self, finding: Finding, why: str) -> None:
        """Nothing was done: it has moved on, or may not be touched."""
        self._tell(finding, why, outcome="left")

    def failed(self, finding: Finding, error: Exception) -> None:
        """The world refused."""
        self._tell(finding, "failed", outcome="failed", error=str(error) or repr(error))

    def _tell(self, finding: Finding, what: str, *, outcome: str, **more: str) -> None:
        self._meter.inc(RUNYARD_RECONCILED_TOTAL, reconciler=self.reconciler.value, outcome=outcome)
        self._log.warning(
            what,
            reconciler=self.reconciler.value,
            **fields(finding),
            **more,
        )


def fields(finding: Finding) -> dict[str, str | int]:
    """What every line of a log says of a finding."""
    return {
        "pod": finding.pod,
        "age_seconds": round(finding.age),
        "grace_seconds": round(finding.grace),
        "reason": finding.reason,
    }
