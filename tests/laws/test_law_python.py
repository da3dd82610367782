"""The repository obeys its laws of Python code, and each law can be broken."""

import re
from collections.abc import Callable
from pathlib import Path

import lawbook
import lawtree
import pytest

SRC = lawtree.ROOT / "src" / "runyard"
Law = Callable[[str], list[str]]


def inside(path: Path, *packages: str) -> bool:
    return any(path.is_relative_to(SRC / package) for package in packages)


def source() -> list[Path]:
    return lawtree.python("src")


def everywhere() -> list[Path]:
    return lawtree.python("src", "tests", "tools", "benches")


LAWS = {
    "modules have a docstring": (lawbook.missing_docstring, everywhere),
    "init files are empty": (
        lawbook.filled_init,
        lambda: [path for path in everywhere() if path.name == "__init__.py"],
    ),
    "modules have at most 600 lines": (lawbook.too_long_module, everywhere),
    "functions have at most 80 lines": (
        lawbook.too_long_functions,
        lambda: lawtree.python("src", "tools"),
    ),
    "constructors take at most seven arguments": (lawbook.too_many_arguments, source),
    "metric names live in the catalogue": (
        lawbook.metric_names,
        lambda: [path for path in source() if path != SRC / "telemetry" / "catalogue.py"],
    ),
    "wire names live in wire": (
        lawbook.wire_names,
        lambda: [path for path in source() if not inside(path, "wire")],
    ),
    "domains keep SQL in files": (
        lawbook.sql_in_python,
        lambda: [path for path in source() if inside(path, "node", "pools", "dispatch")],
    ),
    "only the command line prints": (
        lawbook.prints,
        lambda: [path for path in source() if not inside(path, "cli")],
    ),
    "tests do not wait for the wall clock": (lawbook.real_sleeps, lambda: lawtree.python("tests")),
    "no order is taken from a set": (lawbook.iterated_sets, source),
    "nothing is left open in a comment": (lawbook.unfinished_business, everywhere),
    "a suppression has a reason": (lawbook.unreasoned_suppressions, everywhere),
}


@pytest.mark.parametrize("title", LAWS)
def test_the_repository_obeys(title: str) -> None:
    law, files = LAWS[title]
    paths = files()
    assert paths, "a law that reads no file checks nothing"
    assert lawtree.break_law(law, paths) == []


BAD: list[tuple[Law, str]] = [
    (lawbook.missing_docstring, "x = 1\n"),
    (lawbook.filled_init, "from somewhere import everything\n"),
    (lawbook.too_long_module, "# line\n" * (lawbook.MODULE_LINES + 1)),
    (lawbook.too_long_functions, "def f():\n" + "    x = 1\n" * lawbook.FUNCTION_LINES),
    (lawbook.too_long_functions, "async def f():\n" + "    x = 1\n" * lawbook.FUNCTION_LINES),
    (
        lawbook.too_many_arguments,
        "class C:\n    def __init__(self, a, b, c, d, *, e, f, g, h):\n        pass\n",
    ),
    (lawbook.metric_names, "count('tart_kubelet_made_up')\n"),
    (lawbook.metric_names, "count('tuist_runners_made_up')\n"),
    (lawbook.metric_names, "count('runyard_made_up_total')\n"),
    (lawbook.wire_names, "label = 'tuist.dev/made-up'\n"),
    (lawbook.wire_names, "path = f'/api/internal/{x}'\n"),
    (lawbook.sql_in_python, "run('SELECT 1 FROM slots')\n"),
    (lawbook.sql_in_python, "run('''\n  with due as (select 1) select 2''')\n"),
    (lawbook.sql_in_python, "run('update slots set state = 1')\n"),
    (lawbook.prints, "def f():\n    print('x')\n"),
    (lawbook.prints, "breakpoint()\n"),
    (lawbook.real_sleeps, "import time\ntime.sleep(1)\n"),
    (lawbook.real_sleeps, "from time import sleep\n"),
    (lawbook.iterated_sets, "for x in {1, 2}:\n    pass\n"),
    (lawbook.iterated_sets, "y = [x for x in set(z)]\n"),
    (lawbook.unfinished_business, "x = 1  # TO" + "DO later\n"),
    (lawbook.unreasoned_suppressions, "x = 1  # noqa\n"),
    (lawbook.unreasoned_suppressions, "x = 1  # noqa: E501\n"),
    (lawbook.unreasoned_suppressions, "x = 1  # type: ignore\n"),
    (lawbook.unreasoned_suppressions, "x = 1  # type: ignore[arg-type]\n"),
    (lawbook.unreasoned_suppressions, "# ruff: noqa\n"),
]


@pytest.mark.parametrize(
    ("law", "sample"), BAD, ids=[f"{law.__name__}-{n}" for n, (law, _) in enumerate(BAD)]
)
def test_a_breach_is_seen(law: Law, sample: str) -> None:
    assert len(law(sample)) == 1


GOOD: list[tuple[Law, str]] = [
    (lawbook.missing_docstring, '"""The story."""\nx = 1\n'),
    (lawbook.missing_docstring, ""),
    (lawbook.filled_init, ""),
    (
        lawbook.too_many_arguments,
        "class C:\n    def __init__(self, a, b, c, d, *, e, f, g):\n        pass\n",
    ),
    (lawbook.metric_names, '"""tart_kubelet_made_up"""\n'),
    (lawbook.metric_names, "import_module('runyard.cli.tart_kubelet')\n"),
    (lawbook.wire_names, "def f():\n    '''Reads tuist.dev/x.'''\n"),
    (lawbook.sql_in_python, "say('Updated 3 rows')\n"),
    (lawbook.iterated_sets, "for x in sorted({2, 1}):\n    pass\n"),
    (lawbook.unreasoned_suppressions, "x = 1  # noqa: BLE001 - the loop's boundary\n"),
    (lawbook.unreasoned_suppressions, "x = 1  # noqa: BLE001, S110  # the loop's boundary\n"),
    (lawbook.unreasoned_suppressions, "x = 1  # type: ignore[misc]  # untyped library\n"),
    (lawbook.unreasoned_suppressions, "x = '# noqa'\n"),
]


@pytest.mark.parametrize(
    ("law", "sample"), GOOD, ids=[f"{law.__name__}-{n}" for n, (law, _) in enumerate(GOOD)]
)
def test_obedience_is_not_blamed(law: Law, sample: str) -> None:
    assert law(sample) == []


def test_every_law_has_a_breach_that_shows_it_can_fail() -> None:
    held = {law for law, _ in LAWS.values()}
    shown = {law for law, _ in BAD}
    assert held == shown


def test_two_test_files_of_one_name_would_shadow_each_other() -> None:
    names = [path.name for path in lawtree.python("tests") if path.name.startswith("test_")]
    assert sorted(names) == sorted(set(names))


def test_every_declared_metric_is_written() -> None:
    """A metric that no code writes is an empty panel that looks like calm."""
    catalogue = SRC / "telemetry" / "catalogue.py"
    declared = re.findall(
        r"^([A-Z_]+) = (?:gauge|counter|histogram)\(", catalogue.read_text(), re.MULTILINE
    )
    others = [path for path in sorted(SRC.rglob("*.py")) if path != catalogue]
    written = {
        word for path in others for word in re.findall(r"\b[A-Z_]+\b", path.read_text("utf-8"))
    }
    assert declared
    assert [name for name in declared if name not in written] == []
