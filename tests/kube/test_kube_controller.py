"""The controller: what each outcome of a reconcile leads to."""

import asyncio
import io
import itertools
from collections.abc import Awaitable, Callable

import pytest
from tests.kube.kubesupport import VirtualClock, dice, drive

from runyard.http.errors import NotSent
from runyard.kube.controller import Capacity, Controller, Result, Terminal
from runyard.kube.errors import Conflict
from runyard.kube.workqueue import WorkQueue
from runyard.sim.loop import run_virtual
from runyard.telemetry import log as logs
from runyard.telemetry.catalogue import (
    RUNYARD_QUEUE_DEPTH,
    RUNYARD_RECONCILE_SECONDS,
    RUNYARD_RECONCILE_TOTAL,
)
from runyard.telemetry.meter import Meter

Reconcile = Callable[[str], Awaitable[Result]]


class Bench:
    """A controller with its queue; `calls` are the keys with the time at which their turn began."""

    def __init__(self, reconcile: Reconcile, *, workers: int = 1, deadline: float = 60.0) -> None:
        self.clock = VirtualClock()
        self.queue = WorkQueue(clock=self.clock, rng=dice(), base=1.0, cap=8.0)
        self.meter = Meter()
        self.calls: list[tuple[str, float]] = []
        self._reconcile = reconcile
        self.controller = Controller(
            "pod-controller",
            self._record,
            queue=self.queue,
            clock=self.clock,
            meter=self.meter,
            log=logs.get_logger("test"),
            capacity=Capacity(workers=workers, deadline=deadline),
        )

    async def _record(self, key: str) -> Result:
        self.calls.append((key, self.clock.monotonic()))
        return await self._reconcile(key)

    def run(self, *keys: str, seconds: float = 100.0, runs: int = 1) -> "Bench":
        """Add the keys and run for a while; do so again for each further life."""

        async def scenario() -> None:
            for _ in range(runs):
                for key in keys:
                    self.queue.add(key)
                await drive(self.controller.run(), seconds)

        run_virtual(scenario())
        return self

    def count(self, result: str) -> float:
        return (
            self.meter.get(RUNYARD_RECONCILE_TOTAL, controller="pod-controller", result=result)
            or 0.0
        )

    def times(self, key: str) -> list[float]:
        return [at for name, at in self.calls if name == key]


def test_a_successful_key_is_not_reconciled_until_it_is_added_again() -> None:
    async def fine(key: str) -> Result:
        return Result()

    bench = Bench(fine).run("a", "b", "a")
    assert [key for key, _ in bench.calls] == ["a", "b"]
    assert bench.count("success") == 2
    assert bench.meter.get(RUNYARD_RECONCILE_SECONDS, controller="pod-controller") == 2
    assert bench.meter.get(RUNYARD_QUEUE_DEPTH, controller="pod-controller") == 0


def test_requeue_after_is_kept() -> None:
    async def again(key: str) -> Result:
        return Result(requeue_after=30.0)

    bench = Bench(again).run("a")
    assert bench.times("a") == pytest.approx([0.0, 30.0, 60.0, 90.0])
    assert bench.count("requeue") == 4


def test_a_reconcile_that_always_requeues_at_once_does_not_starve_the_process() -> None:
    async def eager(key: str) -> Result:
        return Result(requeue_after=0.0)

    bench = Bench(eager).run("a", seconds=1.0)
    assert 10 <= len(bench.calls) <= 250


@pytest.mark.parametrize(
    "error",
    [RuntimeError("bug"), Conflict(409, "Conflict", "stale"), NotSent("down"), TimeoutError()],
    ids=lambda error: type(error).__name__,
)
def test_an_error_is_followed_by_a_growing_wait_and_success_resets_it(error: Exception) -> None:
    failing = iter([True] * 6 + [False, True, False])

    async def flaky(key: str) -> Result:
        if next(failing, False):
            raise error
        return Result(requeue_after=50.0)

    times = Bench(flaky).run("a", seconds=140.0).times("a")
    gaps = [later - sooner for sooner, later in itertools.pairwise(times)]
    for gap, longest in zip(gaps[:6], [1, 2, 4, 8, 8, 8], strict=True):
        assert longest / 2 <= gap <= longest
    assert gaps[6] == pytest.approx(50.0)
    assert gaps[7] <= 1.0, "the backoff began anew"


def test_errors_are_counted_apart() -> None:
    outcomes: dict[str, BaseException] = {"a": ValueError("x"), "b": Terminal("never")}

    async def reconcile(key: str) -> Result:
        if key == "c":
            await asyncio.sleep(1000.0)
        raise outcomes[key]

    bench = Bench(reconcile, deadline=20.0).run("a", "b", "c", seconds=20.5)
    assert bench.count("terminal") == 1
    assert bench.count("timeout") == 1
    assert bench.count("error") >= 1


def test_a_terminal_error_is_not_tried_again_until_the_key_changes() -> None:
    async def hopeless(key: str) -> Result:
        raise Terminal("the image has no such tag")

    bench = Bench(hopeless).run("a", seconds=1000.0, runs=3)
    assert bench.times("a") == pytest.approx([0.0, 1000.0, 2000.0])


def test_a_reconcile_that_hangs_is_ended_at_its_deadline_and_tried_again() -> None:
    async def hang(key: str) -> Result:
        await asyncio.sleep(1e6)
        return Result()

    bench = Bench(hang, deadline=10.0).run("a", seconds=25.0)
    first, second, *_ = bench.times("a")
    assert 10.5 <= second - first <= 11.0
    assert bench.count("timeout") == 2


def test_a_stuck_key_does_not_starve_the_others() -> None:
    async def one_hangs(key: str) -> Result:
        if key == "stuck":
            await asyncio.sleep(1e6)
        await asyncio.sleep(0.1)
        return Result()

    others = [f"k{n}" for n in range(20)]
    bench = Bench(one_hangs, workers=2, deadline=60.0).run("stuck", *others, seconds=10.0)
    assert [key for key, _ in bench.calls[1:]] == others


def test_a_change_during_a_reconcile_leads_to_another_one() -> None:
    async def slow(key: str) -> Result:
        if len(bench.calls) == 1:
            await asyncio.sleep(5.0)
            bench.queue.add(key)
            bench.queue.add(key)
            await asyncio.sleep(5.0)
        return Result()

    bench = Bench(slow, workers=3)
    bench.run("a")
    assert bench.times("a") == pytest.approx([0.0, 10.0])


def test_a_change_during_a_failing_reconcile_is_not_lost() -> None:
    async def fails_once(key: str) -> Result:
        if len(bench.calls) == 1:
            bench.queue.add(key)
            raise RuntimeError
        return Result()

    bench = Bench(fails_once)
    bench.run("a")
    assert bench.times("a")[0] == bench.times("a")[1], "the change did not wait for the backoff"


def test_a_cancelled_controller_gives_its_keys_back() -> None:
    async def hang(key: str) -> Result:
        await asyncio.sleep(1e6)
        return Result()

    bench = Bench(hang, deadline=1e6).run("a", seconds=10.0, runs=2)
    assert bench.times("a") == pytest.approx([0.0, 10.0])


def test_every_log_line_of_a_reconcile_has_its_id() -> None:
    out = io.StringIO()
    logs.configure(level="info", stream=out, now=lambda: 0.0)
    try:

        async def talk(key: str) -> Result:
            logs.get_logger("room").info("hello")
            raise Terminal("no")

        Bench(talk).run("a", "b")
    finally:
        logs.configure(level="critical")
    lines = out.getvalue().splitlines()
    assert len(lines) == 4
    for number, key in ((1, "a"), (2, "b")):
        own = [line for line in lines if f'"reconcile_id":{number}' in line]
        assert len(own) == 2
        assert all(
            f'"key":"{key}"' in line and '"controller":"pod-controller"' in line for line in own
        )
