"""The job of a fork never looks trusted: hosts give the account's cache to every Pod that is not marked."""

import asyncio
import hashlib
import hmac
from typing import Any

import msgspec
import pytest
from tests.dispatch.dispatchharness import LABELS, SECRET, SPACE, Guest, Harness, Onward, play

from runyard.dispatch.origin import read_facts
from runyard.dispatch.plans.trust import RunFacts, decide, is_trusted, trust_of
from runyard.embedded.github.identity import KeyPair
from runyard.github.views import PullRequestView, RunView
from runyard.http.messages import Request, Response, Stream, json_response
from runyard.wire import names
from runyard.wire.paths import GITHUB_WEBHOOK
from runyard.wire.reasons_dispatch import Trust

OWN = {"id": 1, "full_name": "acme/app"}
FORK = {"id": 2, "full_name": "mallory/app"}
OWN_PULL = {"head": {"repo": OWN}, "author_association": "MEMBER"}
FORK_PULL = {"head": {"repo": FORK}, "author_association": "MEMBER"}


@pytest.mark.parametrize(
    ("facts", "trust"),
    [
        (RunFacts(event="push", head_repository="acme/app"), Trust.SAME_REPOSITORY),
        (RunFacts(event="push", head_repository="Acme/App"), Trust.SAME_REPOSITORY),
        (RunFacts(event="pull_request", head_repository="acme/app"), Trust.SAME_REPOSITORY),
        (RunFacts(event="pull_request", head_repository="mallory/app"), Trust.FORK),
        (RunFacts(event="push", head_repository="mallory/app"), Trust.FORK),
        (RunFacts(head_repository="mallory/app"), Trust.FORK),
        (RunFacts(event="pull_request_target", head_repository="acme/app"), Trust.PULL_REQUEST_TARGET),
        (RunFacts(event="pull_request_target"), Trust.PULL_REQUEST_TARGET),
        (RunFacts(event="issue_comment", head_repository="acme/app"), Trust.OPEN_EVENT),
        (RunFacts(event="workflow_run", head_repository="acme/app"), Trust.OPEN_EVENT),
        (RunFacts(event="an_event_of_next_year", head_repository="acme/app"), Trust.OPEN_EVENT),
        (RunFacts(event="dynamic", head_repository="acme/app"), Trust.OPEN_EVENT),
        (RunFacts(event="pull_request", head_repository="acme/app", association="NONE"), Trust.OUTSIDE_ACTOR),
        (RunFacts(event="push", head_repository="acme/app", association="member"), Trust.OUTSIDE_ACTOR),
        (RunFacts(event="pull_request", head_repository="acme/app", association="MEMBER"), Trust.SAME_REPOSITORY),
        (RunFacts(event="pull_request", head_repository="acme/app", actor="dependabot[bot]"), Trust.OUTSIDE_ACTOR),
        (RunFacts(event="push", head_repository="acme/app", pull_repository="mallory/app"), Trust.FORK),
        (RunFacts(event="pull_request", head_repository="mallory/app", pull_repository="acme/app"), Trust.FORK),
        (RunFacts(event="pull_request", pull_repository="acme/app"), Trust.SAME_REPOSITORY),
        (RunFacts(event="push"), Trust.UNKNOWN),
        (RunFacts(head_repository="acme/app"), Trust.UNKNOWN),
        (RunFacts(), Trust.UNKNOWN),
    ],
)  # fmt: skip
def test_only_code_of_the_repository_itself_is_trusted(facts: RunFacts, trust: Trust) -> None:
    assert decide(facts, repository="acme/app") is trust
    assert is_trusted(trust) == (trust is Trust.SAME_REPOSITORY)


@pytest.mark.parametrize("stored", ["", "a-code-of-another-release", "SAME-REPOSITORY"])
def test_an_unknown_code_is_not_trusted(stored: str) -> None:
    assert trust_of(stored) is Trust.UNKNOWN


def test_a_pull_request_whose_fork_was_deleted_is_not_trusted() -> None:
    deleted = read_facts(RunView(event="pull_request", head_repository=None), PullRequestView())
    assert decide(deleted, repository="acme/app") is Trust.UNKNOWN


# ── The whole dispatch ──────────────────────────────────────────────────────────────────────────


def labels_of(harness: Harness, guest: Guest) -> dict[str, str]:
    pod = harness.kube.find("pods", SPACE, guest.name)
    assert pod is not None
    return dict(pod["metadata"]["labels"])


def account_number(harness: Harness) -> int:
    """The number of acme, as the practice GitHub sends it in events."""
    sent = harness.github.attempts()[0].delivery.request(GITHUB_WEBHOOK)
    return int(msgspec.json.decode(sent.body)["organization"]["id"])


def answer_runs(harness: Harness, answer: Response) -> list[str]:
    """Answer every read of a run like this; returns the paths that were read."""
    reads: list[str] = []

    async def tamper(request: Request, onward: Onward) -> Response | Stream:
        if request.method == "GET" and "/actions/runs/" in request.path:
            reads.append(request.path)
            return answer
        return await onward()

    harness.github_wire.tamper = tamper
    return reads


def run_of(event: str, head: dict[str, Any] | None, **more: Any) -> Response:
    body = {"id": 5, "event": event, "repository": OWN, "head_repository": head, **more}
    return json_response(200, body)


@pytest.mark.parametrize(
    ("answer", "trust"),
    [
        (run_of("push", OWN), Trust.SAME_REPOSITORY),
        (run_of("pull_request", FORK), Trust.FORK),
        (run_of("pull_request_target", OWN), Trust.PULL_REQUEST_TARGET),
        (run_of("pull_request", None), Trust.UNKNOWN),
        (run_of("issue_comment", OWN), Trust.OPEN_EVENT),
        (json_response(404, {"message": "Not Found"}), Trust.UNKNOWN),
        (json_response(500, {"message": "oops"}), Trust.UNKNOWN),
        (json_response(403, {"message": "Resource not accessible by integration"}), Trust.UNKNOWN),
        (Response(status=200, body=b"<html>"), Trust.UNKNOWN),
    ],
    ids=["own", "fork", "target", "deleted", "comment", "absent", "failed", "denied", "unreadable"],
)
def test_a_fork_job_never_looks_trusted_to_a_host(
    database_url: str, app_keys: KeyPair, answer: Response, trust: Trust
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        answer_runs(harness, answer)
        job = await harness.armed(guest)
        labels = labels_of(harness, guest)
        assert labels[names.RUNNER_ACCOUNT] == str(account_number(harness))
        expected = None if trust is Trust.SAME_REPOSITORY else "true"
        assert labels.get(names.CACHE_UNTRUSTED) == expected
        assert harness.job(job)["trust"] == trust.value, "`runyard explain` shows what the Pod has"

    play(scenario, database_url, app_keys)


def test_both_labels_travel_in_one_request(database_url: str, app_keys: KeyPair) -> None:
    # Between two requests a host would see an account without the mark.
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        answer_runs(harness, run_of("pull_request", FORK))
        await harness.armed(guest)
        marks = [
            msgspec.json.decode(request.body)["metadata"]["labels"]
            for request in harness.kube_wire.requests
            if request.method == "PATCH" and names.RUNNER_ACCOUNT.encode() in request.body
        ]
        assert [names.CACHE_UNTRUSTED in mark for mark in marks] == [True]

    play(scenario, database_url, app_keys)


def test_the_jobs_of_a_run_cost_one_read(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        first, second = await harness.pod(1), await harness.pod(2)
        reads = answer_runs(harness, run_of("pull_request", FORK))
        run = harness.github.jobs()[harness.queue()].run_id
        harness.queue(run_id=run)
        await harness.github.settle()
        async with harness.waiting(first, second):
            await harness.match()
        await asyncio.gather(*harness.mints)
        assert len(reads) == 1
        assert labels_of(harness, second)[names.CACHE_UNTRUSTED] == "true"

    play(scenario, database_url, app_keys)


def test_a_runner_that_gets_the_job_of_a_fork_instead_is_marked(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest, idle = await harness.pod(1), await harness.pod(2)
        answer_runs(harness, run_of("push", OWN))
        first = await harness.armed(guest)
        assert names.CACHE_UNTRUSTED not in labels_of(harness, guest)
        harness.github.cancel_job(first)
        await harness.github.settle()
        answer_runs(harness, run_of("pull_request", FORK))
        job = await harness.queued()
        async with harness.waiting(idle):
            await harness.match()
        assert harness.slot(guest)["intended_job"] == job, "the runner waits at GitHub already"
        await harness.mint()
        assert labels_of(harness, guest)[names.CACHE_UNTRUSTED] == "true"

    play(scenario, database_url, app_keys)


def test_a_run_that_could_not_be_read_is_read_again_for_the_next_runner(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        answer_runs(harness, json_response(500, {"message": "oops"}))
        job = await harness.armed(guest)
        answer_runs(harness, run_of("pull_request", FORK))
        # Its runner was lost, and the job is meant for another one.
        harness.execute("UPDATE slots SET marked_job = NULL WHERE pod_uid = %s", guest.uid)
        await harness.server.marker.mark(guest.uid)
        assert harness.job(job)["trust"] == Trust.FORK.value

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize(
    ("parts", "trust"),
    [
        ({"pull_request": {"head": {"repo": FORK}, "author_association": "NONE"}}, Trust.FORK),
        ({"pull_request": {"head": {"repo": OWN}, "author_association": "NONE"}}, Trust.OUTSIDE_ACTOR),
        ({"workflow_run": {"event": "pull_request_target", "head_repository": OWN}}, Trust.PULL_REQUEST_TARGET),
        ({"workflow_run": {"event": "push", "head_repository": OWN}}, Trust.SAME_REPOSITORY),
        ({"workflow_run": {"event": "pull_request", "head_repository": FORK}, "pull_request": OWN_PULL}, Trust.FORK),
        ({"workflow_run": {"event": "pull_request", "head_repository": OWN}, "pull_request": FORK_PULL}, Trust.FORK),
        ({"pull_request": OWN_PULL}, Trust.SAME_REPOSITORY),
        ({"workflow_run": {"event": 5}, "pull_request": OWN_PULL}, None),
        ({"workflow_run": "not a run", "pull_request": [1]}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_an_event_that_names_the_origin_decides_without_a_read(
    database_url: str, app_keys: KeyPair, parts: dict[str, Any], trust: Trust | None
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        event = {
            "action": "queued",
            "workflow_job": {"id": 900, "run_id": 90, "status": "queued", "labels": LABELS},
            "repository": {**OWN, "owner": {"login": "acme", "id": 4242}},
            "installation": {"id": harness.acme},
            **parts,
        }
        body = msgspec.json.encode(event)
        seal = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
        headers = (
            ("x-hub-signature-256", f"sha256={seal}"),
            ("x-github-event", "workflow_job"),
            ("x-github-delivery", "one"),
        )
        assert (await harness.ask("POST", GITHUB_WEBHOOK, body, headers)).status == 200
        assert harness.job(900)["trust"] == ("" if trust is None else trust.value)
        tenants = harness.rows("SELECT account_id FROM tenants WHERE tenant = 'acme'")
        assert tenants == [{"account_id": 4242}]

    play(scenario, database_url, app_keys)
