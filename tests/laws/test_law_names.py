"""Public names are never renamed or removed, and no name becomes public by accident."""

import ast
import importlib
from enum import StrEnum

import frozen_names
import lawtree
import pytest

from runyard.wire.kube_reasons import KubeCode
from runyard.wire.reasons import Code

GONE = (
    "the source no longer has these public names: dashboards, alerts, scripts and stored rows use them. Restore them;"
    " add a new name beside an old one instead of renaming it"
)
NEW = "these names become public and cannot be changed later: choose them with care, then run `make docs`"
BASES = frozenset({"Code", "KubeCode"})


def frozen() -> frozenset[str]:
    return frozen_names.listed(frozen_names.LIST.read_text(encoding="utf-8"))


def test_every_frozen_name_still_exists() -> None:
    assert sorted(frozen() - frozen_names.public_names()) == [], GONE


def test_every_public_name_is_frozen() -> None:
    assert sorted(frozen_names.public_names() - frozen()) == [], NEW


def test_every_enum_of_reason_codes_is_listed() -> None:
    found: list[type[Code]] = []
    for path in lawtree.python("src"):
        text = path.read_text(encoding="utf-8")
        if not any(f"({base})" in text for base in BASES):
            continue
        module = ".".join(path.relative_to(lawtree.ROOT / "src").with_suffix("").parts)
        found += [
            getattr(importlib.import_module(module), node.name)
            for node in ast.parse(text).body
            if isinstance(node, ast.ClassDef)
            and BASES & {base.id for base in node.bases if isinstance(base, ast.Name)}
        ]
    assert len(found) > 25
    listed = set(frozen_names.ENUMS.values())
    assert [enum for enum in found if enum not in listed and enum is not KubeCode] == []


@pytest.mark.parametrize(
    "line",
    [
        "metric tuist_runners_webhook_count{action,outcome} counter",
        "value tuist_runners_webhook_count outcome=invalid",
        "loop denied-access",
        "condition database-unreachable",
        "component operator",
        "reason/transition fence-deleted",
        "reason/problem signature-invalid",
        "reason/delivery-outcome invalid",
        "drain-reason pod already committed",
    ],
)
def test_each_kind_of_name_is_listed(line: str) -> None:
    assert line in frozen()


def test_a_renamed_reason_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Renamed(StrEnum):
        FENCE_DELETED = "runner-deleted"

    monkeypatch.setitem(frozen_names.ENUMS, "reason/transition", Renamed)
    names = frozen_names.public_names()
    assert "reason/transition fence-deleted" in frozen() - names
    assert names - frozen() == {"reason/transition runner-deleted"}


def test_the_tool_adds_names_and_removes_none() -> None:
    before = "# comment\nloop b\n"
    assert frozen_names.extended(before, frozenset({"loop a"})) == "# comment\nloop a\nloop b\n"


def test_the_list_is_as_the_tool_writes_it() -> None:
    text = frozen_names.LIST.read_text(encoding="utf-8")
    assert frozen_names.extended(text, frozen_names.public_names()) == text, "run `make docs`"
