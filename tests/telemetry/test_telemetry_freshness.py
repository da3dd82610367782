"""Tests freshness: a component is ready while all of its loops succeed, and only then."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from runyard.http.errors import TRANSPORT_ERRORS, NotSent
from runyard.sim.clock import VirtualClock
from runyard.sim.loop import run_virtual
from runyard.telemetry.freshness import Freshness, Stale, due_within
from runyard.telemetry.log import get_logger
from runyard.telemetry.loops import run_loop
from runyard.telemetry.meter import Meter
from runyard.telemetry.names import Loop

Step = Callable[[], Awaitable[object]]


def test_a_loop_that_has_not_succeeded_yet_is_stale() -> None:
    async def main() -> None:
        clock = VirtualClock()
        fresh = Freshness(clock)
        assert fresh.stale() == ()
        fresh.expect("match", 10)
        assert fresh.stale() == (Stale(loop="match", within=10, silent=0, ever=False),)
        fresh.succeeded("match")
        assert fresh.stale() == ()

    run_virtual(main())


def test_a_loop_is_stale_once_its_time_has_passed_and_fresh_again_after_a_success() -> None:
    async def main() -> None:
        clock = VirtualClock()
        fresh = Freshness(clock)
        fresh.expect("match", 10)
        fresh.succeeded("match")
        await clock.sleep(10)
        assert fresh.stale() == ()
        await clock.sleep(1)
        assert fresh.stale() == (Stale(loop="match", within=10, silent=11, ever=True),)
        fresh.succeeded("match")
        assert fresh.stale() == ()

    run_virtual(main())


def test_a_loop_that_is_announced_again_keeps_its_last_success() -> None:
    async def main() -> None:
        fresh = Freshness(VirtualClock())
        fresh.expect("match", 10)
        fresh.succeeded("match")
        fresh.expect("match", 20)
        assert fresh.stale() == ()
        fresh.forget("match")
        with pytest.raises(ValueError, match="announced"):
            fresh.succeeded("match")

    run_virtual(main())


def test_a_limit_that_is_not_positive_is_refused() -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="must be positive"):
            Freshness(VirtualClock()).expect("match", 0)

    run_virtual(main())


async def watched(step: Step, *, seconds: float) -> list[tuple[float, bool]]:
    """When a loop that runs every 10 s with 5 s for each step turned stale or fresh."""
    clock = VirtualClock()
    fresh = Freshness(clock)
    turns: list[tuple[float, bool]] = []
    loop = run_loop(
        Loop.SLOT_SWEEP,
        step,
        clock=clock,
        expected=TRANSPORT_ERRORS,
        meter=Meter(),
        log=get_logger("test"),
        every=10,
        deadline=5,
        max_backoff=20,
        freshness=fresh,
    )
    running = asyncio.ensure_future(loop)
    began = clock.monotonic()
    while clock.monotonic() < began + seconds:
        await clock.sleep(1)
        stale = bool(fresh.stale())
        if not turns or turns[-1][1] != stale:
            turns.append((clock.monotonic() - began, stale))
    running.cancel()
    await asyncio.wait([running])
    return turns


def test_a_loop_that_works_is_never_stale() -> None:
    async def slow() -> None:
        await VirtualClock().sleep(4.9)  # each step all but misses its deadline

    assert run_virtual(watched(slow, seconds=500)) == [(1, True), (5, False)]


def test_a_loop_that_always_fails_never_becomes_ready() -> None:
    async def broken() -> None:
        raise NotSent("down")

    assert run_virtual(watched(broken, seconds=500)) == [(1, True)]


def test_a_loop_that_begins_to_hang_becomes_stale_and_recovers() -> None:
    began: list[float] = []

    async def hangs_for_a_while() -> None:
        now = VirtualClock().monotonic()
        began.append(now)
        if 100 < now - began[0] < 300:
            await asyncio.get_running_loop().create_future()

    turns = run_virtual(watched(hangs_for_a_while, seconds=500))
    assert [stale for _, stale in turns] == [False, True, False]
    within = due_within(every=10, deadline=5)
    assert 100 + within <= turns[1][0] <= 100 + within + 10
    assert 300 < turns[2][0] <= 300 + 20 + 5 + 1


def test_single_failures_do_not_make_a_loop_stale() -> None:
    count = iter(range(1000))

    async def blips() -> None:
        if next(count) % 2 == 1:
            raise NotSent("down")

    assert run_virtual(watched(blips, seconds=500)) == [(1, False)]


def test_the_last_success_of_followed_work_is_read_when_stale_is_called() -> None:
    async def main() -> None:
        clock = VirtualClock()
        fresh = Freshness(clock)
        last: list[float | None] = [None]
        fresh.follow("watch", 10, lambda: last[0])
        assert fresh.stale() == (Stale(loop="watch", within=10, silent=0, ever=False),)
        last[0] = clock.monotonic()
        assert fresh.stale() == ()
        await clock.sleep(11)
        assert fresh.stale() == (Stale(loop="watch", within=10, silent=11, ever=True),)
        last[0] = clock.monotonic()
        assert fresh.stale() == ()
        last[0] = None  # unknown again: the last known success counts, and gets stale
        assert fresh.stale() == ()
        await clock.sleep(11)
        assert [each.loop for each in fresh.stale()] == ["watch"]

    run_virtual(main())
