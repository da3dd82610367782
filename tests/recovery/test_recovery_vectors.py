"""Three ways in which stamped Pods once leaked, and a machine that never ends: on a real server and a real Postgres."""

import asyncio
import signal

import pytest
from benches.recovery.fleet import Fleet
from benches.recovery.losses import LOSSES, measure
from benches.recovery.matrix import Ground
from benches.recovery.rest import at_rest

from runyard.http.messages import Request, Response, json_response
from runyard.wire import names

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


class Mint:
    """Holds the first mint back until the Pod is stamped; then it is answered as the test wants."""

    def __init__(self, fleet: Fleet, answer: Response | None) -> None:
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()
        self._fleet = fleet
        self._answer = answer
        fleet.refuse_github = self._hear

    async def _hear(self, request: Request) -> Response | None:
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
                self._fleet.bell.clear()
                found = [
                    p for p in await self._fleet.pods() if names.POOL_OWNER in p.metadata.labels
                ]
                if found:
                    return found[0].metadata.uid
                await self._fleet.bell.wait()


def test_a_mint_that_is_refused_after_the_stamp_leaves_no_stamp_and_costs_no_pod(
    place: Ground,
) -> None:
    async def scenario() -> None:
        async with place.fleet("refused") as fleet:
            before = {pod.metadata.uid for pod in await fleet.pods()}
            mint = Mint(fleet, json_response(422, {"message": "Validation Failed"}))
            fleet.queue(seconds=0.2)
            uid = await mint.stamped()
            mint.go_on.set()
            async with asyncio.timeout(60.0):
                while True:  # un-stamped at once, and still the same Pod
                    fleet.bell.clear()
                    pods = {pod.metadata.uid: pod.metadata.labels for pod in await fleet.pods()}
                    assert uid in pods, "the Pod was reaped although it never had a runner"
                    if names.POOL_OWNER not in pods[uid]:
                        break
                    await fleet.bell.wait()
            assert uid in before
            await at_rest(fleet, within=120.0)

    asyncio.run(scenario())


def test_a_mint_whose_answer_is_lost_after_the_stamp_is_fenced_and_its_pod_reaped(
    place: Ground,
) -> None:
    async def scenario() -> None:
        async with place.fleet("unclear") as fleet:
            mint = Mint(fleet, json_response(502, {"message": "Bad Gateway"}))
            fleet.queue(seconds=0.2)
            uid = await mint.stamped()
            mint.go_on.set()
            await at_rest(fleet, within=120.0)
            assert uid not in {pod.metadata.uid for pod in await fleet.pods()}

    asyncio.run(scenario())


def test_a_server_told_to_end_between_stamp_and_commit_leaves_nothing(place: Ground) -> None:
    async def scenario() -> None:
        async with place.fleet("ended") as fleet:
            (server,) = fleet.servers
            mint = Mint(fleet, None)
            fleet.queue(seconds=0.2)
            await mint.stamped()
            server.signal(signal.SIGTERM)
            async with asyncio.timeout(30.0):
                assert await server.dead() == 0
            mint.go_on.set()  # GitHub makes the runner after all; nobody is there to hear of it
            server.start()
            await at_rest(fleet, within=120.0)

    asyncio.run(scenario())


def test_a_runner_that_never_registers_is_fenced_when_its_clock_has_run_out(place: Ground) -> None:
    """The shipped clock is 120 s; here it is 6 s. The recovery table has the time with the shipped one."""

    async def scenario() -> None:
        async with place.fleet("silent", deadlines={"armed": 6.0}) as fleet:
            fleet.hosts.fates["hang-with-jit"] = 1
            job = fleet.queue(seconds=0.2)
            await at_rest(fleet, within=120.0)
            (first, *_) = fleet.hosts.jits
            assert len(fleet.hosts.jits) == 2, "its job was given to another Pod, once"
            assert fleet.github.jobs()[job].conclusion == "success"
            assert first[0] not in {pod.metadata.uid for pod in await fleet.pods()}

    asyncio.run(scenario())


def test_a_machine_that_never_ends_is_reaped_when_its_clock_has_run_out(place: Ground) -> None:
    """The shipped clock is 900 s; here it is 6 s. The recovery table has the time with the shipped one."""
    (loss,) = (each for each in LOSSES if each.row.key == "never-ends")

    async def scenario() -> None:
        async with place.fleet("endless", deadlines={"draining": 6.0}) as fleet:
            await measure(fleet, loss)
            assert len(fleet.hosts.jits) == 1, "its job was not run again"

    asyncio.run(scenario())
