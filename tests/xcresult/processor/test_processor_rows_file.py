"""Tests that untrusted text is changed to text that Postgres accepts, in batches that can be loaded."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from runyard.xcresult.processor import rows_file
from runyard.xcresult.processor.rows_file import LARGEST, LONGEST, RowsFile, batches, clean


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("plain", "plain"),
        ("nul\x00byte", "nul\ufffdbyte"),
        ("half \ud83d of a pair", "half \ufffd of a pair"),
        ("größe 😀", "größe 😀"),
        ("x" * (LONGEST + 5), "x" * (LONGEST - 1) + "…"),
    ],
    ids=["plain", "nul", "surrogate", "unicode", "long"],
)
def test_text_that_postgres_refuses_is_replaced(text: str, taken: str) -> None:
    assert clean(text) == taken


@given(some.text(alphabet=some.characters(exclude_categories=())))
def test_any_text_becomes_one_that_can_be_written(text: str) -> None:
    taken = clean(text)
    assert "\x00" not in taken
    taken.encode()


def test_batches_are_whole_in_order_and_not_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_file, "BATCH", 3)
    path = tmp_path / "rows"
    with RowsFile(path) as file:
        file.add("modules", [{"name": "a\tb\nc\x00"}])
        file.add("suites", ({"suite": number} for number in range(7)))
        file.add("cases", [])
    found = [(table, json.loads(text)) for table, text in batches(path)]
    assert [(table, len(rows)) for table, rows in found] == [
        ("modules", 1),
        ("suites", 3),
        ("suites", 3),
        ("suites", 1),
    ]
    assert found[0][1] == [{"name": "a\tb\nc\ufffd"}]
    assert [table for table, _ in batches(path, "modules")] == ["modules"]


def test_a_file_whose_writer_failed_is_not_mistaken_for_a_whole_one(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    with pytest.raises(OSError, match="full"), RowsFile(path) as file:
        file.add("modules", [{"name": "a"}])
        raise OSError("full")
    assert list(batches(path)) == []


def test_a_number_that_no_column_holds_is_the_largest_that_one_does(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    with RowsFile(path) as file:
        file.add("cases", [{"long": 10**21, "short": -(10**21), "flag": True, "none": None}])
    ((_, text),) = batches(path)
    assert json.loads(text) == [{"long": LARGEST, "short": -LARGEST, "flag": True, "none": None}]
