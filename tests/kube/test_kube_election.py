"""At most one replica may write: decided from the Lease alone, by each replica's own clock."""

import asyncio
import random
from typing import Any

import pytest

from runyard.embedded.kube.core import KubeCore
from runyard.http.errors import NotSent, OutcomeUnknown
from runyard.http.loopback import Loopback
from runyard.http.messages import Request, Response, Stream
from runyard.kube.client import Kube
from runyard.kube.election import Election, ElectionDeps
from runyard.kube.kinds import LEASES
from runyard.kube.leadership import Leadership, LeaderTransport, NotLeading
from runyard.kube.plans.election import (
    Observation,
    Reason,
    Record,
    Renewal,
    Timing,
    Wait,
    Write,
    decide,
    missing,
    observe,
    time_left,
)
from runyard.sim.clock import VirtualClock
from runyard.sim.loop import run_virtual
from runyard.telemetry.catalogue import LEADER_ELECTION_MASTER_STATUS
from runyard.telemetry.log import get_logger
from runyard.telemetry.meter import Meter
from runyard.wire import names

TIMING = Timing()
FIRST_TERM = 19.0  # by then a replica that found no Lease has waited out its duration and leads
NAME, SPACE, STAMP = "lock.example", names.CONTROLLER_NAMESPACE, "2026-01-01T00:00:00.000000Z"
THEIRS = Record(holder="b", duration=15.0, acquire_time="x", renew_time="y", transitions=4)


def decided(seen: Observation, now: float) -> Write | Wait:
    return decide(seen, identity="a", timing=TIMING, now=now, stamp=STAMP)


@pytest.mark.parametrize(
    "before", [None, Observation(THEIRS, "7", 50.0)], ids=["never seen", "deleted"]
)
def test_a_missing_lease_is_created_only_when_its_holders_term_has_passed(
    before: Observation | None,
) -> None:
    seen = missing(missing(before, now=100.0), now=107.0)
    waits = decided(seen, 114.9)
    assert isinstance(waits, Wait)
    assert (waits.reason, waits.seconds) == (Reason.LATELY_MISSING, pytest.approx(0.1))
    found = decided(seen, 115.0)
    assert isinstance(found, Write)
    assert (found.reason, found.resource_version, found.record.holder) == (Reason.MISSING, "", "a")


def test_the_last_holder_creates_its_deleted_lease_at_once() -> None:
    own = Record(holder="a", duration=15.0, acquire_time="then", transitions=3)
    found = decided(missing(Observation(own, "9", 0.0), now=1.0), 1.0)
    assert isinstance(found, Write)
    assert (found.reason, found.resource_version) == (Reason.OWN, "")


@pytest.mark.parametrize(
    "timing",
    [
        {"duration": 0.5},
        {"duration": 15.5},
        {"renew_deadline": 15.0},
        {"retry_period": 10.0},
        {"retry_period": 0.0},
    ],
)
def test_periods_under_which_two_could_lead_are_refused(timing: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="lease"):
        Timing(**timing)


@pytest.mark.parametrize(
    ("record", "now", "reason", "transitions"),
    [
        pytest.param(THEIRS, 15.0, Reason.EXPIRED, 5, id="expired"),
        pytest.param(Record(holder="", duration=1.0), 0.0, Reason.RELEASED, 1, id="released"),
        pytest.param(
            Record(holder="b", transitions=1), 15.0, Reason.EXPIRED, 2, id="without a duration"
        ),
    ],
)
def test_a_lease_without_a_holder_is_taken_with_the_version_that_was_read(
    record: Record, now: float, reason: Reason, transitions: int
) -> None:
    found = decided(Observation(record, "7", 0.0), now)
    assert isinstance(found, Write)
    assert (found.reason, found.resource_version) == (reason, "7")
    assert (found.record.holder, found.record.transitions) == ("a", transitions)


@pytest.mark.parametrize(
    "record", [THEIRS, Record(holder="b")], ids=["with a duration", "without one"]
)
def test_a_lease_that_changed_less_than_its_duration_ago_is_left_alone(record: Record) -> None:
    found = decided(Observation(record, "7", 100.0), 114.9)
    assert isinstance(found, Wait)
    assert found.seconds == pytest.approx(0.1)


def test_a_renewal_keeps_the_time_of_acquisition_and_the_number_of_transitions() -> None:
    own = Record(holder="a", duration=15.0, acquire_time="then", renew_time="y", transitions=3)
    found = decided(Observation(own, "9", 0.0), 500.0)
    assert isinstance(found, Write)
    assert found.reason is Reason.OWN
    assert found.record == Record(
        holder="a", duration=15.0, acquire_time="then", renew_time=STAMP, transitions=3
    )


def test_only_a_change_of_the_record_begins_the_wait_anew() -> None:
    first = observe(None, THEIRS, resource_version="1", now=10.0)
    labelled = observe(first, THEIRS, resource_version="2", now=20.0)
    assert (labelled.changed_at, labelled.resource_version) == (10.0, "2")
    renewed = observe(labelled, Record(holder="b", renew_time="z"), resource_version="3", now=30.0)
    assert renewed.changed_at == 30.0


@pytest.mark.parametrize(
    ("monotonic", "wall", "left"),
    [
        pytest.param(4.0, 4.0, 6.0, id="both clocks agree"),
        pytest.param(1.0, 30.0, -20.0, id="the machine was suspended"),
        pytest.param(4.0, -3600.0, 6.0, id="the wall clock was set back"),
    ],
)
def test_the_time_left_is_the_shorter_of_two_measures(
    monotonic: float, wall: float, left: float
) -> None:
    renewal = Renewal(100.0, 1000.0)
    found = time_left(renewal, TIMING, monotonic=100.0 + monotonic, wall=1000.0 + wall)
    assert found == pytest.approx(left)
    assert time_left(None, TIMING, monotonic=0.0, wall=0.0) == 0.0


def test_a_leader_stops_writing_before_another_replica_may_take_the_lease() -> None:
    assert TIMING.renew_deadline < TIMING.duration


# ── writes ───────────────────────────────────────────────────────────────────────────────────────


class Slow:
    """A slow peer that records the timeout of each request."""

    def __init__(self, clock: VirtualClock, seconds: float) -> None:
        self._clock = clock
        self.seconds = seconds
        self.given: list[float] = []

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        self.given.append(timeout)
        await self._clock.sleep(self.seconds)
        return Response(status=200)


POST = Request(method="POST", path="/api/v1/namespaces/x/pods")
GET = Request(method="GET", path="/api/v1/namespaces/x/pods")


def test_writes_pass_only_with_time_left_and_never_outlast_it() -> None:
    async def main() -> None:
        clock = VirtualClock()
        leadership = Leadership(clock=clock, timing=TIMING)
        peer = Slow(clock, 0.0)
        gate = LeaderTransport(peer, leadership)
        with pytest.raises(NotLeading):
            await gate.send(POST, timeout=30)
        assert (await gate.send(GET, timeout=30)).status == 200
        leadership.renewed(leadership.sent_now())
        await clock.sleep(4.0)
        await gate.send(POST, timeout=30)
        assert peer.given[-1] == pytest.approx(6.0)
        peer.seconds = 20.0
        began = clock.monotonic()
        with pytest.raises(OutcomeUnknown):
            await gate.send(POST, timeout=30)
        assert clock.monotonic() - began == pytest.approx(6.0)
        with pytest.raises(NotSent):
            await gate.send(POST, timeout=30)

    run_virtual(main())


def test_a_leader_that_ends_waits_for_its_writes_and_reports_an_unknown_outcome() -> None:
    async def main() -> None:
        clock = VirtualClock()
        leadership = Leadership(clock=clock, timing=TIMING)
        gate = LeaderTransport(Slow(clock, 2.0), leadership)
        leadership.renewed(leadership.sent_now())
        async with asyncio.TaskGroup() as group:
            write = group.create_task(gate.send(POST, timeout=30))
            await clock.sleep(0.5)
            assert await leadership.settle(within=3.0)
            assert write.done()
            with pytest.raises(NotLeading):
                await gate.send(POST, timeout=30)
            leadership.reopen()
            cut = group.create_task(gate.send(POST, timeout=30))
            await clock.sleep(0.5)
            cut.cancel()
            await clock.sleep(0.0)
            assert not await leadership.settle(within=3.0)

    run_virtual(main())


# ── one replica on the embedded API ─────────────────────────────────────────────────────────────


class Line:
    """A transport to the API; requests fail as `fails` says."""

    def __init__(self, core: KubeCore) -> None:
        self._onward = Loopback(core.handle)
        self.fails: type[Exception] | None = None
        self.after: type[Exception] | None = None

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        if self.fails is not None:
            raise self.fails("no answer")
        answer = await self._onward.send(request, timeout=timeout)
        if self.after is not None and request.method != "GET":
            raise self.after("the answer was lost")
        return answer


class Replica:
    """One candidate, and the times at which it led."""

    def __init__(self, identity: str, core: KubeCore, clock: VirtualClock) -> None:
        self.clock, self.line, self.meter = clock, Line(core), Meter()
        self.leadership = Leadership(clock=clock, timing=TIMING)
        self.terms: list[tuple[float, float]] = []
        deps = ElectionDeps(
            kube=Kube(self.line),
            name=NAME,
            namespace=SPACE,
            identity=identity,
            clock=clock,
            rng=random.Random(identity),
            meter=self.meter,
            log=get_logger("test"),
        )
        self.election = Election(deps, self.leadership)
        self.leading = False

    async def _lead(self) -> None:
        began, self.leading = self.clock.monotonic(), True
        try:
            await asyncio.Event().wait()
        finally:
            self.leading = False
            self.terms.append((began, self.clock.monotonic()))

    async def run(self) -> None:
        await self.election.run(self._lead)


def lease_of(core: KubeCore) -> dict[str, Any]:
    found = core.find(LEASES.plural, SPACE, NAME)
    assert found is not None
    return dict(found["spec"])


def test_the_lease_is_written_as_other_components_read_it_and_given_up_at_the_end() -> None:
    async def main() -> None:
        clock = VirtualClock()
        core = KubeCore(clock=clock, rng=random.Random(1))
        first, second = Replica("a", core, clock), Replica("b", core, clock)
        async with asyncio.TaskGroup() as group:
            one = group.create_task(first.run())
            await clock.sleep(FIRST_TERM)
            two = group.create_task(second.run())
            await clock.sleep(60.0)
            spec = lease_of(core)
            assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("a", 15)
            assert spec["leaseTransitions"] == 0 and spec["renewTime"] > spec["acquireTime"]
            assert first.meter.get(LEADER_ELECTION_MASTER_STATUS, name=NAME) == 1
            assert (first.leading, second.leading) == (True, False)
            one.cancel()
            await clock.sleep(0.1)
            assert lease_of(core)["holderIdentity"] == ""
            await clock.sleep(4.0)  # at once, not after fifteen seconds
            spec = lease_of(core)
            assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("b", 1)
            assert second.leading
            two.cancel()

    run_virtual(main())


@pytest.mark.parametrize("offset", [step / 10 for step in range(0, 40, 3)])
def test_a_deleted_lease_never_makes_two_leaders(offset: float) -> None:
    async def main() -> None:
        clock = VirtualClock()
        core = KubeCore(clock=clock, rng=random.Random(1))
        admin = Kube(Loopback(core.handle))
        replicas = [Replica(name, core, clock) for name in "abc"]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each.run()) for each in replicas[:2]]
            await clock.sleep(FIRST_TERM + offset)
            assert sum(each.leading for each in replicas) == 1
            leader = next(each for each in replicas if each.leading)
            await admin.delete(LEASES, NAME, namespace=SPACE)
            tasks.append(group.create_task(replicas[2].run()))  # it has never seen the Lease
            for _ in range(400):
                assert sum(each.leading for each in replicas) <= 1
                await clock.sleep(0.1)
            assert sum(each.leading for each in replicas) == 1
            assert leader.leading and not leader.terms  # it created its Lease again and led on
            leader.line.fails = NotSent
            await admin.delete(LEASES, NAME, namespace=SPACE)
            for _ in range(400):
                assert sum(each.leading for each in replicas) <= 1
                await clock.sleep(0.1)
            assert sum(each.leading for each in replicas) == 1 and not leader.leading
            for task in tasks:
                task.cancel()

    run_virtual(main())


@pytest.mark.parametrize("cancels", [1, 2])
def test_a_lease_is_kept_when_the_outcome_of_a_write_is_unknown_at_the_end(cancels: int) -> None:
    async def main() -> None:
        clock = VirtualClock()
        core = KubeCore(clock=clock, rng=random.Random(1))
        replica = Replica("a", core, clock)
        gate = LeaderTransport(Slow(clock, 3600.0), replica.leadership)

        async def lead() -> None:
            await gate.send(POST, timeout=3600)

        running = asyncio.ensure_future(replica.election.run(lead))
        await clock.sleep(FIRST_TERM)
        for _ in range(cancels):
            running.cancel()
            await clock.sleep(0.1)
        await asyncio.wait([running])
        assert lease_of(core)["holderIdentity"] == "a"

    run_virtual(main())


@pytest.mark.parametrize("error", [NotSent, OutcomeUnknown])
def test_a_leader_without_answers_ends_before_another_begins(error: type[Exception]) -> None:
    async def main() -> None:
        clock = VirtualClock()
        core = KubeCore(clock=clock, rng=random.Random(1))
        first, second = Replica("a", core, clock), Replica("b", core, clock)
        async with asyncio.TaskGroup() as group:
            one = group.create_task(first.run())
            await clock.sleep(FIRST_TERM)
            two = group.create_task(second.run())
            await clock.sleep(5.0)
            first.line.fails = error
            await clock.sleep(40.0)
            assert second.leading and not first.leading
            ended = first.terms[-1][1]
            two.cancel()
            await clock.sleep(0.1)
            assert second.terms[-1][0] - ended > 3.0
            first.line.fails = None
            await clock.sleep(30.0)
            assert first.leading
            one.cancel()

    run_virtual(main())


def test_a_write_whose_answer_was_lost_makes_no_leader_and_blocks_nothing() -> None:
    async def main() -> None:
        clock = VirtualClock()
        core = KubeCore(clock=clock, rng=random.Random(1))
        replica = Replica("a", core, clock)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(replica.run())
            replica.line.after = OutcomeUnknown
            await clock.sleep(FIRST_TERM)
            assert lease_of(core)["holderIdentity"] == "a" and not replica.leading
            replica.line.after = None
            await clock.sleep(5.0)
            assert replica.leading
            task.cancel()

    run_virtual(main())


def test_a_leader_stops_when_another_holds_the_lease_and_not_after_other_changes() -> None:
    async def main() -> None:
        clock = VirtualClock()
        core = KubeCore(clock=clock, rng=random.Random(1))
        admin, replica = Kube(Loopback(core.handle)), Replica("a", core, clock)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(replica.run())
            await clock.sleep(FIRST_TERM)
            body: dict[str, Any] = {"metadata": {"labels": {"team": "x"}}}
            await admin.patch(LEASES, NAME, body, namespace=SPACE)
            await clock.sleep(30.0)
            assert replica.leading and not replica.terms
            body = {"spec": {"holderIdentity": "another", "leaseDurationSeconds": 15}}
            await admin.patch(LEASES, NAME, body, namespace=SPACE)
            await clock.sleep(2.1)
            assert not replica.leading
            task.cancel()

    run_virtual(main())
