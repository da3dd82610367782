"""A personal access token for one repository works there without an App, and nowhere else."""

import asyncio
from typing import Any

import pytest

from runyard.github import errors
from runyard.github.app import TokenAuth
from runyard.github.client import GitHub
from runyard.github.scope import organisation, repository
from runyard.github.views import Removal, read_job_event

TOKEN = "github_pat_0123456789"


def client(fleet: Any) -> GitHub:
    fleet.core.allow_token(TOKEN, repo="Acme/app")
    auth = TokenAuth(TOKEN, repository_name="acme/app")
    return GitHub(fleet.wire, app=auth, clock=fleet.clock, budget=fleet.budget)


def test_runners_are_made_and_deleted_without_an_app(fleet: Any) -> None:
    async def scenario() -> None:
        github = client(fleet)
        scope = github.only
        assert scope is not None and str(scope) == "repos/acme/app"
        made = await github.generate_jit(scope, name="mac-1", labels=("macos",))
        assert made.runner_id in fleet.core.runners()
        assert await github.delete_runner(scope, made.runner_id) is Removal.DELETED
        assert fleet.wire.count("access_tokens") == 0

    asyncio.run(scenario())


def test_no_request_is_sent_outside_of_the_repository(fleet: Any) -> None:
    async def scenario() -> None:
        github = client(fleet)
        for scope in (
            organisation("acme", installation_id=TokenAuth.INSTALLATION),
            repository("acme/lib", installation_id=TokenAuth.INSTALLATION),
        ):
            with pytest.raises(errors.NotAllowed) as refused:
                await github.generate_jit(scope, name="mac-1", labels=("macos",))
            assert refused.value.scope == "account"
        with pytest.raises(errors.NotAllowed, match="App"):
            await github.app()
        assert fleet.wire.requests == []

    asyncio.run(scenario())


def test_a_token_that_is_not_accepted_is_tried_once(fleet: Any) -> None:
    async def scenario() -> None:
        github = client(fleet)
        bad = GitHub(
            fleet.wire,
            app=TokenAuth("ghp_wrong", repository_name="acme/app"),
            clock=fleet.clock,
            budget=fleet.budget,
        )
        assert github.only is not None
        with pytest.raises(errors.Unauthorized):
            await bad.get_job(github.only, 1)
        assert len(fleet.wire.requests) == 1

    asyncio.run(scenario())


def test_deliveries_are_those_of_our_webhook(fleet: Any) -> None:
    async def scenario() -> None:
        github = client(fleet)
        fleet.core.add_hook("acme/app", url="https://chat.example/hook", secret="x")
        with pytest.raises(errors.NoHook):
            await github.deliveries()
        fleet.core.add_hook("acme/app", url="https://ci.example/webhooks/github", secret="y")
        job = fleet.core.queue_job("acme/app", ("macos",))
        fleet.core.queue_job("acme/lib", ("macos",))
        await fleet.core.settle()
        (item,) = (await github.deliveries()).items
        assert not item.succeeded  # no server listens there
        full = await github.delivery(item.id)
        assert full is not None
        event = read_job_event(full.payload)
        assert (event.workflow_job.id, event.installation) == (job, None)
        assert await github.redeliver(item.id) is True
        await fleet.core.settle()
        assert len((await github.deliveries()).items) == 2
        assert all(request.path.startswith("/repos/") for request in fleet.wire.requests)

    asyncio.run(scenario())


def test_a_deleted_webhook_is_searched_again(fleet: Any) -> None:
    async def scenario() -> None:
        github = client(fleet)
        fleet.core.add_hook("acme/app", url="https://ci.example/webhooks/github/", secret="y")
        await github.deliveries()
        asked = fleet.wire.count("/hooks")
        fleet.core.faults.fail_next("/repos/acme/app/hooks/", 404)
        with pytest.raises(errors.NotFound):
            await github.deliveries()
        await github.deliveries()
        assert fleet.wire.count("/hooks") == asked + 3

    asyncio.run(scenario())


@pytest.mark.parametrize("token", ["", "a b", "tok\nen", "tökén"])
def test_an_invalid_token_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(ValueError, match="no token") as refused:
        TokenAuth(token, repository_name="acme/app")
    assert not token or token not in str(refused.value)


def test_a_token_is_shown_nowhere() -> None:
    assert TOKEN not in repr(TokenAuth(TOKEN, repository_name="acme/app"))
