"""Tests the history and figures of a test across runs, and the list of flaky tests."""

from pathlib import Path
from typing import Any

from tests.xcresult.rest.results_harness import Harness, play
from tests.xcresult.rest.test_results_runs import number, pages


def ran(harness: Harness, run: int, name: str, *statuses: str, **columns: Any) -> str:
    """Insert a run, `run` hours ago, with one case with these statuses."""
    flaky = len(statuses) > 1
    harness.run(number(run), hours=run, **columns)
    return harness.case(
        number(run), name, status=statuses[-1], is_flaky=flaky, duration_ms=run * 10
    )


def test_the_history_of_a_test_is_its_runs_newest_first(database_url: str, tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        for run in range(1, 8):
            status = "failure" if run == 3 else "skipped" if run == 4 else "success"
            branch = "main" if run % 2 else "topic"
            case = ran(
                harness, run, "testOne()", status, git_branch=branch, git_commit_sha=f"c{run}"
            )
        at = f"/api/v1/test-cases/{case}"
        for limit in (1, 3, 500):
            found = await pages(harness, f"{at}/history", limit=limit)
            assert [each["run"] for each in found] == [number(run) for run in range(1, 8)]
        assert found[2]["status"] == "failure" and found[2]["git_commit_sha"] == "c3"
        assert [
            each["git_branch"] for each in await pages(harness, f"{at}/history", branch="main")
        ] == ["main"] * 4
        assert len(await pages(harness, f"{at}/history", status="skipped")) == 1
        detail = await harness.get(at)
        assert detail["test"]["identifier"] == "Suite/testOne()"
        figures = detail["figures"]
        assert (figures["runs"], figures["succeeded"], figures["failed"], figures["skipped"]) == (
            7,
            5,
            1,
            1,
        )
        assert (figures["average_ms"], figures["median_ms"]) == (40.0, 40.0)
        assert figures["p95_ms"] == 67.5 and figures["flaky"] == 0

    play(scenario, database_url, tmp_path)


def test_figures_are_of_the_window(database_url: str, tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        ran(harness, 1, "testOne()", "success")
        case = ran(harness, 100, "testOne()", "failure")
        at = f"/api/v1/test-cases/{case}"
        assert (await harness.get(at, days=1))["figures"]["failed"] == 0
        assert (await harness.get(at, days=30))["figures"]["failed"] == 1

    play(scenario, database_url, tmp_path)


def test_flaky_tests_are_those_that_did_both(database_url: str, tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        ran(harness, 1, "retried()", "failure", "success")
        ran(harness, 2, "mixed()", "failure", git_commit_sha="same")
        ran(harness, 3, "mixed()", "success", git_commit_sha="same")
        ran(harness, 4, "fixed()", "failure", git_commit_sha="before")
        ran(harness, 5, "fixed()", "success", git_commit_sha="after")
        ran(harness, 6, "unknown()", "failure")
        ran(harness, 7, "unknown()", "success")
        ran(harness, 8, "broken()", "failure", git_commit_sha="x")
        ran(harness, 9, "broken()", "failure", git_commit_sha="x")
        ran(harness, 10, "good()", "success", git_commit_sha="x")
        ran(harness, 11, "skipped()", "skipped", git_commit_sha="x")
        ran(harness, 12, "mixed()", "failure", "success", git_commit_sha="other")
        ran(harness, 500, "long ago()", "failure", "success")
        found = await harness.get("/api/v1/flaky-tests")
        flaky = [
            (each["test"]["name"], each["figures"]["flaky"], each["figures"]["mixed_commits"])
            for each in found["items"]
        ]
        assert flaky == [("mixed()", 1, 1), ("retried()", 1, 0)]
        (first,) = (await harness.get("/api/v1/flaky-tests", limit=1))["items"]
        assert first["test"]["name"] == "mixed()"
        long = await harness.get("/api/v1/flaky-tests", days=60)
        assert [each["test"]["name"] for each in long["items"]][-1] == "long ago()"
        assert (await harness.get("/api/v1/flaky-tests", branch="none"))["items"] == []

    play(scenario, database_url, tmp_path)


def test_a_test_that_fails_on_one_device_of_a_run_alone_is_not_flaky_for_that(
    database_url: str, tmp_path: Path
) -> None:
    async def scenario(harness: Harness) -> None:
        case = ran(harness, 1, "testOne()", "failure", git_commit_sha="same")
        harness.case(number(1), "testOne()", number=1)
        assert (await harness.get("/api/v1/flaky-tests"))["items"] == []
        seen = (await harness.get(f"/api/v1/test-cases/{case}"))["figures"]
        assert (seen["runs"], seen["failed"], seen["mixed_commits"]) == (2, 1, 0)
        ran(harness, 2, "testOne()", "success", git_commit_sha="same")
        (found,) = (await harness.get("/api/v1/flaky-tests"))["items"]
        assert found["figures"]["mixed_commits"] == 1

    play(scenario, database_url, tmp_path)


def test_both_results_of_one_commit_in_two_projects_are_not_flaky(
    database_url: str, tmp_path: Path
) -> None:
    """Tests of the same name in two projects are different tests, even on the same commit."""

    async def scenario(harness: Harness) -> None:
        ran(harness, 1, "testOne()", "failure", git_commit_sha="same", project="fork")
        ran(harness, 2, "testOne()", "success", git_commit_sha="same", project="app")
        assert (await harness.get("/api/v1/flaky-tests"))["items"] == []

    play(scenario, database_url, tmp_path)


def test_tests_of_a_project_are_found_by_name(database_url: str, tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        for run, name in enumerate(("b()", "a()", "c()", "ab()"), 1):
            ran(harness, run, name, "success")
        ran(harness, 9, "a()", "success", project="other")
        which = {"account": "acme", "project": "app"}
        for limit in (1, 2, 500):
            found = await pages(harness, "/api/v1/test-cases", limit=limit, **which)
            assert [each["name"] for each in found] == ["a()", "ab()", "b()", "c()"]
        found = await pages(harness, "/api/v1/test-cases", name="B", suite="Suite", **which)
        assert [each["name"] for each in found] == ["ab()", "b()"]
        assert (await harness.ask("GET", "/api/v1/test-cases", account="acme")).status == 400

    play(scenario, database_url, tmp_path)
