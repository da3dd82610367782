"""Setup and checks read the App, its installations and limits through GitHub's endpoints."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from runyard.github import errors
from runyard.github.app import AppAuth
from runyard.github.client import GitHub
from runyard.github.scope import organisation
from runyard.github.setup import convert_manifest
from runyard.http.messages import Request, Response, Stream

LABELS = ("macos",)
Onward = Callable[[], Awaitable[Response | Stream]]


def test_the_permissions_and_events_of_the_app_are_read(fleet: Any) -> None:
    async def scenario() -> None:
        app = await fleet.github.app()
        assert app.id == 4242 and app.events == ("workflow_job",)
        assert app.permissions["actions"] == "write"
        assert app.permissions["organization_self_hosted_runners"] == "write"
        (installed,) = await fleet.github.installations()
        assert installed.permissions == app.permissions
        assert (installed.account.login, installed.suspended_at) == ("Acme", None)

    asyncio.run(scenario())


def test_an_installation_is_absent_only_if_the_app_itself_can_be_read(fleet: Any) -> None:
    async def scenario() -> None:
        fleet.core.suspend(fleet.installation)
        found = await fleet.github.installation(fleet.installation)
        assert found.account.login == "Acme" and found.suspended_at, "suspended is not uninstalled"
        assert fleet.wire.count("/app") == 1
        assert await fleet.github.installation(999_999) is None
        assert [each.path for each in fleet.wire.requests[1:]] == [
            "/app/installations/999999",
            "/app",
        ]

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            return Response(status=404) if request.path == "/app" else await onward()

        fleet.wire.tamper = tamper
        with pytest.raises(errors.NotFound, match="the App"):
            await fleet.github.installation(999_999)

    asyncio.run(scenario())


def test_what_an_installation_may_see_is_listed_to_the_end(fleet: Any) -> None:
    async def scenario() -> None:
        for number in range(150):
            fleet.core.add_repo(f"Acme/repo-{number}")
        names = [each.full_name for each in await fleet.github.repositories(fleet.org)]
        assert len(names) == 152 and len(set(names)) == 152
        assert fleet.wire.count("/installation/repositories") == 2

    asyncio.run(scenario())


def test_runner_groups_are_an_organisations(fleet: Any) -> None:
    async def scenario() -> None:
        (group,) = await fleet.github.runner_groups(fleet.org)
        assert (group.id, group.name, group.default) == (1, "Default", True)
        assert not group.allows_public_repositories
        with pytest.raises(ValueError, match="organisation"):
            await fleet.github.runner_groups(fleet.repo)
        elsewhere = organisation("nobody", installation_id=fleet.installation)
        with pytest.raises(errors.NotFound) as missing:
            await fleet.github.runner_groups(elsewhere)
        assert missing.value.scope == "account"

    asyncio.run(scenario())


def test_reading_the_rate_limit_is_not_counted(fleet: Any) -> None:
    async def scenario() -> None:
        fleet.core.set_limits(primary_per_hour=100)
        await fleet.github.get_job(fleet.repo, 1)
        for _ in range(3):
            rate = await fleet.github.rate_limit(fleet.repo)
        assert (rate.limit, rate.remaining) == (100, 99)
        assert rate.reset > fleet.clock.t

    asyncio.run(scenario())


def test_a_run_is_cancelled_once(fleet: Any) -> None:
    async def scenario() -> None:
        job = fleet.core.queue_job("acme/app", LABELS)
        run = fleet.core.jobs()[job].run_id
        fleet.core.queue_job("acme/app", LABELS, run_id=run)
        assert await fleet.github.cancel_run(fleet.repo, run) is True
        assert {each.conclusion for each in fleet.core.jobs().values()} == {"cancelled"}
        assert await fleet.github.cancel_run(fleet.repo, run) is False
        with pytest.raises(errors.NotFound):
            await fleet.github.cancel_run(fleet.repo, 7)

    asyncio.run(scenario())


def test_a_job_that_is_run_again_is_another_job_of_its_run(fleet: Any) -> None:
    async def scenario() -> None:
        job = fleet.core.queue_job("acme/app", LABELS, job_name="build")
        with pytest.raises(errors.NotAllowed):
            await fleet.github.rerun_job(fleet.repo, job)  # its run is not over
        fleet.core.cancel_job(job)
        await fleet.github.rerun_job(fleet.repo, job)
        (again,) = await fleet.github.list_queued_jobs(fleet.repo)
        assert again.id != job and again.name == "build"
        first = await fleet.github.get_job(fleet.repo, job)
        assert (again.run_id, again.run_attempt, first.run_attempt) == (first.run_id, 2, 1)
        assert (first.workflow_name, first.head_branch) == ("practice", "main")
        assert len(first.head_sha) == 40

    asyncio.run(scenario())


def test_a_manifests_code_gives_an_app_once_and_its_key_works(fleet: Any) -> None:
    async def scenario() -> None:
        code = fleet.core.submit_manifest({"name": "My fleet", "default_events": ["workflow_job"]})
        made = await convert_manifest(fleet.wire, code)
        assert (made.id, made.slug) == (4242, "my-fleet")
        assert made.pem.startswith("-----BEGIN") and made.webhook_secret
        assert made.pem not in repr(made) and made.webhook_secret not in repr(made)
        with pytest.raises(errors.NotFound):
            await convert_manifest(fleet.wire, code)
        app = AppAuth(app_id=made.id, private_key=made.pem, clock=fleet.clock)
        github = GitHub(fleet.wire, app=app, clock=fleet.clock, budget=fleet.budget)
        assert (await github.app()).id == 4242
        assert (await fleet.github.app()).id == 4242  # the old key is not taken away by it

    asyncio.run(scenario())


@pytest.mark.parametrize("code", ["", "../app", "a b", "x" * 300, "ä"])
def test_an_invalid_manifest_code_is_not_sent(fleet: Any, code: str) -> None:
    with pytest.raises(errors.Rejected):
        asyncio.run(convert_manifest(fleet.wire, code))
    assert fleet.wire.requests == []


def test_an_answer_without_a_key_is_refused_and_not_quoted(fleet: Any) -> None:
    async def scenario() -> None:
        async def tamper(request: Any, onward: Any) -> Response:
            return Response(
                status=201, body=msgspec.json.encode({"id": 1, "webhook_secret": "hush"})
            )

        fleet.wire.tamper = tamper
        with pytest.raises(errors.Unreadable) as error:
            await convert_manifest(fleet.wire, "abc")
        assert "hush" not in str(error.value) and "abc" not in str(error.value)

    asyncio.run(scenario())
