"""The whole server takes a job from queued to a closed slot, also during outages."""

import asyncio

import pytest
from tests.dispatch.dispatchworld import Guest, Onward, World, play

from runyard.components import server
from runyard.db.inline import InlineDatabase
from runyard.embedded.github.identity import KeyPair
from runyard.embedded.github.session import RunnerSession
from runyard.http.errors import OutcomeUnknown
from runyard.http.messages import Handler, Request, Response, Stream
from runyard.telemetry.catalogue import RUNYARD_LOOP_FAILURES_TOTAL


def test_a_job_goes_from_queued_to_a_closed_slot(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guest = await world.pod()
        async with world.running():
            assert (await world.poll(guest)).status == 204
            job = world.queue()
            answer = await world.poll(guest, wait=20)
            assert answer.status == 200
            body = answer.json()
            assert (body["owner"], body["workflow_job_id"]) == ("acme", job)
            assert world.stamp(guest) == "acme"
            session = world.github.connect(body["encoded_jit_config"])
            assert isinstance(session, RunnerSession)
            given = await session.next_job()
            assert given is not None and given.job_id == job
            await world.clock.sleep(1)
            slot = world.slot(guest)
            assert (slot["state"], slot["executing_job"]) == ("executing", job)
            assert (await world.poll(guest)).status == 410
            session.finish("success")
            await world.clock.sleep(1)
            assert world.slot(guest)["state"] == "draining"
            assert world.job(job)["state"] == "done"
            await world.end_pod(guest)
            token = await world.controller_token()
            assert (await world.report_stopped(guest.name, token)).status == 204
            assert world.slot(guest)["state"] == "closed"
        assert not world.github.runners()

    play(scenario, database_url, app_keys)


async def life(world: World, guest: Guest, *, seconds: float = 5.0) -> int:
    """Poll until there is a job, run it, and end; returns the job's id."""
    while True:
        answer = await world.poll(guest, wait=8.0)
        if answer.status == 200:
            break
        await world.clock.sleep(2.0)
    session = world.github.connect(answer.json()["encoded_jit_config"])
    assert isinstance(session, RunnerSession), session
    given = await session.next_job()
    assert given is not None
    await world.clock.sleep(seconds)
    session.finish("success")
    await world.end_pod(guest)
    return given.job_id


def test_every_job_of_a_burst_runs_once_within_the_budget(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guests = [await world.pod(number) for number in range(1, 13)]
        async with world.running():
            jobs = [world.queue("acme/app" if n % 3 else "mona/dots") for n in range(12)]
            done = await asyncio.gather(*(life(world, guest) for guest in guests))
            assert sorted(done) == sorted(jobs)
            await world.clock.sleep(130)
            states = world.rows("SELECT state, fence FROM slots")
            assert states == [{"state": "closed", "fence": "done"}] * 12
        assert {world.job(job)["state"] for job in jobs} == {"done"}

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize("away", ["database", "kubernetes", "github"])
def test_the_server_survives_outages_of_all_dependencies(
    database_url: str, app_keys: KeyPair, away: str
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guest, other = await world.pod(1), await world.pod(2)

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            raise OutcomeUnknown("nobody there")

        async with world.running():
            armed = world.queue()
            first = await world.poll(guest, wait=20)
            assert first.status == 200
            world.database.down = away == "database"
            world.kube_wire.tamper = tamper if away == "kubernetes" else None
            world.github.faults.outage = away == "github"
            late = world.queue("mona/dots")
            for _ in range(40):
                assert (await world.poll(other, wait=1)).status in (204, 500, 503)
                await world.clock.sleep(10)
            world.database.down = False
            world.kube_wire.tamper = None
            world.github.faults.outage = False
            served = asyncio.create_task(life(world, other))
            await world.clock.sleep(300)
            assert served.result() in (armed, late)
        assert world.meter.total(RUNYARD_LOOP_FAILURES_TOTAL) > 0

    play(scenario, database_url, app_keys)


def test_a_webhook_at_one_replica_serves_a_pod_at_another(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guest = await world.pod()
        handlers: list[Handler] = []
        with InlineDatabase(database_url, clock=world.clock) as second:
            async with world.running(), asyncio.TaskGroup() as group:
                deps = world.deps(name="server-2", database=second)
                replica = group.create_task(server.run(deps, ready=handlers.append))
                await world.clock.sleep(1)
                polling = asyncio.create_task(world.poll(guest, wait=20))
                await world.clock.sleep(1)
                world.handle, first = handlers[0], world.handle
                began = world.clock.monotonic()
                world.queue()
                assert (await polling).status == 200
                assert world.clock.monotonic() - began < 0.25
                # Either replica delivers the JIT again.
                replay = await world.poll(guest)
                world.handle = first
                assert replay.body == (await world.poll(guest)).body == polling.result().body
                replica.cancel()

    play(scenario, database_url, app_keys)


def test_an_offer_with_an_unknown_commit_recovers(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guest, other = await world.pod(1), await world.pod(2)
        async with world.running():
            world.database.lose_answer = lambda name: name == "claim"
            job = world.queue()
            polling = asyncio.create_task(world.poll(guest, wait=5))
            await world.clock.sleep(1)
            assert world.slot(guest)["state"] == "offered"
            world.database.lose_answer = None
            await polling
            assert await life(world, other) == job
            await world.clock.sleep(60)
            assert world.slot(guest)["state"] == "closed"

    play(scenario, database_url, app_keys)
