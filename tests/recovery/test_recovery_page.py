"""The measured part of docs/recovery.md is about the code as it is: it names no transaction that no longer exists.

Only the page's table and the source are read. After a transaction was renamed or removed the first test fails until
`make recovery-table` has measured the page again.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from benches.recovery import rows, table
from benches.recovery.run import PAGE

SOURCE = Path(__file__).parents[2] / "src" / "runyard"
COMMIT = "commit: "
# The methods whose keyword `name` is the name of a transaction.
NAMED = {"transact", "_transact", "apply_to_slot", "apply_to_known", "insert_job"}


@cache
def transactions() -> re.Pattern[str]:
    """Matches the names of all transactions in the source."""
    sources = (path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py")))
    found = {
        pattern
        for source in sources
        if any(f"{name}(" in source for name in NAMED)
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call) and getattr(call.func, "attr", "") in NAMED
        for keyword in call.keywords
        if keyword.arg == "name"
        for pattern in patterns(keyword.value)
    }
    return re.compile("|".join(sorted(found)))


def patterns(value: ast.expr) -> Iterator[str]:
    """The text of a constant, or of a formatted string with anything in its gaps."""
    if isinstance(value, ast.JoinedStr):
        yield "".join(
            re.escape(str(part.value)) if isinstance(part, ast.Constant) else ".+"
            for part in value.values
        )
    elif isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield re.escape(value.value)


def unknown(names: list[str]) -> list[str]:
    return [name for name in names if not transactions().fullmatch(name)]


def measured(page: str) -> list[str]:
    """The transactions in the table of effects."""
    table_of_effects = page.partition(table.BEGIN)[2].partition(table.END)[0]
    return re.findall(rf"^\| `{COMMIT}([^`]+)`", table_of_effects, flags=re.MULTILINE)


def test_the_measured_page_names_no_transaction_that_does_not_exist_any_more() -> None:
    found = measured(PAGE.read_text(encoding="utf-8"))
    assert len(found) > 20, "the table of effects was not found"
    stale = unknown(found)
    assert not stale, f"not in the source any more: {stale}; run `make recovery-table`"


def test_the_rows_classify_no_transaction_that_does_not_exist_any_more() -> None:
    text = Path(rows.__file__).read_text(encoding="utf-8")
    found = re.findall(rf'"{COMMIT}([^"$]+)', text)
    assert "claim" in found and not unknown(found)


@pytest.mark.parametrize(
    "name", ["claim", "webhook", "swept", "arm", "prune jobs", "mark recorded"]
)
def test_a_transaction_that_exists_is_found(name: str) -> None:
    assert not unknown([name])


def test_a_page_of_an_older_release_is_noticed() -> None:
    page = f"{table.BEGIN}\n| `{COMMIT}of old` | 1 s | 2 s |\n| `{COMMIT}claim` (in the repair) |\n{table.END}"
    assert unknown(measured(page)) == ["of old"]
