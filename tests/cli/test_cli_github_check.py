"""`runyard github check` against a GitHub over HTTP: what is wrong is told, whatever else is wrong."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.cli.github_harness import APP_ID, Bend, play, straight
from tests.cli.server_harness import LABELS, run_here

from runyard.cli.githubcheck import (
    deliveries_line,
    permissions_line,
    rate_line,
    runner_line,
    server_line,
)
from runyard.clock import RealClock
from runyard.embedded.github.core import GithubCore
from runyard.embedded.github.identity import KeyPair
from runyard.github.manifest import missing_permissions, required_permissions
from runyard.github.views import DeliveryView, RateView
from runyard.http.messages import Request, Response, json_response


def test_check_says_what_is_wrong_and_what_to_do(tmp_path: Path, app_keys: KeyPair) -> None:
    async def scenario(core: GithubCore, url: str) -> None:
        key = tmp_path / "app.pem"
        key.write_text(app_keys.private_pem)
        argv = ("github", "check", "--json", "--github-url", url, "--github-intake", "webhook",
                "--github-app-id", str(APP_ID), "--github-key-file", str(key))  # fmt: skip

        async def check(*more: str) -> tuple[int, dict[str, dict[str, str]]]:
            code, out, err = await asyncio.to_thread(run_here, *argv, *more)
            assert not err, err
            lines = {line["what"]: line for line in json.loads(out)["lines"]}
            assert all(line["fix"] for line in lines.values() if line["verdict"] != "ok")
            return code, lines

        code, lines = await check()
        assert code == 1 and lines["installations"]["verdict"] == "fail"
        acme = core.install("acme")
        core.add_repo("acme/app")
        code, lines = await check()
        assert code == 0, lines
        assert lines["acme: permissions"]["verdict"] == "ok"
        assert lines["acme: runner group"]["found"].startswith("Default")
        assert lines["clock"]["verdict"] == "ok"
        assert lines["deliveries"]["verdict"] == "warn"
        core.queue_job("acme/app", LABELS)
        await core.settle()
        code, lines = await check("--runner-group", "9", "--runner-version", "2.100.0")
        assert code == 1
        assert lines["deliveries"]["verdict"] == "fail" and "pull" in lines["deliveries"]["fix"]
        assert lines["acme: runner group"]["verdict"] == "fail"
        assert lines["runner"]["verdict"] == "fail"
        core.suspend(acme)
        code, lines = await check()
        assert code == 1 and lines["acme"]["found"] == "suspended"

    play(scenario, app_keys)


def test_a_key_that_github_does_not_know_and_a_github_that_is_away_are_told_apart(
    tmp_path: Path, app_keys: KeyPair
) -> None:
    async def scenario(core: GithubCore, url: str) -> None:
        key = tmp_path / "app.pem"
        key.write_text(app_keys.private_pem)
        argv = ("github", "check", "--json", "--github-key-file", str(key))
        code, out, _ = await asyncio.to_thread(
            run_here, *argv, "--github-app-id", "8", "--github-url", url
        )
        assert code == 1 and "--github-app-id" in out
        code, out, _ = await asyncio.to_thread(
            run_here, *argv, "--github-app-id", "7", "--github-url", "http://127.0.0.1:1"
        )
        assert code == 1 and "--github-url" in out

    play(scenario, app_keys)


def test_a_token_for_one_repository_is_checked_there(tmp_path: Path, app_keys: KeyPair) -> None:
    async def scenario(core: GithubCore, url: str) -> None:
        core.install("mona", kind="User")
        core.add_repo("mona/dots")
        core.allow_token("github_pat_of_the_test", repo="mona/dots")
        token = tmp_path / "token"
        token.write_text("github_pat_of_the_test\n")
        argv = ("github", "check", "--json", "--github-url", url, "--github-token-file", str(token))
        code, out, err = await asyncio.to_thread(
            run_here, *argv, "--github-repository", "mona/dots"
        )
        assert code == 0, (out, err)
        assert "pat_of_the_test" not in out
        code, out, _ = await asyncio.to_thread(run_here, *argv, "--github-repository", "mona/else")
        assert code == 1

    play(scenario, app_keys)


Found = tuple[int, dict[str, dict[str, str]]]


def acme(core: GithubCore) -> None:
    core.install("acme")
    core.add_repo("acme/app")


def checked(
    harness: Callable[[GithubCore], object],
    keys: KeyPair,
    folder: Path,
    *more: str,
    bend: Bend = straight,
) -> Found:
    """What an App's check reports."""
    key = folder / "app.pem"
    key.write_text(keys.private_pem)
    seen: list[Found] = []

    async def scenario(core: GithubCore, url: str) -> None:
        harness(core)
        argv = ("github", "check", "--json", "--github-url", url,
                "--github-app-id", str(APP_ID), "--github-key-file", str(key), *more)  # fmt: skip
        code, out, err = await asyncio.to_thread(run_here, *argv)
        assert not err, err
        lines = {line["what"]: line for line in json.loads(out)["lines"]}
        assert all(line["fix"] for line in lines.values() if line["verdict"] != "ok")
        seen.append((code, lines))

    play(scenario, keys, bend)
    return seen[0]


def test_an_app_without_the_event_fails_and_the_rest_is_looked_at_all_the_same(
    tmp_path: Path, app_keys: KeyPair
) -> None:
    def deaf(request: Request, answer: Response) -> Response:
        if request.path != "/app":
            return answer
        return json_response(200, {**msgspec.json.decode(answer.body), "events": ["push"]})

    code, lines = checked(acme, app_keys, tmp_path, bend=deaf)
    assert code == 1
    assert lines["App: events"]["verdict"] == "fail" and lines["App: events"]["found"] == "push"
    assert lines["acme: permissions"]["verdict"] == "ok"
    assert {"deliveries", "runner", "clock"} <= set(lines)


def test_one_question_that_github_does_not_answer_hides_no_other_finding(
    tmp_path: Path, app_keys: KeyPair
) -> None:
    def harness(core: GithubCore) -> None:
        acme(core)
        core.faults.fail_next("/installation/repositories", 502)
        core.faults.fail_next("/rate_limit", 502)

    code, lines = checked(harness, app_keys, tmp_path)
    assert code == 1
    assert lines["acme: repositories"]["verdict"] == lines["acme: rate"]["verdict"] == "fail"
    for what in ("acme: permissions", "acme: events", "acme: runner group"):
        assert lines[what]["verdict"] == "ok"


def test_the_runner_of_a_person_without_an_organisation_is_compared_too(
    tmp_path: Path, app_keys: KeyPair
) -> None:
    def harness(core: GithubCore) -> None:
        core.install("mona", kind="User")
        core.add_repo("mona/dots")

    code, lines = checked(harness, app_keys, tmp_path, "--runner-version", "2.100.0")
    assert code == 1 and lines["runner"]["found"] == "2.100.0; the newest is 2.330.0"


def test_accounts_that_are_too_many_to_be_looked_at_are_said_to_be_left_out(
    tmp_path: Path, app_keys: KeyPair
) -> None:
    def harness(core: GithubCore) -> None:
        for number in range(22):
            core.install(f"acme{number}")

    _, lines = checked(harness, app_keys, tmp_path)
    assert lines["other installations"]["found"].startswith("2 more")
    assert "acme19: permissions" in lines and "acme20: permissions" not in lines


def test_how_deliveries_come_can_be_said_in_the_environment_as_for_the_server(
    tmp_path: Path, app_keys: KeyPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNYARD_GITHUB_INTAKE", "pull")
    _, lines = checked(acme, app_keys, tmp_path)
    assert "fetched" in lines["deliveries"]["found"]


def test_a_token_that_may_not_see_webhooks_is_enough_and_its_hour_is_told_right(
    tmp_path: Path, app_keys: KeyPair
) -> None:
    def scarce(request: Request, answer: Response) -> Response:
        if request.path != "/rate_limit":
            return answer
        core = {"limit": 5000, "remaining": 100, "reset": int(RealClock().now()) + 600}
        return json_response(200, {"resources": {"core": core}})

    async def scenario(core: GithubCore, url: str) -> None:
        core.install("mona", kind="User")
        core.add_repo("mona/dots")
        core.allow_token("github_pat_of_the_test", repo="mona/dots", hooks=False)
        token = tmp_path / "token"
        token.write_text("github_pat_of_the_test\n")
        code, out, err = await asyncio.to_thread(
            run_here, "github", "check", "--json", "--github-url", url,
            "--github-token-file", str(token), "--github-repository", "mona/dots",
        )  # fmt: skip
        assert code == 0 and not err, (out, err)
        lines = {line["what"]: line for line in json.loads(out)["lines"]}
        assert lines["deliveries"]["verdict"] == "warn" and "token" in lines["deliveries"]["fix"]
        assert "in 10 min" in lines["mona/dots: rate"]["fix"]

    play(scenario, app_keys, scarce)


# ── verdicts ────────────────────────────────────────────────────────────────────────────────────────


def test_a_higher_permission_contains_the_lower_and_a_missing_one_is_named() -> None:
    assert (
        missing_permissions(
            {**required_permissions(organisation=True), "actions": "admin"}, organisation=True
        )
        == ()
    )
    assert [each.name for each in missing_permissions({"actions": "read"}, organisation=True)] == [
        "actions",
        "metadata",
        "organization_self_hosted_runners",
    ]
    line = permissions_line(
        "acme", {**required_permissions(organisation=True), "actions": "read"}, is_organisation=True
    )
    assert line.verdict == "warn"  # jobs run all the same
    assert permissions_line("acme", {}, is_organisation=True).verdict == "fail"


def test_the_rest_of_the_hour_and_the_versions_are_judged() -> None:
    for left, verdict in ((5000, "ok"), (400, "warn"), (0, "fail")):
        rate = RateView(limit=5000, remaining=left, reset=600)
        assert rate_line("acme", rate, now=0.0).verdict == verdict
    for version, verdict in (("3.9.2", "fail"), ("3.10.0", "ok"), ("3.20.1", "ok")):
        assert server_line(version).verdict == verdict
    for version, verdict in (
        ("2.330.0", "ok"), ("v2.331.0", "ok"), ("2.329.0", "warn"), ("2.300.0", "fail"),
        ("1.9.9", "fail"), ("new", "fail"), ("", "warn"),
    ):  # fmt: skip
        assert runner_line(version, newest="2.330.0").verdict == verdict
    assert runner_line("2.330.0", newest="").verdict == "warn"  # nobody knows
    assert runner_line("", newest="").verdict == "warn"
    assert runner_line("new", newest="").verdict == "fail"


def test_deliveries_that_fail_matter_only_to_who_relies_on_them() -> None:
    def delivery(status: int) -> DeliveryView:
        return DeliveryView(
            id=1, guid="g", event="workflow_job", delivered_at="1970-01-01T00:00:10Z",
            status_code=status,
        )  # fmt: skip

    good, bad = delivery(200), delivery(502)
    for items, verdict in (((good,), "ok"), ((good, bad), "warn"), ((bad,), "fail"), ((), "warn")):
        assert deliveries_line(items, intake="webhook", now=20.0).verdict == verdict
        assert deliveries_line(items, intake="pull", now=20.0).verdict == "ok"
