"""Pull mode: events are read from GitHub's log, and a job waits for one interval at most."""

from typing import Any

import pytest
from tests.dispatch.dispatchharness import LABELS, SECRET, Between, Harness, Lines, play
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


def fetched(harness: Harness, since: int) -> list[str]:
    paths = [request.path for request in harness.github_wire.requests[since:]]
    return [path for path in paths if "/hook/deliveries/" in path]


def test_a_job_runs_without_webhooks(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        harness.deliver = False
        await harness.pool()
        guest = await harness.pod()
        async with harness.running():
            harness.deliver = False
            await harness.clock.sleep(5)
            queued_at = harness.clock.now()
            job = harness.queue(duration=30.0)
            answer = await harness.poll(guest, wait=25.0)
            assert answer.status == 200
            assert harness.clock.now() - queued_at < 1.1 * harness.settings.pull_every + 0.2
            session = harness.github.connect(answer.json()["encoded_jit_config"])
            await harness.clock.sleep(10)
            assert harness.slot(guest)["state"] == "executing"
            session.finish("success")  # type: ignore[union-attr]  # it was accepted
            await harness.clock.sleep(10)
            assert (harness.job(job)["state"], harness.slot(guest)["state"]) == ("done", "draining")
        assert harness.meter.get(TUIST_RUNNERS_RECOVERY_COUNT, kind="redelivered") is None
        assert harness.github.jobs()[job].executions == 1

    play(scenario, database_url, app_keys, intake="pull")


class LevelledLines(Lines):
    """Lines with their levels."""

    def warning(self, event: str, **fields: Any) -> None:  # type: ignore[override]  # an attribute there
        self.write(event, level="warning", **fields)


@pytest.mark.parametrize("intake", ["pull", "webhook"])
def test_what_happened_before_the_first_start_is_lost_only_where_webhooks_are_expected(
    intake: str, database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        harness.deliver = False
        job = harness.queue()
        await harness.github.settle()
        await harness.server.intake.audit.step()
        assert harness.job(job)["state"] == "queued"
        warnings = [line for line in harness.log if line.get("level") == "warning"]
        counted = harness.meter.get(TUIST_RUNNERS_RECOVERY_COUNT, kind="redelivered")
        assert (len(warnings), counted) == ((0, None) if intake == "pull" else (1, 1.0))

    play(scenario, database_url, app_keys, intake=intake, log=LevelledLines())


def test_a_pull_with_nothing_new_costs_one_request(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        harness.deliver = False
        for _ in range(250):
            harness.queue()
        await harness.github.settle()
        await harness.server.intake.puller.step()
        assert len(harness.rows("SELECT * FROM jobs")) == 250
        before = len(harness.github_wire.requests)
        await harness.server.intake.puller.step()
        assert len(harness.github_wire.requests) == before + 1
        harness.queue()
        await harness.github.settle()
        await harness.server.intake.puller.step()
        assert len(fetched(harness, before)) == 1

    play(scenario, database_url, app_keys, intake="pull")


def test_one_replica_pulls_and_another_takes_over(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        harness.deliver = False
        other = server.wire(harness.deps(name="server-2"))
        await harness.server.intake.puller.step()
        job = await harness.queued()
        before = len(harness.github_wire.requests)
        await other.intake.puller.step()
        assert len(harness.github_wire.requests) == before and not harness.job(job)
        await harness.clock.sleep(10)
        await other.intake.puller.step()
        assert harness.job(job)["state"] == "queued"

    play(scenario, database_url, app_keys, intake="pull")


def test_deliveries_beyond_the_pull_are_found_by_the_audit(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        harness.deliver = False
        jobs = [harness.queue("mona/dots") for _ in range(250)]
        await harness.github.settle()
        await harness.server.intake.puller.step()
        assert harness.job(jobs[-1]) and not harness.job(jobs[0])
        await harness.server.intake.audit.step()
        assert all(harness.job(job) for job in jobs)

    play(scenario, database_url, app_keys, intake="pull", pull_pages=1, audit_repositories=0)


def test_a_webhook_is_accepted_in_pull_mode_too(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.queued()
        before = len(harness.github_wire.requests)
        await harness.server.intake.puller.step()
        assert fetched(harness, before) == []
        assert len(harness.rows("SELECT * FROM jobs")) == 1

    play(scenario, database_url, app_keys, intake="pull")


def test_an_outage_of_github_fails_the_loop_and_loses_nothing(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        async def away(request: Request, onward: Any) -> Any:
            raise NotSent("no route")

        harness.deliver = False
        job = await harness.queued()
        harness.github_wire.tamper = away
        with pytest.raises(Unreachable):
            await harness.server.intake.puller.step()
        harness.github_wire.tamper = None
        await harness.server.intake.puller.step()
        assert harness.job(job)["state"] == "queued"

    play(scenario, database_url, app_keys, intake="pull")


@pytest.mark.parametrize("fault", ["GitHub cannot show it", "the database refuses it"])
def test_a_delivery_that_keeps_failing_is_fetched_three_times(
    database_url: str, app_keys: KeyPair, fault: str
) -> None:
    async def scenario(harness: Harness) -> None:
        async def unreadable(request: Request, onward: Any) -> Any:
            shown = "/hook/deliveries/" in request.path
            return Response(status=200, body=b"{") if shown else await onward()

        async def refuse(name: str) -> None:
            if name == "webhook":
                raise DatabaseError("not this one")

        harness.deliver = False
        for _ in range(150):
            harness.queue("mona/dots")
        await harness.github.settle()
        await harness.server.intake.puller.step()
        bad = await harness.queued()
        if fault == "GitHub cannot show it":
            harness.github_wire.tamper = unreadable
            puller = harness.server.intake.puller
        else:
            puller = server.wire(
                harness.deps(database=Between(harness.database, refuse))
            ).intake.puller
        before = len(harness.github_wire.requests)
        for _ in range(100):
            await harness.clock.sleep(harness.settings.pull_every)
            await puller.step()
        assert len(fetched(harness, before)) == 3
        assert len(harness.github_wire.requests) - before <= 100 + 2 * 3
        tries = [line["tries"] for line in harness.log if "error" in line]
        assert tries == [1, 2, 3]
        assert not harness.job(bad)

    play(scenario, database_url, app_keys, intake="pull", log=Lines())


def test_a_delivery_that_cannot_be_fetched_for_a_moment_is_not_lost(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        harness.deliver = False
        job = await harness.queued()
        harness.github.faults.fail_next("/app/hook/deliveries/", 500, times=2)
        for _ in range(100):
            await harness.server.intake.puller.step()
            await harness.clock.sleep(harness.settings.pull_every)
        assert harness.job(job)["state"] == "queued"

    play(scenario, database_url, app_keys, intake="pull")


# ── a token for one repository ──────────────────────────────────────────────────────────────────


def token_deps(harness: Harness, **changes: Any) -> Any:
    harness.github.allow_token(TOKEN, repo="acme/app")
    auth = TokenAuth(TOKEN, repository_name="acme/app")
    return harness.deps(auth=auth, **changes)


@pytest.mark.parametrize("hook", [True, False], ids=["with a webhook", "without one"])
def test_a_token_for_one_repository_runs_its_jobs(
    database_url: str, app_keys: KeyPair, hook: bool
) -> None:
    async def scenario(harness: Harness) -> None:
        if hook:
            harness.github.add_hook(
                "acme/app", url="https://ci.example/webhooks/github", secret="s"
            )
        await harness.pool()
        guest = await harness.pod()
        changes = {"auth": token_deps(harness).auth}
        async with harness.running(**changes):
            harness.deliver = False
            job = harness.queue("acme/app", duration=30.0)
            elsewhere = harness.queue("acme/lib")
            answer = await harness.poll(guest, wait=25.0)
            assert answer.status == 200
            assert harness.slot(guest)["scope"] == "repos/acme/app"
            session = harness.github.connect(answer.json()["encoded_jit_config"])
            await harness.clock.sleep(10)
            assert (harness.slot(guest)["state"], harness.job(job)["state"]) == (
                "executing",
                "running",
            )
            session.finish("success")  # type: ignore[union-attr]  # it was accepted
            await harness.clock.sleep(10)
            assert (harness.job(job)["state"], harness.slot(guest)["state"]) == ("done", "draining")
        assert harness.job(elsewhere) == {}
        assert not any(r.path[:4] == "/app" for r in harness.github_wire.requests)

    play(scenario, database_url, app_keys, intake="pull")


def test_a_repositorys_webhook_needs_no_installation_and_is_accepted_for_it_only(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        harness.server = server.wire(token_deps(harness))
        body = event("queued")
        del body["installation"]
        assert (await send(harness, body, secret=SECRET)).json() == {"outcome": "applied"}
        (tenant,) = harness.rows("SELECT * FROM tenants")
        assert (tenant["installation_id"], tenant["kind"]) == (TokenAuth.INSTALLATION, "User")
        other = event("queued", 6, repo="acme/lib")
        assert (await send(harness, other, "g-2")).status == 400
        assert harness.job(6) == {} and list(harness.job(5)["labels"]) == list(LABELS)

    play(scenario, database_url, app_keys)
