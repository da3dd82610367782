"""Tests that a malicious database is refused or read within limits, and that no code in it is executed."""

import os
import sqlite3
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.tiers import examples
from tests.xcresult.cache.databases import ONE_CASE, Rows, write

from runyard.xcresult.cache import database as database_module
from runyard.xcresult.cache.database import opened
from runyard.xcresult.cache.reading import read_cache
from runyard.xcresult.errors import BundleInvalid, TooLarge, XcresultError
from runyard.xcresult.reader.budget import Budget
from runyard.xcresult.reader.model import Result, Wanted

FOREVER = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT i FROM n"


def read(path: Path) -> Result:
    return read_cache(path, format="3.56", wanted=Wanted(activities=True))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "database.sqlite3"


@pytest.mark.parametrize("data", [b"", b"PK\3\4", b"SQLite format 3\0", b"\0" * 4096, b"x" * 99])
def test_a_file_that_is_not_a_database_is_invalid(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    with pytest.raises(BundleInvalid):
        read(file)


def test_a_missing_file_a_link_and_a_pipe_are_invalid(file: Path, tmp_path: Path) -> None:
    with pytest.raises(BundleInvalid, match="no database"):
        read(file)
    real = write(tmp_path / "real", ONE_CASE)
    file.symlink_to(real)
    with pytest.raises(BundleInvalid, match="not a regular file"):
        read(file)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(BundleInvalid, match="not a regular file"):
        read(file)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE VIEW TestTags AS SELECT 1 AS name",
        "CREATE TRIGGER boom AFTER INSERT ON TestPlans BEGIN SELECT 1; END",
        "CREATE VIRTUAL TABLE TestTags USING fts5(name)",
        f"CREATE VIEW unrelated AS {FOREVER}",
    ],
)
def test_a_schema_with_code_is_refused(file: Path, statement: str) -> None:
    write(file, ONE_CASE, statements=[statement])
    with pytest.raises(BundleInvalid, match="Apple's tool does not create"):
        read(file)


def test_a_computed_column_is_not_computed(file: Path) -> None:
    overflow = "ALTER TABLE TestPlans ADD COLUMN boom AS (abs(-9223372036854775808)) VIRTUAL"
    write(file, ONE_CASE, statements=[overflow])
    assert read(file).test_plan == "Plan"


def test_keys_of_rows_are_neither_computed_nor_equal(file: Path) -> None:
    """Equal keys multiply: two suites below themselves, in 200 levels, are 2^200 suites."""
    columns = "testSuite_fk, testableRun_fk, parentSuiteRun_fk"
    both = ("INSERT INTO TestSuiteRuns VALUES (1, 1, 1, 7)",) * 2
    for key, rows, words in (
        ("RowID", both, "one key"),
        ("ROWID AS (zeroblob(9))", (), "computes"),
    ):
        file.unlink(missing_ok=True)
        made = f"CREATE TABLE TestSuiteRuns ({columns}, {key})"
        write(file, ONE_CASE, statements=["DROP TABLE TestSuiteRuns", made, *rows])
        with pytest.raises(BundleInvalid, match=words):
            read(file)


def suites(count: int) -> dict[str, Rows]:
    """One case that ran in many suites."""
    numbers = range(1, count + 1)
    return {
        "TestSuites": [{"name": str(n), "identifier": str(n)} for n in numbers],
        "TestSuiteRuns": [{"testSuite_fk": n, "testableRun_fk": 1} for n in numbers],
        "TestCaseRuns": [{"testCase_fk": 1, "testSuiteRun_fk": n} for n in numbers],
    }


def nested(depth: int, count: int) -> dict[str, Rows]:
    """Many cases in a suite below many others."""
    top = [{"testSuite_fk": 1, "testableRun_fk": 1, "parentSuiteRun_fk": 0}]
    below = [
        {"testSuite_fk": 1, "testableRun_fk": 0, "parentSuiteRun_fk": n + 1} for n in range(depth)
    ]
    numbers = range(1, count + 1)
    return {
        "TestSuiteRuns": top + below,
        "TestCases": [{"name": str(n), "identifier": str(n)} for n in numbers],
        "TestCaseRuns": [{"testCase_fk": n, "testSuiteRun_fk": depth + 1} for n in numbers],
    }


ISSUES: Rows = [{"testCaseRun_fk": 1, "expression_fk": 2 + n} for n in range(300)]
MULTIPLIED: dict[str, dict[str, Rows]] = {
    "tags": {**suites(300), "TestTags": [{"testCase_fk": 1, "name": "t"}] * 300},
    "tracked issues": {**suites(300), "IssueTrackingMetadata": [{"testCase_fk": 1}] * 300},
    "documentation": {
        **suites(300),
        "TestDocumentations": [{"testCase_fk": 1, "content": "x"}] * 300,
    },
    "parts of expressions": {
        "TestIssues": ISSUES,
        "Expressions": [
            {"subexpressions": ",".join(str(400 + n) for n in range(300))},
            *[{"subexpressions": "1"}] * 700,
        ],
    },
    "lists of parts": {
        "TestIssues": ISSUES,
        "Expressions": [{"subexpressions": "1," * 300}, *[{"subexpressions": "1"}] * 300],
    },
    "attachments": {
        "TestIssues": [{"testCaseRun_fk": 1}],
        "ExpectedFailures": [{"testCaseRun_fk": 1, "issue_fk": 1}] * 300,
        "Attachments": [{"testIssue_fk": 1, "uuid": str(n)} for n in range(300)],
    },
    "long texts": {
        "TestValues": [{"description": "x" * 10_000}],
        "Arguments": [{"testCaseRun_fk": 1, "testValue_fk": 1}] * 300,
    },
    "measurements": {"PerformanceMetrics": [{"testCaseRun_fk": 1, "measurements": "1," * 20_000}]},
    "levels": nested(190, 300),
}


@pytest.mark.parametrize("kind", MULTIPLIED)
def test_a_row_that_many_rows_use_is_counted_for_each_of_them(file: Path, kind: str) -> None:
    write(file, {**ONE_CASE, **MULTIPLIED[kind]})
    budget = Budget()
    read_cache(file, format="3.56", budget=budget)
    alone = Budget()
    with opened(file, budget=alone) as database:
        for table in {**ONE_CASE, **MULTIPLIED[kind]}:
            list(database.rows(table))
    assert budget.held > 3 * alone.held
    with pytest.raises(TooLarge, match="held_bytes"):
        read_cache(file, format="3.56", budget=Budget(held=3 * alone.held))


def test_a_value_beyond_the_limit_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(file, {**ONE_CASE, "TestPlans": [{"name": "x" * 100_000}]})
    assert len(read(file).test_plan) == 100_000
    monkeypatch.setattr(database_module, "VALUE_BYTES", 50_000)
    with pytest.raises(BundleInvalid):
        read(file)


def test_more_rows_and_more_steps_than_anybody_has_are_too_large(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tags = [{"name": str(number), "testCase_fk": 1} for number in range(9_000)]
    write(file, {**ONE_CASE, "TestTags": tags})
    with monkeypatch.context() as patch:
        patch.setattr(database_module, "ROWS", 8_000)
        with pytest.raises(TooLarge, match="rows"):
            read(file)
    monkeypatch.setattr(database_module, "STRIDE", 1_000)
    monkeypatch.setattr(database_module, "STEPS", 20_000)
    with pytest.raises(TooLarge, match="steps"):
        read(file)


def test_a_file_beyond_the_limit_is_not_opened(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(file, ONE_CASE)
    monkeypatch.setattr(database_module, "FILE_BYTES", 1000)
    with pytest.raises(TooLarge, match="larger"):
        read(file)


def test_nothing_is_written_and_no_journal_is_replayed(file: Path) -> None:
    write(file, ONE_CASE)
    before = file.read_bytes()
    (file.parent / f"{file.name}-journal").write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" * 64)
    (file.parent / f"{file.name}-wal").write_bytes(b"x" * 64)
    names = sorted(path.name for path in file.parent.iterdir())
    assert len(read(file).cases) == 1
    assert sorted(path.name for path in file.parent.iterdir()) == names
    assert file.read_bytes() == before


def test_the_connection_cannot_write(file: Path) -> None:
    write(file, ONE_CASE)
    with (
        pytest.raises(BundleInvalid) as caught,
        opened(file) as database,
    ):
        database._connection.execute("CREATE TABLE mine (x)")
    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)


@pytest.mark.parametrize("name", ["a#b?mode=rwc.sqlite3", "a%41 b.sqlite3"])
def test_a_path_that_reads_like_an_address_stays_a_path(tmp_path: Path, name: str) -> None:
    assert len(read(write(tmp_path / name, ONE_CASE)).cases) == 1


def test_tables_and_columns_that_are_not_there_read_as_nothing(file: Path) -> None:
    result = read(write(file, {"Actions": [{"name": "Test"}], "TestCases": []}))
    assert [action.command for action in result.actions] == ["Test"]
    assert result.cases == ()


def test_values_of_the_wrong_type_are_no_error(file: Path) -> None:
    tables: dict[str, Rows] = {
        name: [
            {
                column: value if column.endswith("_fk") else b"\xff\0"
                for column, value in row.items()
            }
            for row in rows
        ]
        for name, rows in ONE_CASE.items()
    }
    (case,) = read(write(file, tables)).cases
    assert (case.name, case.status, case.runs[0].duration) == ("", "Failure", 0.0)


def test_bytes_that_are_not_utf8_are_replaced(file: Path) -> None:
    write(file, ONE_CASE, statements=["UPDATE TestCases SET name = CAST(x'61ff' AS TEXT)"])
    (case,) = read(file).cases
    assert case.function == "a\ufffd"


def test_suites_and_activities_in_circles_end(file: Path) -> None:
    suite_runs = [
        {"testSuite_fk": 1, "testableRun_fk": 1, "parentSuiteRun_fk": 2, "orderInParent": 0},
        {"testSuite_fk": 1, "testableRun_fk": None, "parentSuiteRun_fk": 1, "orderInParent": 0},
        {"testSuite_fk": 1, "testableRun_fk": None, "parentSuiteRun_fk": 3, "orderInParent": 0},
    ]
    activities = [
        {"testCaseRun_fk": 1, "parent_fk": 2, "title": "top"},
        {"testCaseRun_fk": None, "parent_fk": 1, "title": "below"},
        {"testCaseRun_fk": None, "parent_fk": 3, "title": "its own parent"},
    ]
    result = read(write(file, {**ONE_CASE, "TestSuiteRuns": suite_runs, "Activities": activities}))
    (case,) = result.cases
    (top,) = case.runs[0].activities
    assert [each.title for each in top.activities] == ["below"]
    assert [suite.path for suite in result.suites] == [("Suite",), ("Suite", "Suite")]


def test_activities_nested_beyond_reason_are_cut(file: Path) -> None:
    chain = [{"testCaseRun_fk": 1, "parent_fk": None, "title": "0"}]
    chain += [{"testCaseRun_fk": None, "parent_fk": n, "title": str(n)} for n in range(1, 3000)]
    (case,) = read(write(file, {**ONE_CASE, "Activities": chain})).cases
    depth, steps = 0, case.runs[0].activities
    while steps:
        depth, steps = depth + 1, steps[0].activities
    assert depth == 201


def test_expressions_below_expressions_without_end_are_cut(file: Path) -> None:
    tables: dict[str, Rows] = {
        **ONE_CASE,
        "TestIssues": [{"testCaseRun_fk": 1, "expression_fk": 1, "compactDescription": "no"}],
        "Expressions": [{"sourceCode": "a", "subexpressions": str(n)} for n in range(2, 1500)],
    }
    (case,) = read(write(file, tables)).cases
    depth, expression = 0, case.runs[0].failures[0].expression
    while expression is not None and expression.parts:
        depth, expression = depth + 1, expression.parts[0]
    assert depth == 200


def test_expressions_in_circles_end(file: Path) -> None:
    tables: dict[str, Rows] = {
        **ONE_CASE,
        "TestIssues": [{"testCaseRun_fk": 1, "expression_fk": 1, "compactDescription": "no"}],
        "Expressions": [
            {"sourceCode": "a", "subexpressions": "2,1,2,99,x,,²," + "9" * 40},
            {"sourceCode": "b", "subexpressions": "1"},
        ],
    }
    (case,) = read(write(file, tables)).cases
    expression = case.runs[0].failures[0].expression
    assert expression is not None
    assert [part.source for part in expression.parts] == ["b"]


@settings(
    max_examples=examples(60),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(st.data())
def test_a_changed_file_raises_only_what_is_announced(tmp_path: Path, data: st.DataObject) -> None:
    source = tmp_path / "source"
    if not source.exists():
        write(source, ONE_CASE)
    broken = bytearray(source.read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    target = tmp_path / "broken"
    target.write_bytes(bytes(broken))
    with suppress(XcresultError):
        read(target)


def test_rows_that_are_read_again_and_not_kept_count_as_memory(file: Path) -> None:
    """Each table of things inside each other is read twice: half of an honest limit was lost."""
    write(file, {**ONE_CASE, "Activities": [{"testCaseRun_fk": 1, "title": "x" * 50}] * 2000})
    budget = Budget()
    read_cache(file, format="3.56", wanted=Wanted(activities=True), budget=budget)
    alone = Budget()
    with opened(file, budget=alone) as database:
        for table in (*ONE_CASE, "Activities"):
            list(database.rows(table))
    assert budget.held < 1.5 * alone.held
