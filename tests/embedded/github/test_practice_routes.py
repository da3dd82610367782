"""The routes for users over HTTP: push, cancel, read, and refusals with a reason."""

import asyncio
from typing import Any

import pytest

from runyard.embedded.github.core import GithubCore, PracticeApp


def queue(practice: Any, **changes: Any) -> Any:
    body = {"repo": "acme/app", "labels": ["mac"], **changes}
    return practice.practice_request("POST", "jobs", body)


def test_an_account_a_repository_and_a_job(practice: Any) -> None:
    made = practice.practice_request("POST", "accounts", {"account": "beta"})
    assert made.status == 201 and made.json()["installation_id"] > 0
    assert practice.practice_request("POST", "accounts", {"account": "Beta"}).status == 200
    as_user = {"account": "beta", "kind": "User"}
    assert practice.practice_request("POST", "accounts", as_user).status == 409
    assert practice.practice_request("POST", "repos", {"repo": "beta/app"}).status == 201
    assert practice.practice_request("POST", "repos", {"repo": "beta/app"}).status == 200
    job = queue(practice, repo="beta/app", script="true", name="unit", env={"A": "b"})
    assert job.status == 201
    shown = practice.practice_request("GET", f"jobs/{job.json()['id']}").json()
    assert (shown["status"], shown["name"], shown["repo"]) == ("queued", "unit", "beta/app")
    assert [entry["what"] for entry in shown["history"]] == ["queued"]
    names = [
        each["account"] for each in practice.practice_request("GET", "accounts").json()["items"]
    ]
    assert names == ["acme", "mona", "beta"]


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        pytest.param({"repo": "acme/none"}, 409, id="no-such-repository"),
        pytest.param({"repo": "acme"}, 422, id="no-repository-name"),
        pytest.param({"repo": "acme/app\n"}, 422, id="line-break"),
        pytest.param({"labels": []}, 422, id="no-labels"),
        pytest.param({"labels": [""]}, 422, id="empty-label"),
        pytest.param({"labels": "mac"}, 422, id="labels-are-a-list"),
        pytest.param({"script": "x" * 65537}, 422, id="long-script"),
        pytest.param({"script": "a\0b"}, 422, id="nul-in-script"),
        pytest.param({"env": {"A=B": "c"}}, 422, id="bad-env-name"),
        pytest.param({"env": {"A": "\0"}}, 422, id="nul-in-env"),
        pytest.param({"duration": -1}, 422, id="negative-duration"),
        pytest.param({"run_id": 1}, 409, id="no-such-run"),
        pytest.param({"scirpt": "true"}, 422, id="misspelt-field"),
    ],
)
def test_a_wrong_job_is_refused_with_a_reason(
    practice: Any, changes: dict[str, Any], status: int
) -> None:
    answer = queue(practice, **changes)
    assert answer.status == status
    assert answer.json()["reason"]
    assert not practice.core.jobs()


def test_callers_without_the_token_are_refused(practice: Any) -> None:
    for bearer in ("", "wrong", "practice-secre", "ü"):
        assert practice.practice_request("GET", "jobs", bearer=bearer).status == 401
    assert (
        practice.practice_request(
            "POST", "accounts", {"account": "x"}, bearer=practice.token
        ).status
        == 401
    )


def test_without_a_configured_token_all_callers_are_refused(practice: Any) -> None:
    practice.core = GithubCore(
        clock=practice.clock,
        rng=practice.core._state._rng,
        app=PracticeApp(app_id=1, public_key=practice.keys.public_pem, webhook_secret="s"),
    )
    answer = practice.practice_request("GET", "jobs", bearer="")
    assert answer.status == 403 and answer.json()["fix"]


def test_cancel_and_approve_say_when_it_is_too_late(practice: Any) -> None:
    job = queue(practice, waiting=True).json()["id"]
    assert practice.practice_request("POST", f"jobs/{job}/approve").json()["status"] == "queued"
    assert practice.practice_request("POST", f"jobs/{job}/approve").status == 409
    assert (
        practice.practice_request("POST", f"jobs/{job}/cancel").json()["conclusion"] == "cancelled"
    )
    refused = practice.practice_request("POST", f"jobs/{job}/cancel")
    assert refused.status == 409 and "cancelled" in refused.json()["reason"]
    for what in ("jobs/1", "jobs/x", "jobs/1/log"):
        assert practice.practice_request("GET", what).status == 404
    assert practice.practice_request("POST", "jobs/1/cancel").status == 404


def test_lists_are_paged_and_filtered(practice: Any) -> None:
    jobs = [queue(practice).json()["id"] for _ in range(5)]
    queue(practice, repo="acme/lib")
    practice.practice_request("POST", f"jobs/{jobs[0]}/cancel")

    def listed(**query: Any) -> list[int]:
        found: list[int] = []
        while True:
            page = practice.practice_request("GET", "jobs", query=query).json()
            found += [each["id"] for each in page["items"]]
            if page["before"] is None:
                return found
            query["before"] = page["before"]

    assert listed(repo="ACME/app", limit=2) == jobs[::-1]
    assert listed(status="completed") == [jobs[0]]
    assert len(listed(limit=1)) == 6


def test_runners_and_deliveries_are_shown_without_their_secrets(practice: Any) -> None:
    _, jit = practice.mint("a")
    key = practice.open(jit).json()["session"]
    queue(practice)
    runners = practice.practice_request("GET", "runners")
    assert [(each["name"], each["busy"]) for each in runners.json()["items"]] == [("a", True)]
    assert jit.encode() not in runners.body and key.encode() not in runners.body
    page = practice.practice_request("GET", "deliveries").json()["items"]
    assert [(each["action"], each["ended"]) for each in page] == [
        ("in_progress", False),
        ("queued", False),
    ]
    path = f"deliveries/{page[0]['id']}/redeliver"
    assert practice.practice_request("POST", path).status == 404
    asyncio.run(practice.core.settle())
    assert practice.practice_request("POST", path).status == 202
    asyncio.run(practice.core.settle())
    newest = practice.practice_request("GET", "deliveries", query={"limit": 1}).json()["items"][0]
    assert (newest["redelivery"], newest["status_code"]) == (True, 200)
    assert [each.action for each in practice.delivered].count("in_progress") == 2


def test_both_route_tables_have_an_openapi_document(practice: Any) -> None:
    document = practice.practice_request("GET", "openapi.json", bearer="").json()
    assert "/practice/runner/session/job" in document["paths"]
    assert "/practice/jobs/{job}/log" in document["paths"]
    assert practice.practice_request("DELETE", "jobs").status == 405
