"""The queue: no key is lost, none is with two workers, a change during the work is not missed."""

import asyncio
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kube.kubesupport import VirtualClock, dice, drive

from runyard.kube.workqueue import WorkQueue
from runyard.sim.loop import run_virtual

KEYS = ("a", "b", "c")
moves = st.lists(
    st.tuples(
        st.sampled_from(["add", "after", "retry", "get", "done", "wait"]),
        st.sampled_from(KEYS),
        st.floats(0.001, 50.0),
    ),
    max_size=60,
)


def queue(**how: float) -> WorkQueue:
    return WorkQueue(clock=VirtualClock(), rng=dice(), **how)


async def take(work: WorkQueue) -> str | None:
    """The next key if there is one now."""
    try:
        async with asyncio.timeout(0):
            return await work.get()
    except TimeoutError:
        return None


@given(moves)
def test_every_added_key_is_handed_out_after_its_last_add_and_never_twice_at_once(
    plan: list[tuple[str, str, float]],
) -> None:
    async def scenario() -> None:
        work = queue()
        owed: Counter[str] = Counter()  # keys that were added since they were last handed out
        asked: Counter[str] = Counter()
        given: Counter[str] = Counter()
        held: list[str] = []

        def ask(key: str) -> None:
            owed[key] += 1
            asked[key] += 1

        def hand_out(key: str | None) -> None:
            if key is not None:
                assert key not in held, "two workers on one key"
                owed[key] = 0
                given[key] += 1
                assert given[key] <= asked[key], "a key that was not added"
                held.append(key)

        for move, key, seconds in plan:
            if move == "add":
                work.add(key)
                ask(key)
            elif move == "after":
                work.add_after(key, seconds)
                ask(key)
            elif move == "retry":
                work.retry(key)
                ask(key)
            elif move == "get":
                hand_out(await take(work))
            elif move == "done" and held:
                work.done(held.pop(0))
            elif move == "wait":
                await asyncio.sleep(seconds)
        await asyncio.sleep(100.0)  # longer than any timer: whatever is owed is due
        for _ in range(10):
            while held:
                work.done(held.pop())
            while (key := await take(work)) is not None:
                hand_out(key)
        assert not any(owed.values()), f"lost: {owed}"

    run_virtual(scenario())


def test_a_key_is_queued_once_and_in_the_order_of_arrival() -> None:
    async def scenario() -> list[str | None]:
        work = queue()
        for key in "abacab":
            work.add(key)
        assert len(work) == 3
        return [await take(work) for _ in range(4)]

    assert run_virtual(scenario()) == ["a", "b", "c", None]


def test_a_key_added_while_it_is_worked_on_comes_back_once_and_only_after_done() -> None:
    async def scenario() -> None:
        work = queue()
        work.add("a")
        assert await take(work) == "a"
        work.add("a")
        work.add("a")
        assert await take(work) is None
        work.done("a")
        assert await take(work) == "a"
        work.done("a")
        assert await take(work) is None

    run_virtual(scenario())


def test_the_earliest_timer_of_a_key_counts_and_a_waiting_worker_notices_it() -> None:
    async def scenario() -> list[tuple[str, float]]:
        work = queue()
        clock = VirtualClock()
        seen: list[tuple[str, float]] = []

        async def worker() -> None:
            while True:
                key = await work.get()
                seen.append((key, round(clock.monotonic(), 3)))
                work.done(key)

        async def others() -> None:
            work.add_after("a", 100.0)
            await asyncio.sleep(1.0)
            work.add_after("a", 5.0)
            work.add_after("a", 50.0)
            work.add_after("b", 2.0)

        async with asyncio.TaskGroup() as group:
            group.create_task(drive(worker(), 500.0))
            group.create_task(others())
        return seen

    assert run_virtual(scenario()) == [("b", 3.0), ("a", 6.0)]


@pytest.mark.parametrize("seed", range(5))
def test_waiting_workers_are_woken_by_an_add_at_once(seed: int) -> None:
    async def scenario() -> list[tuple[str, float]]:
        work = queue()
        seen: list[tuple[str, float]] = []

        async def worker() -> None:
            while True:
                key = await work.get()
                seen.append((key, VirtualClock().monotonic()))
                await asyncio.sleep(0.5)
                work.done(key)

        async def source() -> None:
            for key in "abc":
                await asyncio.sleep(10.0)
                work.add(key)
                work.add(key * 2)

        async with asyncio.TaskGroup() as group:
            for _ in range(2):
                group.create_task(drive(worker(), 100.0))
            group.create_task(source())
        return sorted(seen)

    woken = run_virtual(scenario(), seed=seed)
    assert [key for key, _ in woken] == ["a", "aa", "b", "bb", "c", "cc"]
    assert [at for _, at in woken] == pytest.approx([10.0, 10.0, 20.0, 20.0, 30.0, 30.0])


def test_a_cancelled_wait_loses_no_key() -> None:
    async def scenario() -> str | None:
        work = queue()
        waiting = [asyncio.create_task(work.get()) for _ in range(3)]
        await asyncio.sleep(0)
        work.add("a")
        for task in waiting:
            task.cancel()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        got = [r for r in results if isinstance(r, str)]
        return got[0] if got else await take(work)

    assert run_virtual(scenario()) == "a"


def test_backoff_doubles_with_jitter_up_to_the_cap_and_starts_again_after_forget() -> None:
    async def scenario() -> None:
        work = queue(base=1.0, cap=10.0)
        delays = [work.retry("a") for _ in range(200)]
        for delay, longest in zip(delays, [1, 2, 4, 8, *[10] * 196], strict=True):
            assert longest / 2 <= delay <= longest
        assert len(set(delays)) > 150, "jitter"
        assert work.failures("a") == 200
        work.forget("a")
        assert work.retry("a") <= 1.0
        assert work.retry("b") <= 1.0, "backoff is per key"

    run_virtual(scenario())


@pytest.mark.parametrize("workers", [1, 3, 8])
def test_many_workers_share_a_burst_without_meeting_on_a_key(workers: int) -> None:
    async def scenario() -> None:
        work = WorkQueue(clock=VirtualClock(), rng=random.Random(workers))
        chance = random.Random(3)
        busy: Counter[str] = Counter()
        seen: Counter[str] = Counter()
        last_add: dict[str, float] = {}
        last_start: dict[str, float] = {}
        clock = VirtualClock()

        async def worker() -> None:
            while True:
                key = await work.get()
                busy[key] += 1
                assert busy[key] == 1
                seen[key] += 1
                last_start[key] = clock.monotonic()
                await asyncio.sleep(chance.random() * 2)
                busy[key] -= 1
                work.done(key)

        async def source() -> None:
            for _ in range(2000):
                key = f"k{chance.randrange(20)}"
                work.add(key)
                last_add[key] = clock.monotonic()
                await asyncio.sleep(chance.random() * 0.2)

        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(drive(worker(), 5000.0))
            group.create_task(source())
        assert all(last_start[key] >= last_add[key] for key in last_add)

    run_virtual(scenario())
