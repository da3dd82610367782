"""No address that GitHub could reach: events are read from GitHub's own log, and a job waits for a pull at most."""

from typing import Any

import pytest
from tests.dispatch.dispatchworld import LABELS, SECRET, Between, Lines, World, play
from tests.dispatch.test_dispatch_intake import event, send

from runyard.db.contract import DatabaseError
from runyard.embedded.github.identity import KeyPair
from runyard.github.app import TokenAuth
from runyard.github.errors import Unreachable
from runyard.http.errors import NotSent
from runyard.http.messages import Request, Response
from runyard.parts import server
from runyard.telemetry.catalogue import TUIST_RUNNERS_RECOVERY_COUNT

TOKEN = "github_pat_0123456789"


def fetched(world: World, since: int) -> list[str]:
    paths = [request.path for request in world.github_wire.requests[since:]]
    return [path for path in paths if "/hook/deliveries/" in path]


def test_a_job_runs_although_no_webhook_can_arrive(database_url: str, app_keys: KeyPair) -> None:
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
        await world.server.puller.step()
        assert len(world.rows("SELECT * FROM jobs")) == 250
        before = len(world.github_wire.requests)
        await world.server.puller.step()
        assert len(world.github_wire.requests) == before + 1
        world.queue()
        await world.github.settle()
        await world.server.puller.step()
        assert len(fetched(world, before)) == 1

    play(scenario, database_url, app_keys, intake="pull")


def test_one_replica_pulls_and_another_takes_over(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        world.deliver = False
        other = server.wire(world.deps(name="server-2"))
        await world.server.puller.step()
        job = await world.queued()
        before = len(world.github_wire.requests)
        await other.puller.step()
        assert len(world.github_wire.requests) == before and not world.job(job)
        await world.clock.sleep(10)
        await other.puller.step()
        assert world.job(job)["state"] == "queued"

    play(scenario, database_url, app_keys, intake="pull")


def test_what_lies_too_far_back_for_a_pull_is_the_audits(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        world.deliver = False
        jobs = [world.queue("mona/dots") for _ in range(250)]
        await world.github.settle()
        await world.server.puller.step()
        assert world.job(jobs[-1]) and not world.job(jobs[0])
        await world.server.audit.step()
        assert all(world.job(job) for job in jobs)

    play(scenario, database_url, app_keys, intake="pull", pull_pages=1, audit_repositories=0)


def test_a_webhook_that_does_arrive_is_taken_too(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await world.queued()
        before = len(world.github_wire.requests)
        await world.server.puller.step()
        assert fetched(world, before) == []
        assert len(world.rows("SELECT * FROM jobs")) == 1

    play(scenario, database_url, app_keys, intake="pull")


def test_a_github_that_is_away_is_an_error_of_the_loop_and_nothing_is_lost(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        async def away(request: Request, onward: Any) -> Any:
            raise NotSent("no route")

        world.deliver = False
        job = await world.queued()
        world.github_wire.tamper = away
        with pytest.raises(Unreachable):
            await world.server.puller.step()
        world.github_wire.tamper = None
        await world.server.puller.step()
        assert world.job(job)["state"] == "queued"

    play(scenario, database_url, app_keys, intake="pull")


@pytest.mark.parametrize("fault", ["GitHub cannot show it", "the database refuses it"])
def test_a_delivery_that_fails_again_and_again_is_tried_three_times_and_costs_no_further_pages(
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
        await world.server.puller.step()
        bad = await world.queued()
        if fault == "GitHub cannot show it":
            world.github_wire.tamper = unreadable
            puller = world.server.puller
        else:
            puller = server.wire(world.deps(database=Between(world.database, refuse))).puller
        before = len(world.github_wire.requests)
        for _ in range(100):
            await world.clock.sleep(world.settings.pull_every)
            await puller.step()
        assert len(fetched(world, before)) == 3
        assert len(world.github_wire.requests) - before <= 100 + 2 * 3
        told = [line["tries"] for line in world.log if "error" in line]
        assert told == [1, 2, 3]
        assert not world.job(bad)

    play(scenario, database_url, app_keys, intake="pull", log=Lines())


def test_a_delivery_that_github_could_not_show_for_a_moment_is_not_lost(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        world.deliver = False
        job = await world.queued()
        world.github.faults.fail_next("/app/hook/deliveries/", 500, times=2)
        for _ in range(100):
            await world.server.puller.step()
            await world.clock.sleep(world.settings.pull_every)
        assert world.job(job)["state"] == "queued"

    play(scenario, database_url, app_keys, intake="pull")


# ── a token for one repository ──────────────────────────────────────────────────────────────────


def token_deps(world: World, **changes: Any) -> Any:
    world.github.allow_token(TOKEN, repo="acme/app")
    auth = TokenAuth(TOKEN, repository_name="acme/app")
    return world.deps(auth=auth, app_id=0, app_key="", **changes)


@pytest.mark.parametrize("hook", [True, False], ids=["with a webhook", "without one"])
def test_a_token_for_one_repository_runs_its_jobs(
    database_url: str, app_keys: KeyPair, hook: bool
) -> None:
    async def scenario(world: World) -> None:
        if hook:
            world.github.add_hook("acme/app", url="https://ci.example/webhooks/github", secret="s")
        await world.pool()
        guest = await world.pod()
        changes = {name: getattr(token_deps(world), name) for name in ("auth", "app_id", "app_key")}
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


def test_a_repositorys_webhook_needs_no_installation_and_speaks_for_no_other(
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
