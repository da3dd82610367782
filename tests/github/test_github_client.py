"""Each answer maps to a value or to the right error, in both scopes."""

import asyncio
from typing import Any

import pytest

from runyard.github import errors
from runyard.github.scope import organisation, repository
from runyard.github.views import MintedRunner, Removal
from runyard.http.errors import NotSent, OutcomeUnknown
from runyard.http.messages import Response, Stream, json_response

LABELS = ("self-hosted", "macos")


async def mint(fleet: Any, name: str = "pod-a", *, scope: Any = None) -> MintedRunner:
    minted: MintedRunner = await fleet.github.generate_jit(
        scope or fleet.org, name=name, labels=LABELS, work_folder="/Users/runner/work"
    )
    return minted


def test_mint_find_delete_in_both_scopes(fleet: Any) -> None:
    async def scenario() -> None:
        for scope in (fleet.org, fleet.repo):
            minted = await mint(fleet, scope=scope)
            found = await fleet.github.find_runner(scope, "pod-a")
            assert found is not None and found.id == minted.runner_id
            assert not found.online and not found.busy
            assert [label.name for label in found.labels] == list(LABELS)
            assert await fleet.github.delete_runner(scope, minted.runner_id) is Removal.DELETED
            assert await fleet.github.delete_runner(scope, minted.runner_id) is Removal.ABSENT
            assert await fleet.github.find_runner(scope, "pod-a") is None

    asyncio.run(scenario())


def test_a_registration_of_one_scope_is_absent_in_the_other(fleet: Any) -> None:
    async def scenario() -> None:
        minted = await mint(fleet, scope=fleet.repo)
        assert await fleet.github.delete_runner(fleet.org, minted.runner_id) is Removal.ABSENT
        assert await fleet.github.find_runner(fleet.org, "pod-a") is None
        assert await fleet.github.find_runner(fleet.repo, "pod-a") is not None

    asyncio.run(scenario())


def test_a_busy_runner_is_not_deleted(fleet: Any) -> None:
    async def scenario() -> None:
        minted = await mint(fleet)
        session = fleet.core.connect(minted.encoded_jit_config)
        job_id = fleet.core.queue_job("acme/app", ("macos",))
        assert await fleet.github.delete_runner(fleet.org, minted.runner_id) is Removal.BUSY
        view = await fleet.github.find_runner(fleet.org, "pod-a")
        assert view is not None and view.busy and view.online
        job = await fleet.github.get_job(fleet.repo, job_id)
        assert (job.status, job.runner_id, job.runner_name) == (
            "in_progress",
            minted.runner_id,
            "pod-a",
        )
        session.finish("success")
        assert await fleet.github.delete_runner(fleet.org, minted.runner_id) is Removal.ABSENT

    asyncio.run(scenario())


def test_a_personal_account_has_no_organisation_and_the_repository_serves(fleet: Any) -> None:
    async def scenario() -> None:
        installation = fleet.core.install("mona", kind="User")
        fleet.core.add_repo("mona/dots")
        with pytest.raises(errors.NotFound) as refusal:
            await mint(fleet, scope=organisation("mona", installation_id=installation))
        assert refusal.value.scope == "account"
        scope = repository("mona/dots", installation_id=installation)
        assert (await mint(fleet, scope=scope)).runner_id > 0

    asyncio.run(scenario())


def test_a_mint_with_a_lost_answer_is_unknown_and_found_by_name(fleet: Any) -> None:
    async def scenario() -> None:
        await fleet.github.list_runners(fleet.org)

        async def lose(request: Any, onward: Any) -> Any:
            await onward()
            raise OutcomeUnknown("cut")

        fleet.wire.tamper = lose
        with pytest.raises(errors.NoAnswer):
            await mint(fleet)
        fleet.wire.tamper = None
        with pytest.raises(errors.NameTaken) as again:
            await mint(fleet)
        assert isinstance(again.value, errors.Unknown)
        ghost = await fleet.github.find_runner(fleet.org, "pod-a")
        assert ghost is not None
        assert await fleet.github.delete_runner(fleet.org, ghost.id) is Removal.DELETED
        await mint(fleet)

    asyncio.run(scenario())


def test_a_503_after_the_runner_was_created_is_unknown(fleet: Any) -> None:
    async def scenario() -> None:
        fleet.core.faults.fail_after_mint(503)
        with pytest.raises(errors.ServerFailed):
            await mint(fleet)
        assert await fleet.github.find_runner(fleet.org, "pod-a") is not None

    asyncio.run(scenario())


def test_a_request_that_never_left_is_definite(fleet: Any) -> None:
    async def scenario() -> None:
        await fleet.github.list_runners(fleet.org)

        async def refuse(request: Any, onward: Any) -> Any:
            raise NotSent("connection refused")

        fleet.wire.tamper = refuse
        with pytest.raises(errors.Unreachable) as problem:
            await mint(fleet)
        assert isinstance(problem.value, errors.Definite)
        fleet.wire.tamper = None
        await mint(fleet)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("fault", "scope"),
    [
        pytest.param(OutcomeUnknown("cut"), "none", id="cut"),
        pytest.param(NotSent("refused"), "none", id="refused"),
        pytest.param(503, "none", id="503"),
        pytest.param(404, "account", id="uninstalled"),
        pytest.param(403, "account", id="suspended"),
    ],
)
def test_a_mint_that_got_no_token_was_never_made(fleet: Any, fault: Any, scope: str) -> None:
    async def scenario() -> None:
        async def spoil(request: Any, onward: Any) -> Any:
            if "access_tokens" not in request.path:
                return await onward()
            if isinstance(fault, Exception):
                raise fault
            return json_response(fault, {"message": "no"})

        fleet.wire.tamper = spoil
        with pytest.raises(errors.NoToken) as problem:
            await mint(fleet)
        assert isinstance(problem.value, errors.Definite)
        assert problem.value.scope == scope
        assert fleet.wire.count("generate-jitconfig") == 0

    asyncio.run(scenario())


def test_a_rejected_key_is_distinguished_from_a_missing_token(fleet: Any) -> None:
    async def scenario() -> None:
        fleet.core.faults.fail_next("/app/installations/", 401, times=2)
        with pytest.raises(errors.Unauthorized) as problem:
            await mint(fleet)
        assert isinstance(problem.value, errors.Definite) and problem.value.scope == "none"
        assert fleet.wire.count("generate-jitconfig") == 0
        await mint(fleet)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("status", "kind", "on_org", "on_repo"),
    [
        (400, errors.Rejected, "job", "job"),
        (401, errors.Unauthorized, "account", "account"),
        (403, errors.NotAllowed, "account", "repository"),
        (404, errors.NotFound, "account", "repository"),
        (408, errors.ServerFailed, "none", "none"),
        (409, errors.NameTaken, "job", "job"),
        (422, errors.Rejected, "job", "job"),
        (429, errors.RateLimited, "account", "account"),
        (500, errors.ServerFailed, "none", "none"),
        (502, errors.ServerFailed, "none", "none"),
        (503, errors.ServerFailed, "none", "none"),
        (504, errors.ServerFailed, "none", "none"),
        (302, errors.Unreadable, "none", "none"),
    ],
)
def test_every_status_of_a_mint_has_its_conclusion(
    fleet: Any, status: int, kind: type[errors.GitHubError], on_org: str, on_repo: str
) -> None:
    async def scenario() -> None:
        for scope, excludes in ((fleet.org, on_org), (fleet.repo, on_repo)):
            fleet.core.faults.fail_next(f"/{scope}", status, 2 if status == 401 else 1)
            with pytest.raises(kind) as problem:
                await mint(fleet, scope=scope)
            assert type(problem.value) is kind
            assert (problem.value.status, problem.value.scope) == (status, excludes)
            fleet.clock.t += 61  # a limit without a time blocks for a minute
        assert not fleet.core.runners()

    asyncio.run(scenario())


@pytest.mark.parametrize("status", [403, 409, 500, 503])
def test_a_failed_fence_is_neither_deleted_nor_absent(fleet: Any, status: int) -> None:
    async def scenario() -> None:
        minted = await mint(fleet)
        fleet.core.faults.fail_next("/orgs", status)
        with pytest.raises(errors.GitHubError):
            await fleet.github.delete_runner(fleet.org, minted.runner_id)
        assert minted.runner_id in fleet.core.runners()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'{"runner":{}}', b'{"runner":{"id":1}}', b"\xff\xfe", b"null"],
)
def test_a_success_that_cannot_be_read_is_unknown(fleet: Any, body: bytes) -> None:
    async def scenario() -> None:
        await fleet.github.list_runners(fleet.org)

        async def garble(request: Any, onward: Any) -> Any:
            return Response(status=201, body=body)

        fleet.wire.tamper = garble
        with pytest.raises(errors.Unreadable) as problem:
            await mint(fleet)
        assert isinstance(problem.value, errors.Unknown)

    asyncio.run(scenario())


def test_a_stream_is_closed_and_is_an_unreadable_answer(fleet: Any) -> None:
    async def scenario() -> None:
        closed: list[bool] = []

        async def chunks() -> Any:
            yield b""

        async def stream(request: Any, onward: Any) -> Any:
            return Stream(chunks(), on_close=lambda: closed.append(True))

        await fleet.github.list_runners(fleet.org)
        fleet.wire.tamper = stream
        with pytest.raises(errors.Unreadable):
            await mint(fleet)
        assert closed == [True]

    asyncio.run(scenario())


def test_a_repository_without_self_hosted_runners_is_excluded_alone(fleet: Any) -> None:
    async def scenario() -> None:
        fleet.core.add_repo("acme/app", runners_allowed=False)
        with pytest.raises(errors.NotAllowed) as refusal:
            await mint(fleet, scope=fleet.repo)
        assert refusal.value.scope == "repository"
        await mint(fleet, scope=repository("acme/lib", installation_id=fleet.installation))

    asyncio.run(scenario())


def test_a_suspended_installation_excludes_the_account(fleet: Any) -> None:
    async def scenario() -> None:
        fleet.core.suspend(fleet.installation)
        with pytest.raises(errors.NoToken) as refusal:
            await mint(fleet)
        assert refusal.value.scope == "account"

    asyncio.run(scenario())


def test_an_exhausted_hour_stops_requests_before_they_are_sent(fleet: Any) -> None:
    async def scenario() -> None:
        fleet.core.set_limits(primary_per_hour=3)
        for _ in range(3):
            await fleet.github.find_runner(fleet.org, "x")
        sent = len(fleet.wire.requests)
        with pytest.raises(errors.BudgetExhausted) as refusal:
            await fleet.github.find_runner(fleet.org, "x")
        assert len(fleet.wire.requests) == sent
        assert 3590 <= refusal.value.retry_after <= 3601
        fleet.clock.t += 3602
        await fleet.github.find_runner(fleet.org, "x")

    asyncio.run(scenario())


def test_a_secondary_limit_is_distinguished_from_not_allowed(fleet: Any) -> None:
    async def scenario() -> None:
        await fleet.github.list_runners(fleet.org)
        fleet.core.set_limits(points_per_minute=7)
        await mint(fleet)
        with pytest.raises(errors.RateLimited) as refusal:
            await mint(fleet, "pod-b")
        assert (refusal.value.status, refusal.value.retry_after) == (403, 60)
        assert await fleet_find(fleet, "pod-b") is errors.BudgetExhausted

    async def fleet_find(fleet: Any, name: str) -> Any:
        try:
            return await fleet.github.find_runner(fleet.org, name)
        except errors.GitHubError as error:
            return type(error)

    asyncio.run(scenario())


def test_a_rate_limit_without_headers_is_detected_by_its_message(fleet: Any) -> None:
    async def scenario() -> None:
        await fleet.github.list_runners(fleet.org)

        async def limit(request: Any, onward: Any) -> Any:
            return json_response(403, {"message": "You have exceeded a secondary rate limit"})

        fleet.wire.tamper = limit
        with pytest.raises(errors.RateLimited) as refusal:
            await mint(fleet)
        assert refusal.value.retry_after == 60

    asyncio.run(scenario())


def test_long_lists_are_read_to_their_end(fleet: Any) -> None:
    async def scenario() -> None:
        for number in range(205):
            await mint(fleet, f"pod-{number}")
        runners = await fleet.github.list_runners(fleet.org)
        assert [runner.name for runner in runners] == [f"pod-{n}" for n in range(205)]
        sent = len(fleet.wire.requests)
        found = await fleet.github.find_runner(fleet.org, "pod-204")
        assert found is not None and len(fleet.wire.requests) == sent + 1

    asyncio.run(scenario())


def test_a_runner_that_moves_between_two_pages_is_not_missed(fleet: Any) -> None:
    async def scenario() -> None:
        made = [await mint(fleet, f"pod-{number}") for number in range(102)]
        wanted = ("pod-3", "pod-100", "pod-999")

        async def shift(request: Any, onward: Any) -> Any:
            answer = await onward()
            if request.path.endswith("/actions/runners") and made:
                fleet.wire.tamper = (
                    None  # the first runner goes: the 101st is now on the first page
                )
                await fleet.github.delete_runner(fleet.org, made.pop(0).runner_id)
            return answer

        fleet.wire.tamper = shift
        found = await fleet.github.find_runners(fleet.org, wanted, purpose="audit")
        assert [runner.name for runner in found] == ["pod-3", "pod-100"]

    asyncio.run(scenario())


def test_names_in_a_short_list_cost_one_request(fleet: Any) -> None:
    async def scenario() -> None:
        for number in range(3):
            await mint(fleet, f"pod-{number}")
        sent = len(fleet.wire.requests)
        found = await fleet.github.find_runners(fleet.org, ("pod-2", "pod-9"), purpose="audit")
        assert [runner.name for runner in found] == ["pod-2"]
        assert len(fleet.wire.requests) == sent + 1

    asyncio.run(scenario())


def test_a_server_that_ignores_the_name_filter_hides_no_runner(fleet: Any) -> None:
    async def scenario() -> None:
        for number in range(150):
            await mint(fleet, f"pod-{number}")

        async def unfiltered(request: Any, onward: Any) -> Any:
            plain = tuple(pair for pair in request.query if pair[0] != "name")
            return await fleet.core.handle(
                type(request)(
                    method=request.method, path=request.path, query=plain, headers=request.headers
                )
            )

        fleet.wire.tamper = unfiltered
        found = await fleet.github.find_runner(fleet.org, "pod-149")
        assert found is not None and found.name == "pod-149"
        assert await fleet.github.find_runner(fleet.org, "pod-999") is None

    asyncio.run(scenario())


def test_queued_jobs_are_found_also_in_runs_that_have_begun(fleet: Any) -> None:
    async def scenario() -> None:
        first = fleet.core.queue_job("acme/app", LABELS)
        run_id = fleet.core.jobs()[first].run_id
        second = fleet.core.queue_job("acme/app", ("gpu",), run_id=run_id)
        third = fleet.core.queue_job("acme/app", ("gpu",))
        held = fleet.core.queue_job("acme/app", ("gpu",), waiting=True)
        fleet.core.queue_job("acme/lib", ("gpu",))
        minted = await mint(fleet)
        fleet.core.connect(minted.encoded_jit_config)
        queued = await fleet.github.list_queued_jobs(fleet.repo)
        assert [job.id for job in queued] == [second, third]
        assert (await fleet.github.get_job(fleet.repo, held)).status == "waiting"

    asyncio.run(scenario())


def test_a_job_cancelled_while_queued_never_had_a_runner(fleet: Any) -> None:
    async def scenario() -> None:
        job_id = fleet.core.queue_job("acme/app", LABELS)
        fleet.core.cancel_job(job_id)
        job = await fleet.github.get_job(fleet.repo, job_id)
        assert (job.status, job.conclusion) == ("completed", "cancelled")
        assert (job.runner_id, job.runner_name) == (None, None)
        other = repository("acme/lib", installation_id=fleet.installation)
        assert await fleet.github.get_job(other, job_id) is None

    asyncio.run(scenario())


def test_jobs_of_an_organisation_cannot_be_requested(fleet: Any) -> None:
    with pytest.raises(ValueError, match="repository"):
        asyncio.run(fleet.github.get_job(fleet.org, 1))


def test_the_time_of_the_last_answer_shows_an_outage(fleet: Any) -> None:
    async def scenario() -> None:
        assert fleet.github.last_answer is None
        await fleet.github.installations()
        before = fleet.github.last_answer
        fleet.clock.t += 100
        fleet.core.faults.outage = True
        with pytest.raises(errors.ServerFailed):
            await fleet.github.installations()
        assert fleet.github.last_answer == before
        fleet.core.faults.outage = False
        await fleet.github.installations()
        assert fleet.github.last_answer == fleet.clock.t

    asyncio.run(scenario())
