"""A package finds its SQL by name, and the error for a missing statement names the file."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runyard.db.statements import MissingStatement, load


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    folder = tmp_path / "made_up_package"
    (folder / "sql").mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "sql" / "claim_job.sql").write_text(
        "-- Takes 100% of the oldest job.\nUPDATE chores\n  SET a = '--'  \n\nWHERE id = %(id)s;\n",
        encoding="utf-8",
    )
    (folder / "sql" / "all_jobs.sql").write_text("-- All.\nSELECT 1", encoding="utf-8")
    (folder / "sql" / "notes.txt").write_text("no statement", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield "made_up_package"
    sys.modules.pop("made_up_package", None)


def test_a_statement_is_found_by_item_and_by_attribute(package: str) -> None:
    statements = load(package)
    assert list(statements) == ["all_jobs", "claim_job"]
    assert statements["all_jobs"] == statements.all_jobs == "SELECT 1"
    assert "claim_job" in statements and "notes" not in statements


def test_comments_and_the_semicolon_are_not_sent(package: str) -> None:
    assert load(package).claim_job == "UPDATE chores\n  SET a = '--'\nWHERE id = %(id)s"


def test_a_missing_statement_names_the_file(package: str) -> None:
    statements = load(package)
    with pytest.raises(MissingStatement, match=r"made_up_package/sql/nothing\.sql does not exist"):
        statements["nothing"]
    with pytest.raises(AttributeError, match=r"made_up_package/sql/nothing\.sql"):
        _ = statements.nothing


def test_a_package_without_sql_is_an_error() -> None:
    with pytest.raises(MissingStatement, match="runyard/wire/sql does not exist"):
        load("runyard.wire")
