"""Tests the events of pools, which `kubectl describe runnerpool` shows, against the embedded Kubernetes API."""

import asyncio
import itertools
from typing import Any

import msgspec
import pytest
from tests.pools.pool_builders import NEW, OLD
from tests.pools.pool_harness import PoolHarness, play

from runyard.http.messages import Request, Response
from runyard.pools.plans.reasons import EventReason, Why

PODS = "/pods"
EVENTS = "/events"


def events(harness: PoolHarness) -> dict[str, dict[str, Any]]:
    """The Events of the pool by reason; two of one reason are a failure."""
    pool = harness.core.find("runnerpools", "tuist-runners", "mac")
    assert pool is not None
    found = [
        event
        for event in harness.core.objects("events")
        if event["involvedObject"].get("uid") == pool["metadata"]["uid"]
    ]
    by_reason = {event["reason"]: event for event in found}
    assert len(by_reason) == len(found)
    return by_reason


def counts(harness: PoolHarness) -> dict[str, int]:
    return {reason: event["count"] for reason, event in events(harness).items()}


def event_writes(harness: PoolHarness) -> int:
    return sum(method != "GET" and EVENTS in path for method, path in harness.gate.log)


def test_what_the_operator_does_is_an_event_of_the_pool() -> None:
    async def scenario(harness: PoolHarness) -> None:
        for number in range(3):
            await harness.host(f"host-{number}")
        await harness.pool(2)
        async with harness.working():
            await harness.clock.sleep(60)
            assert counts(harness) == {Why.REPLICAS_MISSING.camel: 2}
            event = events(harness)[Why.REPLICAS_MISSING.camel]
            assert event["type"] == "Normal"
            assert event["involvedObject"]["kind"] == "RunnerPool"
            assert any(name in event["message"] for name in harness.names())
            await harness.set(replicas=1)
            await harness.clock.sleep(60)
            assert counts(harness)[Why.SCALED_DOWN.camel] == 1

    play(scenario)


def test_a_roll_has_one_event_for_its_start_and_one_for_its_end() -> None:
    async def scenario(harness: PoolHarness) -> None:
        for number in range(4):
            await harness.host(f"host-{number}")
        await harness.pool(3, image=OLD)
        async with harness.working():
            await harness.clock.sleep(120)
            assert EventReason.ROLL_FINISHED.camel not in counts(harness)
            await harness.set(image=NEW)
            await harness.clock.sleep(5)
            assert counts(harness)[EventReason.ROLL_STARTED.camel] == 1
            assert EventReason.ROLL_FINISHED.camel not in counts(harness)
            await harness.clock.sleep(3600)
        shown = counts(harness)
        assert shown[EventReason.ROLL_STARTED.camel] == shown[EventReason.ROLL_FINISHED.camel] == 1
        assert NEW in events(harness)[EventReason.ROLL_FINISHED.camel]["message"]

    play(scenario)


def test_a_new_operator_does_not_repeat_the_start_of_a_roll() -> None:
    async def scenario(harness: PoolHarness) -> None:
        await harness.host("host-0")
        await harness.pool(1, image=OLD)
        async with harness.working():
            await harness.clock.sleep(60)
            await harness.stamp(harness.names()[0])  # busy: the roll has to wait
            await harness.set(image=NEW)
            await harness.clock.sleep(30)
        harness.operator = harness.new_operator(3)
        async with harness.working():
            await harness.clock.sleep(120)
        assert counts(harness)[EventReason.ROLL_STARTED.camel] == 1

    play(scenario)


def test_a_loop_of_failing_runners_does_not_flood_the_api_with_events() -> None:
    async def scenario(harness: PoolHarness) -> None:
        for number in range(5):
            await harness.host(f"host-{number}")
        harness.boots_to, harness.boot = "Failed", 1.0
        await harness.pool(4)
        async with harness.working():
            await harness.clock.sleep(3000)
            created = sum(
                method == "POST" and path.endswith(PODS) for method, path in harness.gate.log
            )
            assert created > 30
            await harness.clock.sleep(120)
        failed = events(harness)[Why.FAILED_START.camel]
        assert failed["type"] == "Warning"
        assert counts(harness)[Why.REPLICAS_MISSING.camel] >= created
        assert set(counts(harness)) == {Why.REPLICAS_MISSING.camel, Why.FAILED_START.camel}
        assert event_writes(harness) < created

    play(scenario)


def test_an_event_that_repeats_is_written_at_most_every_ten_seconds() -> None:
    async def scenario(harness: PoolHarness) -> None:
        for number in range(3):
            await harness.host(f"host-{number}")
        await harness.pool(2)
        async with harness.working():
            await harness.clock.sleep(60)
            harness.gate.log.clear()
            for _ in range(100):  # a job that ends every half second
                await harness.finish(harness.names()[0])
                await harness.clock.sleep(0.5)
            assert event_writes(harness) <= 2 * 6
            await harness.clock.sleep(130)  # a later reconcile writes the rest of the counts
        ended = counts(harness)[Why.TERMINAL.camel]
        assert ended == sum(
            method == "DELETE" and PODS in path for method, path in harness.gate.log
        )

    play(scenario)


def test_a_refusal_of_the_api_is_an_event_with_its_message() -> None:
    async def scenario(harness: PoolHarness) -> None:
        await harness.host("host-0")
        await harness.pool(1)
        cause = "exceeded quota: pods=0"

        async def full(request: Request) -> Response | None:
            if request.method == "POST" and request.path.endswith(PODS):
                status = {"kind": "Status", "reason": "Forbidden", "message": cause}
                return Response(status=403, body=msgspec.json.encode(status))
            return None

        harness.gate.before = full
        async with harness.working():
            await harness.clock.sleep(600)
        event = events(harness)[EventReason.API_REFUSED.camel]
        assert event["type"] == "Warning"
        assert cause in event["message"]
        assert event["count"] > 2
        assert event_writes(harness) <= event["count"]

    play(scenario)


@pytest.mark.parametrize("failure", ["refused", "hangs"])
def test_a_pool_is_filled_although_no_event_can_be_written(failure: str) -> None:
    async def scenario(harness: PoolHarness) -> None:
        for number in range(3):
            await harness.host(f"host-{number}")
        await harness.pool(2)
        for number in range(20):  # each has an event to write
            await harness.pool(1, name=f"linux-{number}", os="linux")
        tried: list[float] = []

        async def broken(request: Request) -> Response | None:
            if not request.path.endswith(EVENTS) or request.method == "GET":
                return None
            tried.append(harness.clock.now())
            if failure == "hangs":
                await asyncio.Event().wait()
            return Response(status=403, body=b"{}")

        harness.gate.before = broken
        async with harness.working():
            await harness.clock.sleep(60)
            assert len(harness.running()) == 2
            await harness.finish(harness.running()[0])
            await harness.clock.sleep(60)
            assert len(harness.running()) == 2
        assert all(after - before >= 10 for before, after in itertools.pairwise(tried))

    play(scenario)
