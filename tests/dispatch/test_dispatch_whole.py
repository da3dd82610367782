"""The whole server takes a job from queued to a closed slot, also during outages."""

import asyncio

import pytest
from tests.dispatch.dispatchharness import Guest, Harness, Onward, play

from runyard.components import server
from runyard.db.inline import InlineDatabase
from runyard.embedded.github.identity import KeyPair
from runyard.embedded.github.session import RunnerSession
from runyard.http.errors import OutcomeUnknown
from runyard.http.messages import Handler, Request, Response, Stream
from runyard.telemetry.catalogue import RUNYARD_LOOP_FAILURES_TOTAL


def test_a_job_goes_from_queued_to_a_closed_slot(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        async with harness.running():
            assert (await harness.poll(guest)).status == 204
            job = harness.queue()
            answer = await harness.poll(guest, wait=20)
            assert answer.status == 200
            body = answer.json()
            assert (body["owner"], body["workflow_job_id"]) == ("acme", job)
            assert harness.stamp(guest) == "acme"
            session = harness.github.connect(body["encoded_jit_config"])
            assert isinstance(session, RunnerSession)
            given = await session.next_job()
            assert given is not None and given.job_id == job
            await harness.clock.sleep(1)
            slot = harness.slot(guest)
            assert (slot["state"], slot["executing_job"]) == ("executing", job)
            assert (await harness.poll(guest)).status == 410
            session.finish("success")
            await harness.clock.sleep(1)
            assert harness.slot(guest)["state"] == "draining"
            assert harness.job(job)["state"] == "done"
            await harness.end_pod(guest)
            token = await harness.controller_token()
            assert (await harness.report_stopped(guest.name, token)).status == 204
            assert harness.slot(guest)["state"] == "closed"
        assert not harness.github.runners()

    play(scenario, database_url, app_keys)


async def life(harness: Harness, guest: Guest, *, seconds: float = 5.0) -> int:
    """Poll until there is a job, run it, and end; returns the job's id."""
    while True:
        answer = await harness.poll(guest, wait=8.0)
        if answer.status == 200:
            break
        await harness.clock.sleep(2.0)
    session = harness.github.connect(answer.json()["encoded_jit_config"])
    assert isinstance(session, RunnerSession), session
    given = await session.next_job()
    assert given is not None
    await harness.clock.sleep(seconds)
    session.finish("success")
    await harness.end_pod(guest)
    return given.job_id


def test_every_job_of_a_burst_runs_once_within_the_budget(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guests = [await harness.pod(number) for number in range(1, 13)]
        async with harness.running():
            jobs = [harness.queue("acme/app" if n % 3 else "mona/dots") for n in range(12)]
            done = await asyncio.gather(*(life(harness, guest) for guest in guests))
            assert sorted(done) == sorted(jobs)
            await harness.clock.sleep(130)
            states = harness.rows("SELECT state, fence FROM slots")
            assert states == [{"state": "closed", "fence": "done"}] * 12
        assert {harness.job(job)["state"] for job in jobs} == {"done"}

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize("away", ["database", "kubernetes", "github"])
def test_the_server_survives_outages_of_all_dependencies(
    database_url: str, app_keys: KeyPair, away: str
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest, other = await harness.pod(1), await harness.pod(2)

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            raise OutcomeUnknown("nobody there")

        async with harness.running():
            armed = harness.queue()
            first = await harness.poll(guest, wait=20)
            assert first.status == 200
            harness.database.down = away == "database"
            harness.kube_wire.tamper = tamper if away == "kubernetes" else None
            harness.github.faults.outage = away == "github"
            late = harness.queue("mona/dots")
            for _ in range(40):
                assert (await harness.poll(other, wait=1)).status in (204, 500, 503)
                await harness.clock.sleep(10)
            harness.database.down = False
            harness.kube_wire.tamper = None
            harness.github.faults.outage = False
            served = asyncio.create_task(life(harness, other))
            await harness.clock.sleep(300)
            assert served.result() in (armed, late)
        assert harness.meter.total(RUNYARD_LOOP_FAILURES_TOTAL) > 0

    play(scenario, database_url, app_keys)


def test_a_webhook_at_one_replica_serves_a_pod_at_another(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        handlers: list[Handler] = []
        with InlineDatabase(database_url, clock=harness.clock) as second:
            async with harness.running(), asyncio.TaskGroup() as group:
                deps = harness.deps(name="server-2", database=second)
                replica = group.create_task(server.run(deps, ready=handlers.append))
                await harness.clock.sleep(1)
                polling = asyncio.create_task(harness.poll(guest, wait=20))
                await harness.clock.sleep(1)
                harness.handle, first = handlers[0], harness.handle
                began = harness.clock.monotonic()
                harness.queue()
                assert (await polling).status == 200
                assert harness.clock.monotonic() - began < 0.25
                # Either replica delivers the JIT again.
                replay = await harness.poll(guest)
                harness.handle = first
                assert replay.body == (await harness.poll(guest)).body == polling.result().body
                replica.cancel()

    play(scenario, database_url, app_keys)


def test_an_offer_with_an_unknown_commit_recovers(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest, other = await harness.pod(1), await harness.pod(2)
        async with harness.running():
            harness.database.lose_answer = lambda name: name == "claim"
            job = harness.queue()
            polling = asyncio.create_task(harness.poll(guest, wait=5))
            await harness.clock.sleep(1)
            assert harness.slot(guest)["state"] == "offered"
            harness.database.lose_answer = None
            await polling
            assert await life(harness, other) == job
            await harness.clock.sleep(60)
            assert harness.slot(guest)["state"] == "closed"

    play(scenario, database_url, app_keys)


def test_a_requeued_job_does_not_wait_for_the_next_read_of_jobs(
    database_url: str, app_keys: KeyPair
) -> None:
    """A Pod that dies with its JIT gives its job back; the job is offered again only after a read at GitHub."""

    async def scenario(harness: Harness) -> None:
        await harness.pool()
        waits = []
        async with harness.running():
            token = await harness.controller_token()
            for number in (1, 2, 3):  # at different times between two reads
                guest = await harness.pod(number)
                job = harness.queue()
                assert (await harness.poll(guest, wait=20)).status == 200
                await harness.clock.sleep(1.7)
                await harness.end_pod(guest, "Failed")
                assert (await harness.report_stopped(guest.name, token)).status == 204
                while (row := harness.job(job))["state"] != "queued" or not row["verified"]:
                    await harness.clock.sleep(0.1)
                read, requeued = harness.rows(
                    "SELECT at FROM transitions WHERE subject = 'job' ORDER BY id DESC LIMIT 2"
                )
                waits.append((read["at"] - requeued["at"]).total_seconds())
                harness.github.cancel_job(job)
                await harness.clock.sleep(1)
        assert max(waits) <= 1.2

    play(scenario, database_url, app_keys)
