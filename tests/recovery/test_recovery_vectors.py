"""Stamped Pods that once leaked in three ways, and a machine that never ends, are recovered by a real server."""

import asyncio
import signal

import pytest
from benches.recovery.faults import FAULTS, measure
from benches.recovery.fleet import Fleet
from benches.recovery.matrix import Environment
from benches.recovery.settled import at_rest

from runyard.http.messages import Request, Response, json_response
from runyard.wire import names

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


class Mint:
    """Delays the first mint until the Pod is stamped, then sends the test's answer."""

    def __init__(self, fleet: Fleet, answer: Response | None) -> None:
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()
        self._fleet = fleet
        self._answer = answer
        fleet.refuse_github = self._receive

    async def _receive(self, request: Request) -> Response | None:
        if not request.path.endswith("/generate-jitconfig") or self.asked.is_set():
            return None
        self.asked.set()
        await self.go_on.wait()
        return self._answer

    async def stamped(self) -> str:
        """Wait for the mint and for the stamp; the uid of the stamped Pod."""
        async with asyncio.timeout(60.0):
            await self.asked.wait()
            while True:
                self._fleet.wakeup.clear()
                found = [
                    p for p in await self._fleet.pods() if names.POOL_OWNER in p.metadata.labels
                ]
                if found:
                    return found[0].metadata.uid
                await self._fleet.wakeup.wait()


def test_a_refused_mint_after_the_stamp_clears_it_and_keeps_the_pod(
    environment: Environment,
) -> None:
    async def scenario() -> None:
        async with environment.fleet("refused") as fleet:
            before = {pod.metadata.uid for pod in await fleet.pods()}
            mint = Mint(fleet, json_response(422, {"message": "Validation Failed"}))
            fleet.queue(seconds=0.2)
            uid = await mint.stamped()
            mint.go_on.set()
            async with asyncio.timeout(60.0):
                while True:  # un-stamped at once, and still the same Pod
                    fleet.wakeup.clear()
                    pods = {pod.metadata.uid: pod.metadata.labels for pod in await fleet.pods()}
                    assert uid in pods, "the Pod was reaped although it never had a runner"
                    if names.POOL_OWNER not in pods[uid]:
                        break
                    await fleet.wakeup.wait()
            assert uid in before
            await at_rest(fleet, within=120.0)

    asyncio.run(scenario())


def test_a_mint_with_a_lost_answer_is_fenced_and_its_pod_keeps_no_stamp(
    environment: Environment,
) -> None:
    async def scenario() -> None:
        async with environment.fleet("unclear") as fleet:
            mint = Mint(fleet, json_response(502, {"message": "Bad Gateway"}))
            fleet.queue(seconds=0.2)
            uid = await mint.stamped()
            mint.go_on.set()
            await at_rest(fleet, within=120.0)
            # The Pod stays warm. It is gone only if it is the one that ran the job afterwards.
            left = {pod.metadata.uid: pod.metadata.labels for pod in await fleet.pods()}
            assert names.POOL_OWNER not in left.get(uid, {})

    asyncio.run(scenario())


def test_sigterm_between_stamp_and_commit_leaks_nothing(environment: Environment) -> None:
    async def scenario() -> None:
        async with environment.fleet("ended") as fleet:
            (server,) = fleet.servers
            mint = Mint(fleet, None)
            fleet.queue(seconds=0.2)
            await mint.stamped()
            server.signal(signal.SIGTERM)
            async with asyncio.timeout(30.0):
                assert await server.dead() == 0
            mint.go_on.set()  # GitHub mints the runner after all; the response is lost
            server.start()
            await at_rest(fleet, within=120.0)

    asyncio.run(scenario())


@pytest.mark.long
def test_a_runner_that_never_registers_is_fenced_after_its_deadline(
    environment: Environment,
) -> None:
    """The default deadline is 120 s; here it is 6 s. The recovery table has the time with the default."""

    async def scenario() -> None:
        async with environment.fleet("silent", deadlines={"armed": 6.0}) as fleet:
            fleet.hosts.fates["hang-with-jit"] = 1
            job = fleet.queue(seconds=0.2)
            await at_rest(fleet, within=120.0)
            (first, *_) = fleet.hosts.jits
            assert len(fleet.hosts.jits) == 2, "its job was given to another Pod, once"
            assert fleet.github.jobs()[job].conclusion == "success"
            assert first[0] not in {pod.metadata.uid for pod in await fleet.pods()}

    asyncio.run(scenario())


@pytest.mark.long
def test_a_machine_that_never_ends_is_deleted_after_its_deadline(environment: Environment) -> None:
    """The default deadline is 900 s; here it is 6 s. The recovery table has the time with the default."""
    (fault,) = (each for each in FAULTS if each.row.key == "never-ends")

    async def scenario() -> None:
        async with environment.fleet("endless", deadlines={"draining": 6.0}) as fleet:
            await measure(fleet, fault)
            assert len(fleet.hosts.jits) == 1, "its job was not run again"

    asyncio.run(scenario())
