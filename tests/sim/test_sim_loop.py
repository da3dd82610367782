"""The virtual loop must replay exactly, and must never hide that something went wrong."""

import asyncio
import gc
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from runyard.sim.clock import VirtualClock
from runyard.sim.loop import (
    START,
    Deadlock,
    Livelock,
    Refused,
    SimulationError,
    Unhandled,
    VirtualLoop,
    run_virtual,
)
from runyard.sim.trace import Trace


async def busy(trace: Trace, clock: VirtualClock) -> None:
    """Many tasks that meet at the same moments, with groups that fail and cancel their children."""

    async def walker(name: int) -> None:
        for step in range(5):
            await clock.sleep(1.0)
            trace.note("step", name, step)

    async def child(group: int, name: int) -> None:
        try:
            await clock.sleep(100.0)
        finally:
            trace.note("cancelled", group, name)

    async def breaker(group: int) -> None:
        await clock.sleep(group)
        raise ValueError(group)

    async def failing(group: int) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                for name in range(20):
                    tasks.create_task(child(group, name))
                tasks.create_task(breaker(group))
        except* ValueError:
            trace.note("failed", group)

    async with asyncio.TaskGroup() as tasks:
        for name in range(20):
            tasks.create_task(walker(name))
        for group in range(3):
            tasks.create_task(failing(group))


def busy_trace(seed: int) -> tuple[str, tuple[str, ...]]:
    async def main() -> tuple[str, tuple[str, ...]]:
        clock = VirtualClock()
        trace = Trace(clock.monotonic, keep=1000)
        await busy(trace, clock)
        return trace.digest(), trace.last()

    return run_virtual(main(), seed=seed)


def test_a_seed_replays_in_this_interpreter_and_under_any_hash_seed() -> None:
    here = busy_trace(7)
    junk = [object() for _ in range(12345)]  # other addresses for whatever comes now
    assert busy_trace(7) == here
    del junk
    script = (
        "import sys, runpy; waste = [bytes(i % 97) for i in range(int(sys.argv[2]))];"
        "m = runpy.run_path(sys.argv[1]); print(m['busy_trace'](7)[0])"
    )
    for hash_seed in ("1", "2"):
        path = os.pathsep.join([str(Path(__file__).parents[2] / "src"), *sys.path])
        there = subprocess.run(
            [sys.executable, "-c", script, __file__, str(1000 * int(hash_seed))],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        )
        assert there.stdout.strip() == here[0]


def test_another_seed_gives_another_order_of_the_same_steps() -> None:
    digest, lines = busy_trace(1)
    other, other_lines = busy_trace(2)
    assert digest != other
    assert lines != other_lines
    assert sorted(lines) == sorted(other_lines)


def test_time_jumps_and_starts_at_the_given_epoch() -> None:
    async def main() -> tuple[float, float, float]:
        clock, skewed = VirtualClock(), VirtualClock(skew=-30.0)
        await clock.sleep(86_400.0)
        return clock.now(), clock.monotonic(), skewed.now()

    began = time.perf_counter()
    assert run_virtual(main()) == (START + 86_400, 86_400, START + 86_370)
    assert run_virtual(main(), start=5.0)[0] == 86_405
    assert time.perf_counter() - began < 5.0


def test_a_timeout_is_virtual_too() -> None:
    async def main() -> float:
        clock = VirtualClock()
        with pytest.raises(TimeoutError):
            async with clock.timeout(3600):
                await clock.sleep(1e9)
        return clock.monotonic()

    assert run_virtual(main()) == 3600


@pytest.mark.parametrize("forever", [False, True], ids=["no-timer", "timer-at-infinity"])
def test_a_deadlock_is_an_error_that_says_who_waits_where(*, forever: bool) -> None:
    async def lonely(event: asyncio.Event) -> None:
        await event.wait()

    async def main() -> None:
        if forever:
            asyncio.get_running_loop().call_later(float("inf"), print)
        async with asyncio.TaskGroup() as group:
            group.create_task(lonely(asyncio.Event()), name="the-lonely-one")

    with pytest.raises(Deadlock) as caught:
        run_virtual(main())
    assert "the-lonely-one" in str(caught.value)
    assert "lonely (test_sim_loop.py:" in str(caught.value)
    assert "Event.wait" in str(caught.value)


@pytest.mark.slow
def test_a_loop_that_never_waits_is_an_error_and_not_a_hang() -> None:
    async def main() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(Livelock):
        run_virtual(main())


def test_a_failure_is_reported_even_if_nothing_else_can_happen_any_more() -> None:
    held: list[object] = []

    async def broken() -> None:
        held.append(asyncio.current_task())  # a reference circle: only a collection finds it
        task = held.pop()
        assert isinstance(task, asyncio.Task)
        task.add_done_callback(lambda done, other=task: None)
        raise KeyError("in a circle")

    async def main() -> None:
        asyncio.get_running_loop().create_task(broken())
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Unhandled, match="in a circle"):
        run_virtual(main())


@pytest.mark.slow
def test_a_task_that_spins_when_it_is_cancelled_is_an_error_and_not_a_hang() -> None:
    released = asyncio.Event()
    tasks: list[asyncio.Task[None]] = []

    async def spinner() -> None:
        while not released.is_set():
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                continue

    async def main() -> None:
        await asyncio.sleep(1)
        tasks.append(asyncio.get_running_loop().create_task(spinner(), name="the-spinner"))

    with pytest.raises(Livelock, match="the-spinner"):
        run_virtual(main())
    released.set()
    coro = tasks[0].get_coro()
    assert coro is not None
    with pytest.raises(StopIteration):
        coro.throw(asyncio.CancelledError())  # let it go, so that nothing is left behind


def test_an_exception_that_nobody_retrieves_ends_the_run() -> None:
    async def broken() -> None:
        raise KeyError("lost")

    async def main() -> None:
        asyncio.get_running_loop().create_task(broken())
        await asyncio.sleep(1000)

    with pytest.raises(Unhandled, match="lost") as caught:
        run_virtual(main())
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_failing_callback_ends_the_run() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_later(1, lambda: 1 / 0)
        await asyncio.sleep(1000)

    with pytest.raises(Unhandled, match="division by zero"):
        run_virtual(main())


def test_a_failure_while_closing_is_not_lost() -> None:
    async def sore() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            raise ValueError("while closing")

    async def main() -> str:
        asyncio.get_running_loop().create_task(sore())
        await asyncio.sleep(1)
        return "fine"

    with pytest.raises(Unhandled, match="while closing"):
        run_virtual(main())


def test_an_exception_of_main_is_raised_as_it_is() -> None:
    async def main() -> None:
        asyncio.get_running_loop().create_task(asyncio.sleep(1000))
        await asyncio.sleep(1)
        raise LookupError("main")

    with pytest.raises(LookupError, match="main"):
        run_virtual(main())


def test_tasks_left_behind_are_cancelled_even_if_they_resist_for_a_while() -> None:
    seen = []

    async def stubborn() -> None:
        for attempt in range(3):
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                seen.append(attempt)

    async def main() -> None:
        asyncio.get_running_loop().create_task(stubborn())
        await asyncio.sleep(1)

    run_virtual(main())
    assert seen == [0, 1, 2]


def test_a_task_that_cannot_be_cancelled_is_named() -> None:
    released = asyncio.Event()
    tasks: list[asyncio.Task[None]] = []

    async def immortal() -> None:
        while not released.is_set():
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                continue

    async def main() -> None:
        tasks.append(asyncio.get_running_loop().create_task(immortal(), name="the-immortal-one"))
        await asyncio.sleep(1)

    with pytest.raises(SimulationError, match="the-immortal-one"):
        run_virtual(main())
    released.set()
    coro = tasks[0].get_coro()
    assert coro is not None
    with pytest.raises(StopIteration):
        coro.throw(asyncio.CancelledError())  # let it go, so that nothing is left behind


def test_a_failed_task_that_somebody_still_holds_is_not_overlooked() -> None:
    tasks: list[asyncio.Task[None]] = []

    async def broken() -> None:
        raise KeyError("held")

    async def main() -> None:
        tasks.append(asyncio.get_running_loop().create_task(broken()))
        await asyncio.sleep(1)

    with pytest.raises(Unhandled, match="held"):
        run_virtual(main())


@pytest.mark.parametrize(
    "call",
    [
        lambda loop: loop.call_soon_threadsafe(print),
        lambda loop: loop.run_in_executor(None, print),
        lambda loop: loop.create_connection(None, "localhost", 80),
        lambda loop: loop.add_reader(0, print),
        lambda loop: loop.subprocess_exec(None, "true"),
        lambda loop: loop.getaddrinfo("localhost", 80),
    ],
    ids=["threadsafe", "executor", "socket", "reader", "subprocess", "resolver"],
)
def test_the_outside_world_is_refused(call: Callable[[asyncio.AbstractEventLoop], object]) -> None:
    async def main() -> None:
        with pytest.raises(Refused, match="simulation"):
            call(asyncio.get_running_loop())
        with pytest.raises(Refused):
            await asyncio.to_thread(print)

    run_virtual(main())


def test_an_abandoned_generator_is_closed_inside_the_run() -> None:
    closed = []

    async def numbers() -> AsyncIterator[int]:
        try:
            for number in range(10):
                yield number
        finally:
            await asyncio.sleep(1)
            closed.append(asyncio.get_running_loop().time())

    async def main() -> None:
        async for _ in numbers():
            break
        await asyncio.sleep(5)

    run_virtual(main())
    assert closed == [1.0]


def test_the_collector_is_as_it_was_afterwards() -> None:
    async def main() -> bool:
        return gc.isenabled()

    assert gc.isenabled()
    assert run_virtual(main()) is False
    assert gc.isenabled()


@pytest.mark.slow
def test_a_hundred_thousand_timers_are_quick(capsys: pytest.CaptureFixture[str]) -> None:
    async def main() -> int:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        done, left = loop.create_future(), 100_000

        def tick() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                done.set_result(None)

        for number in range(left):
            loop.call_later((number * 7919) % 100_003, tick)
        for number in range(20_000):
            loop.call_later(1e6 + number, tick).cancel()
        await done
        return loop.steps

    began = time.process_time()
    steps = run_virtual(main())
    rate = steps / (time.process_time() - began)
    with capsys.disabled():
        sys.stdout.write(f"\n  virtual loop: {rate:,.0f} timers made and run per CPU second\n")
    assert steps >= 100_000
    assert rate > 20_000  # CPU time, a tenth of the usual: only a disaster fails here


def test_a_note_that_prints_an_address_is_refused() -> None:
    trace = Trace(lambda: 1.0, keep=2)
    with pytest.raises(ValueError, match="address"):
        trace.note("odd", object())
    trace.note("a", 1)
    trace.note("a", 2)
    trace.note("b", ("x", None))
    assert trace.counts == {"a": 2, "b": 1}
    assert trace.total == 3
    assert trace.last() == ("1.0 a (2,)\n", "1.0 b (('x', None),)\n")


def test_traces_that_differ_only_in_where_fields_end_have_different_digests() -> None:
    one, two = Trace(lambda: 0.0), Trace(lambda: 0.0)
    one.note("k", "a", "b")
    two.note("k", "a b")
    assert one.digest() != two.digest()
