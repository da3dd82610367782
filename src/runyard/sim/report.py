"""The outcome of a run, in numbers."""

from typing import TYPE_CHECKING

import msgspec

from runyard.sim.shape import Shape
from runyard.telemetry.catalogue import (
    RUNYARD_FENCES_TOTAL,
    TUIST_RUNNERS_RECOVERY_COUNT,
)
from runyard.wire.reasons import Reason, Value

if TYPE_CHECKING:
    from runyard.sim.fleet import Fleet


class Outcome(msgspec.Struct, kw_only=True):
    """One run's verdict; an empty `failure` is success."""

    shape: Shape
    failure: str = ""  # for people
    code: str = ""  # which invariant or expectation failed, as a slug; empty for any other failure
    detail: dict[str, Value] = {}
    digest: str = ""
    simulated_seconds: float = 0.0
    steps: int = 0
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    story: tuple[tuple[float, str], ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the run succeeded."""
        return not self.failure


def summary(fleet: "Fleet", failure: str, reason: Reason | None = None) -> Outcome:
    """Counts what happened in a run."""
    jobs = fleet.github.jobs().values()
    servers = fleet.meters["server"]
    counts = {
        "jobs": len(jobs),
        "executed": sum(job.executions > 0 for job in jobs),
        "succeeded": sum(job.conclusion == "success" for job in jobs),
        "cancelled": sum(job.conclusion == "cancelled" for job in jobs),
        "failed by fault": sum(job.conclusion == "failure" for job in jobs),
        "faults": fleet.counts["faults"],
        "crashes of server": fleet.counts["crashes of server"],
        "crashes of operator": fleet.counts["crashes of operator"],
        "crashes of agent": fleet.counts["crashes of agent"],
        "broken guests": fleet.counts["broken guests"],
        "webhooks": fleet.counts["webhooks"],
        "webhooks lost": fleet.counts["webhooks lost"],
        "fences": int(sum(meter.total(RUNYARD_FENCES_TOTAL) for meter in servers)),
        "recoveries": int(sum(meter.total(TUIST_RUNNERS_RECOVERY_COUNT) for meter in servers)),
        "rolls": fleet.counts["rolls"],
        "transactions": fleet.counts["transactions"],
        "kube requests": sum(fleet.requests.values()),
        "checks": fleet.invariants.checks,
        "trace lines": fleet.trace.total,
        "seconds to rest": int(fleet.rest_seconds),
    }
    return Outcome(
        code="" if reason is None else reason.slug,
        detail={} if reason is None else reason.fields,
        shape=fleet.shape,
        failure=failure,
        digest=fleet.trace.digest(),
        simulated_seconds=fleet.clock.monotonic(),
        steps=fleet.loop.steps,
        counts=counts,
        story=tuple(fleet.story),
    )
