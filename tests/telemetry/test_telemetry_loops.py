"""Tests periodic loops: expected failures are counted and back off, other errors end the loop."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from runyard.http.errors import TRANSPORT_ERRORS, NotSent
from runyard.sim.clock import VirtualClock
from runyard.sim.loop import run_virtual
from runyard.telemetry import catalogue as c
from runyard.telemetry.log import get_logger
from runyard.telemetry.loops import Expected, run_loop
from runyard.telemetry.meter import Meter
from runyard.telemetry.names import Loop

Step = Callable[[], Awaitable[object]]
LOOP = Loop.SLOT_SWEEP


async def run_for(
    seconds: float,
    step: Step,
    meter: Meter,
    *,
    expected: Expected = TRANSPORT_ERRORS,
    rng: random.Random | None = None,
) -> None:
    clock = VirtualClock()
    with pytest.raises(TimeoutError):
        async with clock.timeout(seconds):
            await run_loop(
                LOOP,
                step,
                clock=clock,
                meter=meter,
                log=get_logger("test"),
                every=10,
                deadline=5,
                expected=expected,
                max_backoff=60,
                jitter_rng=rng,
            )


def moments(step: Callable[[int], Awaitable[object]], seconds: float, meter: Meter) -> list[float]:
    times: list[float] = []

    async def main() -> None:
        async def timed() -> None:
            times.append(asyncio.get_running_loop().time())
            await step(len(times))

        await run_for(seconds, timed, meter)

    run_virtual(main())
    return times


def test_steps_run_at_once_and_then_periodically() -> None:
    async def fine(_: int) -> None:
        pass

    meter = Meter()
    assert moments(fine, 35, meter) == [0, 10, 20, 30]
    last = meter.get(c.RUNYARD_LOOP_LAST_SUCCESS_SECONDS, loop=LOOP)
    assert last is not None
    assert last % 100 == 30


def test_failures_back_off_up_to_the_limit_and_a_success_resets_it() -> None:
    async def flaky(number: int) -> None:
        if number <= 4:
            raise NotSent("down")

    meter = Meter()
    assert moments(flaky, 205, meter) == [0, 20, 60, 120, 180, 190, 200]
    assert meter.get(c.RUNYARD_LOOP_FAILURES_TOTAL, loop=LOOP, error="not-sent") == 4


def test_a_step_that_hangs_is_ended_and_counted_as_a_deadline() -> None:
    async def hangs(number: int) -> None:
        if number == 1:
            await asyncio.get_running_loop().create_future()

    meter = Meter()
    assert moments(hangs, 30, meter) == [0, 25]
    assert meter.get(c.RUNYARD_LOOP_FAILURES_TOTAL, loop=LOOP, error="deadline") == 1


@pytest.mark.parametrize(
    "error",
    [TypeError, AttributeError, AssertionError, NameError, KeyError, RuntimeError, ValueError],
)
def test_a_programming_error_kills_the_loop(error: type[Exception]) -> None:
    meter = Meter()

    async def broken() -> None:
        raise error("bug")

    async def main() -> None:
        await run_for(100, broken, meter)

    with pytest.raises(error, match="bug"):
        run_virtual(main())
    assert meter.total(c.RUNYARD_LOOP_FAILURES_TOTAL) == 1


def test_a_bug_inside_a_group_of_expected_failures_kills_the_loop() -> None:
    async def step() -> None:
        raise ExceptionGroup("both", [NotSent("down"), TypeError("bug")])

    async def main() -> None:
        await run_for(100, step, Meter())

    with pytest.raises(ExceptionGroup):
        run_virtual(main())


def test_a_group_of_expected_failures_is_survived() -> None:
    async def step(_: int) -> None:
        raise ExceptionGroup("two", [NotSent("down"), ExceptionGroup("in", [OSError("disk")])])

    assert len(moments(step, 50, Meter())) == 2


def test_a_timeout_that_is_not_the_deadline_is_not_mistaken_for_it() -> None:
    async def step(number: int) -> None:
        if number == 1:
            raise TimeoutError("of another call")

    meter = Meter()
    moments(step, 30, meter)
    assert meter.get(c.RUNYARD_LOOP_FAILURES_TOTAL, loop=LOOP, error="timeout-error") == 1
    assert meter.get(c.RUNYARD_LOOP_FAILURES_TOTAL, loop=LOOP, error="deadline") is None


@pytest.mark.parametrize("kind", [Exception, TypeError, LookupError, KeyError])
def test_expecting_everything_is_refused(kind: type[Exception]) -> None:
    async def step() -> None:
        pass

    async def main() -> None:
        await run_for(10, step, Meter(), expected=(kind,))

    with pytest.raises(ValueError, match="programming errors"):
        run_virtual(main())


def test_jitter_spreads_replicas_and_replays() -> None:
    def run(seed: int) -> list[float]:
        times: list[float] = []

        async def step() -> None:
            times.append(asyncio.get_running_loop().time())

        async def main() -> None:
            await run_for(100, step, Meter(), rng=random.Random(seed))

        run_virtual(main())
        return times

    assert run(1) == run(1)
    assert run(1) != run(2)
    gaps = [after - before for before, after in zip(run(1), run(1)[1:], strict=False)]
    assert all(10 <= gap <= 11 for gap in gaps)


def woken(at: tuple[float, ...], *, fails: bool = False) -> list[float]:
    """When a loop of ten seconds runs its steps within 25 s, if it is woken at these times."""
    times: list[float] = []

    async def main() -> None:
        clock, wakeup = VirtualClock(), asyncio.Event()

        async def step() -> None:
            times.append(round(clock.monotonic() - began, 1))
            if fails:
                raise NotSent("not now")

        async def wake() -> None:
            for moment in at:
                await clock.sleep(began + moment - clock.monotonic())
                wakeup.set()

        began = clock.monotonic()
        with pytest.raises(TimeoutError):
            async with clock.timeout(25), asyncio.TaskGroup() as group:
                group.create_task(wake())
                group.create_task(
                    run_loop(
                        LOOP,
                        step,
                        clock=clock,
                        meter=Meter(),
                        log=get_logger("test"),
                        every=10,
                        deadline=5,
                        expected=TRANSPORT_ERRORS,
                        wakeup=wakeup,
                    )
                )

    run_virtual(main())
    return times


@pytest.mark.parametrize(
    ("at", "fails", "steps"),
    [
        pytest.param((), False, [0.0, 10.0, 20.0], id="never"),
        pytest.param((4.0,), False, [0.0, 4.0, 14.0, 24.0], id="between-two-steps"),
        pytest.param((4.0, 4.1, 4.2), False, [0.0, 4.0, 5.0, 15.0], id="often-but-once-a-second"),
        pytest.param((0.1,), False, [0.0, 1.0, 11.0, 21.0], id="right-after-a-step"),
        pytest.param((4.0, 5.0), True, [0.0, 20.0], id="not-during-a-backoff"),
    ],
)
def test_a_loop_that_is_woken_runs_at_once(
    at: tuple[float, ...], fails: bool, steps: list[float]
) -> None:
    assert woken(at, fails=fails) == steps
