"""Counts and logs the findings of a reconciler, according to its mode.

Every finding is logged at every tick while it lasts: with the Pod, its age, its grace period, the reason and the
outcome. A finding that fails is counted and does not stop the others.
"""

import msgspec

from runyard.db.contract import DatabaseError
from runyard.dispatch.modes import Mode, Modes, Reconciler
from runyard.github.errors import GitHubError
from runyard.http.errors import TransportError
from runyard.kube.errors import KubeError
from runyard.telemetry.catalogue import (
    RUNYARD_RECOVERY_FINDINGS_TOTAL,
    TUIST_RUNNERS_RECOVERY_COUNT,
)
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter
from runyard.wire.reasons import Code, Reason, Value, logged

DEPENDENCY_ERRORS = (
    KubeError,
    TransportError,
    GitHubError,
    DatabaseError,
)  # failures of dependencies


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One inconsistency to recover from."""

    pod: str  # or the runner's name, or the job's number
    reason: Reason
    age: float = 0.0
    grace: float = 0.0


class ReconcilerReport:
    """Counts and logs what one reconciler finds and does."""

    def __init__(self, reconciler: Reconciler, *, modes: Modes, meter: Meter, log: Logger) -> None:
        self.reconciler = reconciler
        self.mode = modes.of(reconciler)
        self._meter = meter
        self._log = log

    @property
    def off(self) -> bool:
        """Whether the reconciler is off."""
        return self.mode is Mode.OFF

    @property
    def dry(self) -> bool:
        """Whether the reconciler only logs what it would do."""
        return self.mode is Mode.DRY_RUN

    def would(self, finding: Finding, action: Code) -> None:
        """Record what would have been done, in a dry run."""
        self._record(finding, "would heal", outcome="dry-run", action=action.value)

    def healed(self, finding: Finding, *, kind: str, rows: int = 1) -> None:
        """Record a recovery; `kind` is empty if it was counted elsewhere."""
        self._record(finding, "healed", outcome="healed")
        if kind:
            self._meter.inc(TUIST_RUNNERS_RECOVERY_COUNT, rows, kind=kind)

    def left(self, finding: Finding, left: Reason) -> None:
        """Record that nothing was done, because the finding has changed or must not be touched."""
        detail = {f"left_{name}": value for name, value in left.detail}
        self._record(finding, "left alone", outcome="left", left=left.slug, **detail)

    def failed(self, finding: Finding, error: Exception) -> None:
        """Record that a dependency failed."""
        self._record(finding, "failed", outcome="failed", error=str(error) or repr(error))

    def _record(self, finding: Finding, event: str, *, outcome: str, **more: Value) -> None:
        self._meter.inc(
            RUNYARD_RECOVERY_FINDINGS_TOTAL, reconciler=self.reconciler.value, outcome=outcome
        )
        self._log.warning(
            event,
            reconciler=self.reconciler.value,
            **fields(finding),
            **more,
        )


def fields(finding: Finding) -> dict[str, Value]:
    """The fields of a log line about a finding."""
    return {
        "pod": finding.pod,
        "age_seconds": round(finding.age),
        "grace_seconds": round(finding.grace),
        **logged(finding.reason),
    }
