"""Pull mode: events are read from GitHub's log, and a job waits for one interval at most."""

from typing import Any

import pytest
from tests.dispatch.dispatchworld import LABELS, SECRET, Between, Lines, World, play
from tests.dispatch.test_dispatch_intake import event, send

from runyard.components import server
from runyard.db.contract import DatabaseError
from runyard.embedded.github.identity import KeyPair
from runyard.github.app import TokenAuth
from runyard.github.errors import Unreachable
from runyard.http.errors import NotSent
from runyard.http.messages import Request, Response
from runyard.telemetry.catalogue import TUIST_RUNNERS_RECOVERY_COUNT

TOKEN = "github_pat_0123456789"


def fetched(world: World, since: int) -> list[str]:
    paths = [request.path for request in world.github_wire.requests[since:]]
    return [path for path in paths if "/hook/deliveries/" in path]


def test_a_job_runs_without_webhooks(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        world.deliver = False
        await world.pool()
        guest = await world.pod()
        async with world.running():
            world.deliver = False
            await world.clock.sleep(5)
            queued_at = world.clock.now()
            job = world.queue(duration=30.0)
            answer = await world.poll(guest, wait=25.0)
            assert answer.status == 200
            assert world.clock.now() - queued_at < 1.1 * world.settings.pull_every + 0.2
            session = world.github.connect(answer.json()["encoded_jit_config"])
            await world.clock.sleep(10)
            assert world.slot(guest)["state"] == "executing"
            session.finish("success")  # type: ignore[union-attr]  # it was accepted
            await world.clock.sleep(10)
            assert (world.job(job)["state"], world.slot(guest)["state"]) == ("done", "draining")
        assert world.meter.get(TUIST_RUNNERS_RECOVERY_COUNT, kind="redelivered") is None
        assert world.github.jobs()[job].executions == 1

    play(scenario, database_url, app_keys, intake="pull")


def test_a_pull_with_nothing_new_costs_one_request(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        world.deliver = False
        for _ in range(250):
            world.queue()
        await world.github.settle()
        await world.server.intake.puller.step()
        assert len(world.rows("SELECT * FROM jobs")) == 250
        before = len(world.github_wire.requests)
        await world.server.intake.puller.step()
        assert len(world.github_wire.requests) == before + 1
        world.queue()
        await world.github.settle()
        await world.server.intake.puller.step()
        assert len(fetched(world, before)) == 1

    play(scenario, database_url, app_keys, intake="pull")


def test_one_replica_pulls_and_another_takes_over(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        world.deliver = False
        other = server.wire(world.deps(name="server-2"))
        await world.server.intake.puller.step()
        job = await world.queued()
        before = len(world.github_wire.requests)
        await other.intake.puller.step()
        assert len(world.github_wire.requests) == before and not world.job(job)
        await world.clock.sleep(10)
        await other.intake.puller.step()
        assert world.job(job)["state"] == "queued"

    play(scenario, database_url, app_keys, intake="pull")


def test_deliveries_beyond_the_pull_are_found_by_the_audit(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        world.deliver = False
        jobs = [world.queue("mona/dots") for _ in range(250)]
        await world.github.settle()
        await world.server.intake.puller.step()
        assert world.job(jobs[-1]) and not world.job(jobs[0])
        await world.server.intake.audit.step()
        assert all(world.job(job) for job in jobs)

    play(scenario, database_url, app_keys, intake="pull", pull_pages=1, audit_repositories=0)


def test_a_webhook_is_accepted_in_pull_mode_too(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await world.queued()
        before = len(world.github_wire.requests)
        await world.server.intake.puller.step()
        assert fetched(world, before) == []
        assert len(world.rows("SELECT * FROM jobs")) == 1

    play(scenario, database_url, app_keys, intake="pull")


def test_an_outage_of_github_fails_the_loop_and_loses_nothing(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        async def away(request: Request, onward: Any) -> Any:
            raise NotSent("no route")

        world.deliver = False
        job = await world.queued()
        world.github_wire.tamper = away
        with pytest.raises(Unreachable):
            await world.server.intake.puller.step()
        world.github_wire.tamper = None
        await world.server.intake.puller.step()
        assert world.job(job)["state"] == "queued"

    play(scenario, database_url, app_keys, intake="pull")


@pytest.mark.parametrize("fault", ["GitHub cannot show it", "the database refuses it"])
def test_a_delivery_that_keeps_failing_is_fetched_three_times(
    database_url: str, app_keys: KeyPair, fault: str
) -> None:
    async def scenario(world: World) -> None:
        async def unreadable(request: Request, onward: Any) -> Any:
            shown = "/hook/deliveries/" in request.path
            return Response(status=200, body=b"{") if shown else await onward()

        async def refuse(name: str) -> None:
            if name == "webhook":
                raise DatabaseError("not this one")

        world.deliver = False
        for _ in range(150):
            world.queue("mona/dots")
        await world.github.settle()
        await world.server.intake.puller.step()
        bad = await world.queued()
        if fault == "GitHub cannot show it":
            world.github_wire.tamper = unreadable
            puller = world.server.intake.puller
        else:
            puller = server.wire(world.deps(database=Between(world.database, refuse))).intake.puller
        before = len(world.github_wire.requests)
        for _ in range(100):
            await world.clock.sleep(world.settings.pull_every)
            await puller.step()
        assert len(fetched(world, before)) == 3
        assert len(world.github_wire.requests) - before <= 100 + 2 * 3
        tries = [line["tries"] for line in world.log if "error" in line]
        assert tries == [1, 2, 3]
        assert not world.job(bad)

    play(scenario, database_url, app_keys, intake="pull", log=Lines())


def test_a_delivery_that_cannot_be_fetched_for_a_moment_is_not_lost(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        world.deliver = False
        job = await world.queued()
        world.github.faults.fail_next("/app/hook/deliveries/", 500, times=2)
        for _ in range(100):
            await world.server.intake.puller.step()
            await world.clock.sleep(world.settings.pull_every)
        assert world.job(job)["state"] == "queued"

    play(scenario, database_url, app_keys, intake="pull")


# ── a token for one repository ──────────────────────────────────────────────────────────────────


def token_deps(world: World, **changes: Any) -> Any:
    world.github.allow_token(TOKEN, repo="acme/app")
    auth = TokenAuth(TOKEN, repository_name="acme/app")
    return world.deps(auth=auth, **changes)


@pytest.mark.parametrize("hook", [True, False], ids=["with a webhook", "without one"])
def test_a_token_for_one_repository_runs_its_jobs(
    database_url: str, app_keys: KeyPair, hook: bool
) -> None:
    async def scenario(world: World) -> None:
        if hook:
            world.github.add_hook("acme/app", url="https://ci.example/webhooks/github", secret="s")
        await world.pool()
        guest = await world.pod()
        changes = {"auth": token_deps(world).auth}
        async with world.running(**changes):
            world.deliver = False
            job = world.queue("acme/app", duration=30.0)
            elsewhere = world.queue("acme/lib")
            answer = await world.poll(guest, wait=25.0)
            assert answer.status == 200
            assert world.slot(guest)["scope"] == "repos/acme/app"
            session = world.github.connect(answer.json()["encoded_jit_config"])
            await world.clock.sleep(10)
            assert (world.slot(guest)["state"], world.job(job)["state"]) == ("executing", "running")
            session.finish("success")  # type: ignore[union-attr]  # it was accepted
            await world.clock.sleep(10)
            assert (world.job(job)["state"], world.slot(guest)["state"]) == ("done", "draining")
        assert world.job(elsewhere) == {}
        assert not any(r.path[:4] == "/app" for r in world.github_wire.requests)

    play(scenario, database_url, app_keys, intake="pull")


def test_a_repositorys_webhook_needs_no_installation_and_is_accepted_for_it_only(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        world.server = server.wire(token_deps(world))
        body = event("queued")
        del body["installation"]
        assert (await send(world, body, secret=SECRET)).json() == {"outcome": "applied"}
        (tenant,) = world.rows("SELECT * FROM tenants")
        assert (tenant["installation_id"], tenant["kind"]) == (TokenAuth.INSTALLATION, "User")
        other = event("queued", 6, repo="acme/lib")
        assert (await send(world, other, "g-2")).status == 400
        assert world.job(6) == {} and list(world.job(5)["labels"]) == list(LABELS)

    play(scenario, database_url, app_keys)
