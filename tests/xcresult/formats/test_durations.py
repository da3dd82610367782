"""Tests that a repeated test has the same duration in every format."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable

import pytest
from tests.xcresult import fixtures
from tests.xcresult.formats.results import case, failure, result, run

from runyard.cli.xcresultpaint import plain
from runyard.xcresult.bundle.reading import read_bundle
from runyard.xcresult.formats import words
from runyard.xcresult.formats.apple import Node, apple_tests
from runyard.xcresult.formats.comparing import compare
from runyard.xcresult.formats.groups import groups
from runyard.xcresult.formats.junit import junit
from runyard.xcresult.formats.markdown import markdown
from runyard.xcresult.formats.tree import tree
from runyard.xcresult.reader.model import Case, Result, Status
from runyard.xcresult.reader.report import milliseconds, report
from runyard.xcresult.reader.verdict import tests

RETRY = "RunRetryOnFailure"


def repeated(*steps: tuple[Status, float], mode: str = RETRY, logged: float | None = None) -> Case:
    runs = [
        run(
            status,
            duration=time,
            retry=number,
            mode=mode,
            failures=(failure(),) if status == "Failure" else (),
        )
        for number, (status, time) in enumerate(steps, start=1)
    ]
    return case("a()", *runs, status=steps[-1][0], duration=logged)


TABLE = {
    "passed on a retry": (repeated(("Failure", 0.2), ("Success", 0.6)), 0.4),
    "never passed": (repeated(("Failure", 0.3), ("Failure", 0.1)), 0.2),
    "fixed iterations": (repeated(("Success", 0.1), ("Success", 0.3), mode="FixedIterations"), 0.2),
    "one run without a time": (repeated(("Failure", 0.0), ("Success", 0.5)), 0.5),
    "only the log has a time": (repeated(("Failure", 0.0), ("Success", 0.0), logged=0.7), 0.7),
    "one run": (repeated(("Success", 0.3)), 0.3),
}


def entries(made: Result) -> list[ET.Element]:
    return list(ET.fromstring("\n".join(junit([made])).encode()).iter("testcase"))


def apple_cases(nodes: Iterable[Node]) -> list[Node]:
    found = []
    for node in nodes:
        found += [node] if node.node_type == "Test Case" else apple_cases(node.children)
    return found


@pytest.mark.parametrize(("one", "seconds"), TABLE.values(), ids=TABLE)
def test_formats_do_not_disagree_about_the_duration(one: Case, seconds: float) -> None:
    made, text = result(one), words.duration_text(seconds)
    (entry,) = entries(made)
    assert entry.attrib["time"] == f"{seconds:.6f}"
    assert f"a()  {text}" in plain(tree(made, title="x"))
    assert re.findall(r"a\(\)` \| (.*) \|", markdown(made, title="x")) == [text]
    (module,) = report(made).test_modules
    assert module.test_cases[0].duration == milliseconds(one.duration)
    (change,) = compare(result(), made).added
    assert change.after_seconds == one.duration == pytest.approx(seconds)
    (node,) = apple_cases(apple_tests(made).test_nodes)
    measured = any(each.duration for each in one.runs)
    assert node.duration_in_seconds == (one.duration if measured else None), "as Apple's tool"


def test_a_set_of_arguments_does_not_have_the_duration_of_the_whole_test() -> None:
    runs = (run(argument="1", duration=0.1), run(argument="2", duration=0.3))
    made = result(case("a()", *runs))
    assert [each.attrib["time"] for each in entries(made)] == ["0.100000", "0.300000"]
    (module,) = report(made).test_modules
    assert [each.duration for each in module.test_cases[0].arguments] == [100, 300]


@pytest.mark.parametrize("name", fixtures.parameters())
def test_junit_has_the_duration_of_the_tree_for_each_test_of_a_bundle(name: str) -> None:
    made = read_bundle(fixtures.bundle(name))
    alone = [(case, found[0]) for case in tests(made) if len(found := groups(case)) == 1]
    assert [case.duration for case, _ in alone] == [group.duration for _, group in alone]
    written = [float(each.attrib["time"]) for each in entries(made) if "time" in each.attrib]
    known = [group.duration for case in tests(made) for group in groups(case)]
    assert sorted(written) == sorted(round(each, 6) for each in known if each is not None)
