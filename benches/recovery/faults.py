"""The faults of the recovery table that are not crashes of a server.

Each fault is caused once in a fleet at rest, with one job, by the component that would really fail (a guest, a node,
the network, the API), and the time is measured until the fleet is at rest again. Deadlines have their defaults.
"""

from collections.abc import Awaitable, Callable

import msgspec
from benches.recovery.fleet import Fleet
from benches.recovery.rows import Row
from benches.recovery.settled import at_rest

from runyard.http.messages import Request, Response, json_response
from runyard.kube.kinds import NODES
from runyard.sim.guest import GuestView
from runyard.wire import names

JOB = 0.5


class Fault(msgspec.Struct, frozen=True):
    """A row of the table, and the function that causes its fault."""

    row: Row
    bring: Callable[[Fleet], Awaitable[None]]


async def _until(
    fleet: Fleet, what: str, true: Callable[[], bool], *, within: float = 60.0
) -> None:
    until = fleet.clock.monotonic() + within
    while not true():
        if fleet.clock.monotonic() > until:
            raise AssertionError(f"never came about: {what}")
        await fleet.clock.sleep(0.02)


def _hung(fleet: Fleet) -> list[GuestView]:
    return [each for each in fleet.hosts.guests.values() if each.state == "hung"]


async def _dies_before_it_registers(fleet: Fleet) -> None:
    fleet.hosts.fates["hang-with-jit"] = 1
    fleet.queue(seconds=JOB)
    await _until(fleet, "a guest with a JIT", lambda: bool(_hung(fleet)))
    fleet.hosts.die(_hung(fleet)[0])


async def _never_registers(fleet: Fleet) -> None:
    fleet.hosts.fates["hang-with-jit"] = 1
    fleet.queue(seconds=JOB)
    await _until(fleet, "a guest with a JIT", lambda: bool(fleet.hosts.jits))


async def _never_ends(fleet: Fleet) -> None:
    """Let the machine run on after its runner has ended."""
    fleet.hosts.fates["hang-after-job"] = 1
    fleet.queue(seconds=JOB)
    await _until(fleet, "a machine that hangs", lambda: bool(_hung(fleet)))


async def _node_lost(fleet: Fleet) -> None:
    """Lose a node with its runners, one of which has a JIT; then delete its Node."""
    fleet.hosts.fates["hang-with-jit"] = 1
    fleet.queue(seconds=JOB)
    await _until(fleet, "a guest with a JIT", lambda: bool(_hung(fleet)))
    await fleet.admin.create(NODES, {"metadata": {"name": "another"}})
    fleet.hosts.lose(then="another")
    await fleet.admin.delete(NODES, "host")


async def _job_cancelled(fleet: Fleet) -> None:
    """Cancel the job before its runner registers."""
    fleet.hosts.github_reachable = False
    before = len(fleet.hosts.jits)
    job = fleet.queue(seconds=JOB)
    await _until(fleet, "a JIT delivered", lambda: len(fleet.hosts.jits) > before)
    fleet.github.cancel_job(job)
    fleet.hosts.github_reachable = True


async def _completed_lost(fleet: Fleet) -> None:
    lost: list[str] = []

    def drop(delivery: object) -> bool:
        if getattr(delivery, "action", "") == "completed" and not lost:
            lost.append("completed")
            return True
        return False

    fleet.drop_delivery = drop
    fleet.queue(seconds=JOB)
    await _until(fleet, "a delivery lost", lambda: bool(lost))


async def _report_lost(fleet: Fleet) -> None:
    lost: list[int] = []

    def drop() -> bool:
        lost.append(1)
        return len(lost) == 1

    fleet.drop_report = drop
    fleet.queue(seconds=JOB)
    await _until(fleet, "a report lost", lambda: bool(lost))


def _refusing(label: str) -> Callable[[Fleet], Awaitable[None]]:
    async def bring(fleet: Fleet) -> None:
        refused: list[int] = []

        def refuse(request: Request) -> Response | None:
            if not refused and request.method == "PATCH" and label.encode() in request.body:
                refused.append(1)
                return json_response(500, {"kind": "Status", "code": 500, "message": "not now"})
            return None

        fleet.refuse_kube = refuse
        fleet.queue(seconds=JOB)
        await _until(fleet, "a label refused", lambda: len(refused) >= 1)

    return bring


FAULTS = (
    Fault(
        Row(
            key="pod-dies",
            what="the Pod dies before its runner registers",
            left="an armed slot, a registration",
            repair="the operator's stop report, the proof; the fence; the job is read and offered again",
            bound=30.0,
        ),
        _dies_before_it_registers,
    ),
    Fault(
        Row(
            key="never-registers",
            what="the runner never registers, its Pod hangs",
            left="an armed slot, a stamp, a registration",
            repair="deadline of the armed state, fence, deletion of the Pod",
            bound=150.0,
            clock="registration: 120 s",
        ),
        _never_registers,
    ),
    Fault(
        Row(
            key="no-job",
            what="the runner registers, its job is gone",
            left="an armed slot, an idle runner",
            repair="deadline of the armed state, fence, deletion of the Pod",
            bound=150.0,
            clock="registration: 120 s",
        ),
        _job_cancelled,
    ),
    Fault(
        Row(
            key="never-ends",
            what="the job has ended, the machine of its runner never ends",
            left="a draining slot, a stamp",
            repair="deadline of the draining state, reap",
            bound=960.0,
            clock="draining: 900 s",
        ),
        _never_ends,
    ),
    Fault(
        Row(
            key="node-lost",
            what="the node is lost with all its Pods, and its Node is deleted",
            left="Pods whose end is not reported; an armed slot, a stamp, a registration",
            repair="idle ones: the operator; the armed one: deadline of the armed state, fence, deletion "
            "of the Pod; Pods without a confirmed end: the operator, once it has read that their Node is gone",
            bound=600.0,
            clock="registration: 120 s; an unconfirmed deletion: twice its grace and 300 s, seen within 60 s",
        ),
        _node_lost,
    ),
    Fault(
        Row(
            key="completed-lost",
            what="the webhook of a job's end is lost",
            left="a job that seems to run",
            repair="the Pod's end, then a read of the job; or the audit",
            bound=60.0,
            clock="the audit: every 20 s, deliveries older than 30 s",
        ),
        _completed_lost,
    ),
    Fault(
        Row(
            key="report-lost",
            what="the operator's stop report is lost",
            left="a claim without a Pod",
            repair="Pods against slots, the proof",
            bound=30.0,
        ),
        _report_lost,
    ),
    Fault(
        Row(
            key="stamp-refused",
            what="the owner stamp cannot be written",
            left="an offer and perhaps a stamp; no JIT leaves the server",
            repair="the offer is abandoned, the fence deletes the runner",
            bound=30.0,
        ),
        _refusing(names.POOL_OWNER),
    ),
    Fault(
        Row(
            key="label-refused",
            what="the commit label cannot be written",
            left="nothing: runyard does not read it",
            repair="–",
            bound=30.0,
        ),
        _refusing(names.RUNNER_ACCOUNT),
    ),
)


async def measure(fleet: Fleet, fault: Fault) -> float:
    """Cause a fault; returns the seconds until the fleet has settled."""
    await fault.bring(fleet)
    return await at_rest(fleet, within=fault.row.bound + 60.0)
