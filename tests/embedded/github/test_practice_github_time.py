"""The practice GitHub under a virtual clock: deliveries side by side, deadlines on time."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from runyard.embedded.github.core import GithubCore, PracticeApp
from runyard.embedded.github.deliveries import Delivery
from runyard.sim.clock import VirtualClock
from runyard.sim.loop import run_virtual

Deliver = Callable[[Delivery], Awaitable[int]]


def virtual(keys: Any, deliver: Deliver, scenario: Callable[[GithubCore], Awaitable[None]]) -> None:
    async def main() -> None:
        core = GithubCore(
            clock=VirtualClock(),
            rng=random.Random(1),
            app=PracticeApp(app_id=1, public_key=keys.public_pem, webhook_secret="s"),
            deliver=deliver,
        )
        core.install("acme")
        core.add_repo("acme/app")
        async with asyncio.TaskGroup() as group:
            heart = group.create_task(core.run())
            await scenario(core)
            heart.cancel()

    run_virtual(main())


def register(core: GithubCore, name: str) -> str:
    runner = core._state.register(
        "orgs/acme", name=name, labels=("mac",), group_id=1, work_folder="w"
    )
    return runner.jit


def test_a_hung_receiver_delays_no_other_delivery_and_times_out(practice_keys: Any) -> None:
    arrived: list[tuple[float, str]] = []

    async def deliver(delivery: Delivery) -> int:
        arrived.append((asyncio.get_running_loop().time(), delivery.action))
        if len(arrived) == 1:
            await asyncio.sleep(3600)
        return 200

    async def scenario(core: GithubCore) -> None:
        core.queue_job("acme/app", ("mac",))
        await asyncio.sleep(1)
        core.queue_job("acme/app", ("mac",))
        await asyncio.sleep(1)
        assert [at for at, _ in arrived] == [0.0, 1.0]
        first, second = core.attempts()
        assert (first.ended, second.status_code) == (False, 200)
        await asyncio.sleep(9)
        assert (first.ended, first.status, first.status_code) == (True, "timed out", 504)

    virtual(practice_keys, deliver, scenario)


def test_an_attempt_shows_only_when_it_has_ended(practice_keys: Any) -> None:
    async def deliver(delivery: Delivery) -> int:
        await asyncio.sleep(5 if delivery.action == "queued" else 1)
        return 200

    async def scenario(core: GithubCore) -> None:
        core.connect(register(core, "a"))
        core.queue_job("acme/app", ("mac",))
        await asyncio.sleep(2)
        listed, _ = core._log.page(before=None, size=10)
        assert [each.delivery.action for each in listed] == ["in_progress"]
        await asyncio.sleep(4)
        listed, _ = core._log.page(before=None, size=10)
        assert [each.delivery.action for each in listed] == ["in_progress", "queued"]

    virtual(practice_keys, deliver, scenario)


def test_a_receiver_that_raises_is_a_failed_delivery_and_no_crash(practice_keys: Any) -> None:
    async def deliver(delivery: Delivery) -> int:
        raise OSError("connection refused")

    async def scenario(core: GithubCore) -> None:
        core.queue_job("acme/app", ("mac",))
        await asyncio.sleep(1)
        assert [each.status_code for each in core.attempts()] == [502]
        assert core._log.crashes == 1

    virtual(practice_keys, deliver, scenario)


def test_a_lost_job_fails_on_time_without_a_request(practice_keys: Any) -> None:
    history: list[tuple[float, str]] = []

    async def deliver(delivery: Delivery) -> int:
        history.append((asyncio.get_running_loop().time(), delivery.action))
        return 200

    async def scenario(core: GithubCore) -> None:
        core.queue_job("acme/app", ("mac",))
        session: Any = core.connect(register(core, "a"))
        assert await session.next_job() is not None
        await asyncio.sleep(50)
        session.vanish()
        await asyncio.sleep(700)
        assert history[-1] == (650.0, "completed")
        assert not core.runners()

    virtual(practice_keys, deliver, scenario)


def test_a_runner_waits_in_its_session_until_a_job_comes(practice_keys: Any) -> None:
    async def deliver(delivery: Delivery) -> int:
        return 200

    async def scenario(core: GithubCore) -> None:
        session: Any = core.connect(register(core, "a"))

        async def push() -> None:
            await asyncio.sleep(40)
            core.queue_job("acme/app", ("mac",), duration=7)

        async with asyncio.TaskGroup() as group:
            group.create_task(push())
            assignment = await session.next_job()
        assert asyncio.get_running_loop().time() == 40
        await asyncio.sleep(assignment.duration)
        assert session.finish("success")

    virtual(practice_keys, deliver, scenario)
