"""Tests the runs of the API: merged shards, complete pages, and everything below a case."""

from pathlib import Path
from typing import Any

import pytest
from tests.xcresult.rest.results_harness import OTHER_RUN, RUN, Harness, play

from runyard.wire.reasons import render
from runyard.wire.reasons_results import Unprocessed

AT = f"/api/v1/test-runs/{RUN}"


async def pages(harness: Harness, path: str, **query: object) -> list[Any]:
    """Read all pages; fails if they do not end."""
    found: list[Any] = []
    cursor = ""
    for _ in range(100):
        page = await harness.get(path, cursor=cursor, **query)
        found += page["items"]
        cursor = page["next"]
        if not cursor:
            return found
    raise AssertionError("the pages do not end")


def number(run: int) -> str:
    return f"00000000-0000-4000-8000-{run:012d}"


def test_shards_are_one_run(database_url: str, tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        counts = {"cases": 3, "failed": 1, "skipped": 1, "flaky": 1, "duration_ms": 500}
        harness.run(shard=0, **counts, scheme="Plan", git_branch="main")
        harness.run(shard=1, **{**counts, "duration_ms": 900}, status="failure")
        harness.run(OTHER_RUN, hours=2)
        listed = (await harness.get("/api/v1/test-runs"))["items"]
        assert [run["id"] for run in listed] == [RUN, OTHER_RUN]
        run = (await harness.get(AT))["run"]
        assert run == listed[0]
        shown = {name: run[name] for name in ("state", "status", "cases", "failed", "duration_ms")}
        assert shown == {
            "state": "processed",
            "status": "failure",
            "cases": 6,
            "failed": 2,
            "duration_ms": 900,
        }
        assert [shard["status"] for shard in run["shards"]] == ["success", "failure"]
        assert (run["scheme"], run["git_branch"]) == ("Plan", "main")
        harness.change(
            "UPDATE test_runs SET state = 'queued', due_at = now(), status = '' WHERE shard = 1"
        )
        run = (await harness.get(AT))["run"]
        assert (run["state"], run["status"]) == ("queued", "success")

    play(scenario, database_url, tmp_path)


def test_a_run_without_a_test_plan_has_null_and_no_empty_name(
    database_url: str, tmp_path: Path
) -> None:
    """As in the figures and the JSON of its bundle: a merged one may name none."""

    async def scenario(harness: Harness) -> None:
        harness.run(scheme="App")
        harness.run(OTHER_RUN, hours=2, test_plan="Plan")
        listed = (await harness.get("/api/v1/test-runs"))["items"]
        assert [run["test_plan"] for run in listed] == [None, "Plan"]
        run = (await harness.get(AT))["run"]
        assert (run["scheme"], run["test_plan"]) == ("App", None)
        schemas = (await harness.get("/openapi.json"))["components"]["schemas"]
        kinds = schemas["TestRun"]["properties"]["test_plan"]["anyOf"]
        assert [kind["type"] for kind in kinds] == ["string", "null"]

    play(scenario, database_url, tmp_path)


def test_the_reason_of_a_run_is_a_code_and_a_text(database_url: str, tmp_path: Path) -> None:
    crashed = Unprocessed.READER_CRASHED.because(signal="SIGSEGV")

    async def scenario(harness: Harness) -> None:
        for shard in range(3):
            harness.run(shard=shard)
        set_reason = (
            "UPDATE test_runs SET reason_code = {!r}, reason_detail = {!r} WHERE shard = {}"
        )
        harness.change(set_reason.format(crashed.slug, '{"signal": "SIGSEGV"}', 1))
        harness.change(set_reason.format("of-another-release", '{"count": 7}', 2))
        shards = (await harness.get(AT))["run"]["shards"]
        shown = [(shard["reason_code"], shard["reason"]) for shard in shards]
        assert shown[0] == ("", "")
        assert shown[1] == (Unprocessed.READER_CRASHED, render(crashed))
        assert shown[2] == ("of-another-release", "of-another-release (count=7)")

    play(scenario, database_url, tmp_path)


@pytest.mark.slow
def test_a_run_has_the_facts_of_its_bundles_once(database_url: str, tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        phone = '{"name": "iPhone 17", "platform": "ios_simulator", "os_version": "26.0"}'
        broken = '{"target": "AppTests", "message": "the runner crashed"}'
        for shard in range(2):
            harness.run(shard=shard, destinations=f"[{phone}]", errors=f"[{broken}]")
        harness.change(
            """UPDATE test_runs SET build_issues = '[{"kind": "warning"}]' WHERE shard = 1"""
        )
        found = await harness.get(AT)
        assert [each["name"] for each in found["destinations"]] == ["iPhone 17"]
        assert found["errors"] == [{"target": "AppTests", "message": "the runner crashed"}]
        assert found["build_issues"] == [{"kind": "warning"}] and found["warnings"] == []

    play(scenario, database_url, tmp_path)


@pytest.mark.slow
def test_pages_of_runs_meet_and_filters_hold(database_url: str, tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        for each in range(9):  # three runs at the same time
            harness.run(
                number(each),
                hours=each // 3,
                status=("success", "failure", "skipped")[each % 3],
                git_branch=f"b{each % 2}",
                git_commit_sha=f"c{each}",
                ci_run_id=f"r{each}",
                scheme=f"s{each}",
                is_flaky=each == 4,
                project=f"p{each % 2}",
            )
        harness.change("UPDATE test_runs SET ran_at = date_trunc('hour', ran_at)")
        everything = [run["id"] for run in await pages(harness, "/api/v1/test-runs", limit=500)]
        assert len(everything) == 9
        for limit in (1, 2, 4):
            found = await pages(harness, "/api/v1/test-runs", limit=limit)
            assert [run["id"] for run in found] == everything

        async def which(**query: object) -> list[int]:
            found = await pages(harness, "/api/v1/test-runs", limit=2, **query)
            return sorted(int(run["id"][-1]) for run in found)

        assert await which(status="failure") == [1, 4, 7]
        assert await which(branch="b1") == [1, 3, 5, 7]
        assert await which(project="P1", account="ACME") == [1, 3, 5, 7]
        assert await which(commit="c3") == [3]
        assert await which(ci_run="r5") == [5]
        assert await which(scheme="s6") == [6]
        assert await which(flaky="true") == [4]
        assert await which(state="queued") == []
        assert await which(status="failure", branch="b0") == [4]

    play(scenario, database_url, tmp_path)


@pytest.mark.slow
def test_parts_of_a_run_come_in_pages(database_url: str, tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        for shard in range(2):
            harness.run(shard=shard)
            for each in range(5):
                status = "failure" if each == 2 else "skipped" if each == 3 else "success"
                harness.case(name=f"test{shard}{each}()", shard=shard, number=each, status=status)
        harness.failure(RUN, "it broke", number=2)
        harness.failure(RUN, "and again", number=2, failure=2)
        for limit in (1, 3, 500):
            found = await pages(harness, f"{AT}/cases", limit=limit)
            expected = [f"test{shard}{each}()" for shard in range(2) for each in range(5)]
            assert [case["name"] for case in found] == expected
            modules = await pages(harness, f"{AT}/modules", limit=limit)
            assert [(each["shard_index"], each["name"]) for each in modules] == [
                (0, "AppTests"),
                (1, "AppTests"),
            ]
            suites = await pages(harness, f"{AT}/suites", limit=limit, module="AppTests")
            assert [each["module"] for each in suites] == ["AppTests", "AppTests"]
        failed = await pages(harness, f"{AT}/cases", status="failure")
        assert [case["name"] for case in failed] == ["test02()", "test12()"]
        assert [each["message"] for each in failed[0]["failures"]] == ["it broke", "and again"]
        assert (failed[0]["module"], failed[0]["suite"]) == ("AppTests", "Suite")
        assert [case["name"] for case in await pages(harness, f"{AT}/cases", name="ST13")] == [
            "test13()"
        ]
        assert await pages(harness, f"{AT}/cases", module="Other") == []
        assert await pages(harness, f"{AT}/cases", flaky="true") == []
        assert await pages(harness, f"{AT}/suites", module="Other") == []

    play(scenario, database_url, tmp_path)


@pytest.mark.slow
def test_a_case_has_everything_below_it(database_url: str, tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        harness.run(status="failure")
        case = harness.case(name="parameterized(value:)", status="failure")
        at: dict[str, object] = {"run_id": RUN, "shard": 0, "number": 0}
        for place, (name, status) in enumerate([("hello", "success"), ("test", "failure")], 1):
            harness.insert(
                "test_arguments", **at, argument=place, name=name, status=status, duration_ms=4
            )
        for argument in (0, 2):
            for place in (1, 2):
                harness.insert(
                    "test_repetitions",
                    **at,
                    argument=argument,
                    repetition=place,
                    repetition_number=place,
                    name="First Run" if place == 1 else "Retry 1",
                    status="failure",
                    duration_ms=2,
                )
        harness.failure(RUN, "own")
        issue = "of the argument"
        harness.failure(RUN, issue, argument=2)
        harness.failure(RUN, "of its repetition", argument=2, repetition=2)
        harness.failure(RUN, "of a repetition", repetition=1)
        attachment = await harness.attachment(RUN, b"crash", name="x.ips")
        for place, known in ((1, attachment), (2, None)):
            harness.insert(
                "test_crashes", **at, crash=place, file_name="x.ips", signal="SIGABRT", attachment_id=known
            )  # fmt: skip
        found = await harness.get(f"{AT}/cases/{case}")
        assert (found["run"], found["test"]["name"]) == (RUN, "parameterized(value:)")
        (execution,) = found["executions"]
        assert [each["message"] for each in execution["failures"]] == ["own"]
        assert [each["name"] for each in execution["arguments"]] == ["hello", "test"]
        second = execution["arguments"][1]
        assert second["failures"][0]["message"] == issue
        assert second["failures"][0]["line_number"] == 12
        assert [len(each["failures"]) for each in second["repetitions"]] == [0, 1]
        assert [len(each["failures"]) for each in execution["repetitions"]] == [1, 0]
        assert execution["repetitions"][0]["name"] == "First Run"
        assert [each["attachment"] for each in execution["crashes"]] == [attachment, None]
        (shot,) = execution["attachments"]
        assert (await harness.follow(shot["url"])).body == b"crash"

    play(scenario, database_url, tmp_path)


def test_a_case_of_two_shards_is_shown_with_both(database_url: str, tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        for shard in range(2):
            harness.run(shard=shard)
            case = harness.case(shard=shard, number=3, status=("success", "failure")[shard])
        found = await harness.get(f"{AT}/cases/{case}")
        assert [(each["shard_index"], each["status"]) for each in found["executions"]] == [
            (0, "success"),
            (1, "failure"),
        ]

    play(scenario, database_url, tmp_path)


def test_coverage_of_one_shard_is_what_its_bundle_says(database_url: str, tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        harness.run()
        harness.covered(RUN, "/src/A.swift", {1: 2, 2: 0, 5: 1})
        harness.covered(RUN, "/src/B.swift", {1: 0}, file=1)
        harness.change(
            "UPDATE coverage_files SET covered_lines = 7, executable_lines = 9 WHERE file = 0"
        )
        total = await harness.get(f"{AT}/coverage")
        assert (total["covered_lines"], total["executable_lines"]) == (2, 4)
        assert [each["name"] for each in total["targets"]] == ["App.app"]
        files = await pages(harness, f"{AT}/coverage/files", limit=1)
        assert [
            (each["path"], each["covered_lines"], each["executable_lines"]) for each in files
        ] == [
            ("/src/A.swift", 7, 9),
            ("/src/B.swift", 0, 1),
        ]
        assert await pages(harness, f"{AT}/coverage/files", target="None") == []
        lines = await harness.get(f"{AT}/coverage/lines", target="App.app", path="/src/A.swift")
        assert lines["lines"] == [[1, 2], [2, 0], [5, 1]]
        missing = await harness.ask(
            "GET", f"{AT}/coverage/lines", target="App.app", path="/src/None.swift"
        )
        assert missing.status == 404
        assert (await harness.ask("GET", f"{AT}/coverage/lines", target="App.app")).status == 400

    play(scenario, database_url, tmp_path)


def test_a_line_counts_if_any_shard_ran_it(database_url: str, tmp_path: Path) -> None:
    async def scenario(harness: Harness) -> None:
        for shard, counts in enumerate(({1: 1, 2: 0, 3: 0}, {1: 1, 2: 3, 3: 0})):
            harness.run(shard=shard)
            harness.covered(RUN, "/src/A.swift", counts, shard=shard)
            harness.covered(RUN, f"/src/Only{shard}.swift", {1: shard}, shard=shard, file=1)
        total = await harness.get(f"{AT}/coverage")
        assert (total["covered_lines"], total["executable_lines"]) == (2 + 0 + 1, 5)
        files = await pages(harness, f"{AT}/coverage/files", limit=1)
        assert [(each["path"][5:], each["covered_lines"]) for each in files] == [
            ("A.swift", 2),
            ("Only0.swift", 0),
            ("Only1.swift", 1),
        ]
        lines = await harness.get(f"{AT}/coverage/lines", target="App.app", path="/src/A.swift")
        assert lines["lines"] == [[1, 2], [2, 3], [3, 0]]

    play(scenario, database_url, tmp_path)
