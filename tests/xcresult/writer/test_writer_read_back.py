"""Tests that the reader returns what was written: figures, cases, durations, attachments, coverage."""

import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.tiers import examples
from tests.xcresult.writer import coverage
from tests.xcresult.writer.drafting import STATUS, Draft, Drafts, Turn
from tests.xcresult.writer.plan import NEWEST, OLDEST, Plan, Written
from tests.xcresult.writer.writing import write_bundle

from runyard.xcresult.bundle.directory import Directory
from runyard.xcresult.bundle.reading import read_bundle
from runyard.xcresult.bundle.verifying import verify
from runyard.xcresult.reader.coverage.reading import read_coverage
from runyard.xcresult.reader.crashes import crash_report
from runyard.xcresult.reader.figures import figures
from runyard.xcresult.reader.model import Case, Result, Wanted

EVERYTHING = Plan(
    cases=40,
    targets=2,
    suites=3,
    nesting=3,
    named=True,
    top_level=3,
    test_plans=2,
    devices=2,
    configurations=2,
    failures=5,
    failures_each=2,
    skips=2,
    expected_failures=2,
    retries=3,
    arguments=8,
    tags=20,
    bugs=20,
    documented=20,
    metrics=5,
    activities=5,
    attachments=50,
    payloads=7,
    build_issues=5,
    coverage=3,
    diagnostics=2,
)
FORMATS = [20, 24, 26, 34, 37, 39, 44, 49, 53, 54, 56, 58, 60]


def small(most: int) -> st.SearchStrategy[int]:
    return st.integers(0, most)


plans = st.builds(
    Plan,
    seed=small(1000),
    minor=st.integers(OLDEST, NEWEST),
    cases=small(12),
    targets=st.integers(1, 3),
    suites=st.integers(1, 3),
    nesting=st.integers(1, 3),
    swift=st.booleans(),
    top_level=small(2),
    named=st.booleans(),
    test_plans=st.integers(1, 2),
    devices=st.integers(1, 2),
    configurations=st.integers(1, 2),
    failures=small(3),
    failures_each=st.integers(1, 2),
    skips=small(3),
    expected_failures=small(3),
    retries=small(2),
    iterations=st.integers(2, 3),
    repeated=st.booleans(),
    arguments=small(4),
    argument_sets=st.integers(1, 3),
    tags=small(4),
    bugs=small(4),
    documented=small(4),
    metrics=small(4),
    activities=small(4),
    activity_depth=st.integers(1, 4),
    frames=small(4),
    attachments=small(6),
    attachment_bytes=small(3000),
    payloads=small(2),
    compressible=st.booleans(),
    logs=st.booleans(),
    build_issues=small(4),
    runner_errors=small(2),
    sessionless=small(2),
    crashes=small(2),
    lost_payloads=small(2),
    build_action=st.booleans(),
    coverage=small(2),
    diagnostics=small(2),
)


def read_back(folder: Path, plan: Plan) -> tuple[Written, Result]:
    written = write_bundle(folder / "x.xcresult", plan)
    result = read_bundle(folder / "x.xcresult", wanted=Wanted(activities=True))
    assert result.warnings == ()
    return written, result


def figures_of(bundle: Path, result: Result) -> dict[str, object]:
    found = verify(bundle)
    return figures(result, objects=found.objects, objects_hash_ok=found.hash_ok)


def drafted(drafts: Drafts) -> list[Draft]:
    """All cases of a plan, in any order."""
    return [
        draft
        for target in drafts.targets
        for place in (None, *drafts.places(target))
        for draft in drafts.cases(target, place)
    ]


def real(result: Result) -> list[Case]:
    return [case for case in result.cases if not case.runner_error]


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plan=plans)
def test_whatever_is_planned_is_what_the_reader_reports(plan: Plan) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written, result = read_back(folder, plan)
        assert figures_of(folder / "x.xcresult", result) == written.figures


@pytest.mark.slow
@pytest.mark.parametrize("minor", FORMATS)
def test_every_format_reads_as_planned(tmp_path: Path, minor: int) -> None:
    written, result = read_back(tmp_path, replace(EVERYTHING, minor=minor))
    assert figures_of(tmp_path / "x.xcresult", result) == written.figures
    assert written.figures["format"] == f"3.{minor}"


@pytest.mark.parametrize("minor", FORMATS)
def test_every_case_has_its_name_status_runs_and_duration(tmp_path: Path, minor: int) -> None:
    plan = replace(EVERYTHING, minor=minor)
    drafts = Drafts(plan)
    _, result = read_back(tmp_path, plan)
    found = {(c.plan, c.target, c.suites, c.identifier): c for c in real(result)}
    expected = {
        (test_plan, draft.place.target, draft.place.path, draft.identifier): draft
        for test_plan in ({case.plan for case in real(result)})
        for draft in drafted(drafts)
    }
    assert found.keys() == expected.keys()
    turns = max(1, plan.devices) * len(drafts.configurations)
    for key, draft in expected.items():
        case = found[key]
        first = any(run.status == "Failure" for run in drafts.runs(draft, Turn()))
        assert case.name == draft.name, key
        assert case.function == draft.function, key
        assert case.status == STATUS[draft.outcome], key
        assert case.flaky == (case.status == "Success" and first), key
        assert len(case.tags) == draft.tagged and len(case.bugs) == draft.tracked, key
        assert len(case.documentation) == draft.documented, key
        assert len(case.runs) >= turns, key
        assert all(len(run.metrics) == draft.measured for run in case.runs), key
        if not (draft.place.swift and drafts.formats.timeless):
            times = [run.duration for run in case.runs if run.duration]
            assert case.duration == pytest.approx(sum(times) / len(times) if times else None), key


def test_durations_of_swift_testing_come_from_the_log(tmp_path: Path) -> None:
    plan = Plan(minor=56, cases=20, suites=2, skips=2)
    drafts = Drafts(plan)
    _, result = read_back(tmp_path, plan)
    swift = {draft.identifier: draft for draft in drafted(drafts) if draft.place.swift}
    assert len(swift) == 10
    for case in result.cases:
        if case.identifier in swift and case.status != "Skipped":
            (run,) = drafts.runs(swift[case.identifier], Turn())
            assert run.duration == 0.0 and case.duration == pytest.approx(run.logged, abs=0.0006)


def test_attachments_are_the_bytes_that_were_written(tmp_path: Path) -> None:
    written, result = read_back(tmp_path, replace(EVERYTHING, attachment_bytes=300_000, payloads=0))
    objects = Directory(tmp_path / "x.xcresult")
    found = [each for case in result.cases for run in case.runs for each in run.attachments]
    assert sorted(each.payload_id for each in found) == sorted(written.payload_ids)
    assert len(set(written.payload_ids)) == len(found)
    assert any(each.on_failure for each in found) and not all(each.on_failure for each in found)
    for each in found:
        assert each.present and sum(map(len, objects.stream(each.payload_id))) == each.size
    assert len({each.filename for each in found}) == len(found)


def test_the_same_payload_is_stored_once(tmp_path: Path) -> None:
    written, _ = read_back(tmp_path, Plan(cases=3, attachments=30, payloads=2))
    assert len(written.payload_ids) == 30
    assert len(set(written.payload_ids)) == 2


@pytest.mark.parametrize("minor", [53, 56, 60])
def test_lost_summaries_cost_a_warning_each_and_nothing_else(tmp_path: Path, minor: int) -> None:
    plan = Plan(minor=minor, cases=9, failures=2, lost_summaries=3)
    written = write_bundle(tmp_path / "x.xcresult", plan)
    result = read_bundle(tmp_path / "x.xcresult")
    assert written.figures["warnings"] == len(result.warnings) == 3
    assert figures_of(tmp_path / "x.xcresult", result) == written.figures
    assert len(verify(tmp_path / "x.xcresult").missing) == 3


def test_crashes_are_reports_that_the_reader_understands(tmp_path: Path) -> None:
    _, result = read_back(tmp_path, Plan(cases=6, failures=3, crashes=2, attachments=4))
    objects = Directory(tmp_path / "x.xcresult")
    found = [
        crash_report(objects.read(each.payload_id))
        for case in result.cases
        for run in case.runs
        for each in run.attachments
        if each.filename.endswith(".ips") and each.on_failure
    ]
    assert len(found) == 2
    for crash in found:
        assert crash is not None and crash.exception_type == "EXC_BREAKPOINT"


def test_a_payload_of_any_size_is_written_in_little_memory(tmp_path: Path) -> None:
    plan = Plan(cases=1, attachments=2, attachment_bytes=100_000_000)
    tracemalloc.start()
    try:
        written = write_bundle(tmp_path / "x.xcresult", plan)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert written.figures["attachment_bytes"] == 200_000_000
    assert peak < 10_000_000


def test_activities_are_as_many_and_as_deep_as_planned(tmp_path: Path) -> None:
    _, result = read_back(tmp_path, Plan(cases=2, activities=7, activity_depth=3))
    for case in result.cases:
        (run,) = case.runs
        level, sizes = list(run.activities), []
        while level:
            sizes.append(len(level))
            level = [inner for each in level for inner in each.activities]
        assert sizes == [3, 2, 2]


def test_coverage_adds_up(tmp_path: Path) -> None:
    _, result = read_back(tmp_path, Plan(coverage=3))
    sources = coverage.files(3)
    found = read_coverage(Directory(tmp_path / "x.xcresult"), result.actions[0])
    assert found is not None
    (target,) = found.targets
    assert [each.path for each in target.files] == [each.path for each in sources]
    assert [each.covered for each in target.files] == [each.covered for each in sources]
