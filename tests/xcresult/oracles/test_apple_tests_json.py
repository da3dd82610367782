"""Tests the tree of Apple's `get test-results tests`: every node of a real run, and each rule on small results."""

import json
from collections import Counter
from collections.abc import Iterator

import msgspec
import pytest
from tests.xcresult import fixtures

from runyard.xcresult.bundle.reading import read_bundle
from runyard.xcresult.formats.apple import Node, apple_duration, apple_tests
from runyard.xcresult.reader.aggregation import case_status
from runyard.xcresult.reader.model import (
    Action,
    Argument,
    Case,
    Device,
    ExpectedFailure,
    Failure,
    Place,
    Repetition,
    Result,
    Run,
    Skip,
    Suite,
    Target,
)

MIXED = "fastlane__Xcode26-Mixed-XCTest-SwiftTesting"
Json = dict[str, object]


def nodes(node: Json, path: tuple[object, ...] = ()) -> Iterator[tuple[tuple[object, ...], Json]]:
    here = (*path, node["nodeType"], node["name"], node.get("nodeIdentifier"))
    yield here, node
    children = node.get("children", [])
    assert isinstance(children, list)
    for child in children:
        yield from nodes(child, here)


def nodes_by(document: Json, *keys: str) -> Counter[tuple[object, ...]]:
    roots = document["testNodes"]
    assert isinstance(roots, list)
    return Counter(
        (path, *(_stable(node.get(key)) for key in keys))
        for root in roots
        for path, node in nodes(root)
    )


def _stable(value: object) -> object:
    """Seconds to the microsecond; tags as a set, since Apple's order of them changes from call to call."""
    if isinstance(value, float | int):
        return round(value, 6)
    return tuple(sorted(value)) if isinstance(value, list) else value


def test_every_node_of_apples_own_output_is_ours() -> None:
    expected = json.loads(fixtures.expected(f"{MIXED}.json").read_text(encoding="utf-8"))
    result = read_bundle(fixtures.bundle(MIXED))
    ours = json.loads(msgspec.json.encode(apple_tests(result)))
    assert ours["devices"] == expected["devices"]
    assert ours["testPlanConfigurations"] == expected["testPlanConfigurations"]
    everything = ("result", "nodeIdentifierURL", "durationInSeconds", "duration", "details", "tags")
    assert nodes_by(ours).total() == 633
    for key in everything:
        assert nodes_by(ours, key) == nodes_by(expected, key), key
    timed = [node for node in nodes_by(expected, "durationInSeconds") if node[1] is not None]
    assert len(timed) == 397


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "0s"),
        (0.00048601627349853516, "0.00049s"),
        (0.003999948501586914, "0.004s"),
        (0.1016470193862915, "0.1s"),
        (0.26620590686798096, "0.27s"),
        (8.790099024772644, "8s"),
        (60.5, "1m"),
        (3725.0, "1h 2m 5s"),
    ],
)
def test_durations_are_formatted_like_apples_tool(seconds: float, words: str) -> None:
    assert apple_duration(seconds) == words


def run(status: str = "Success", **fields: object) -> Run:
    return msgspec.convert(
        {"action": 0, "configuration": "Default", "status": status, **fields}, Run
    )


def result(*runs: Run, suites: tuple[str, ...] = ("Suite",), kind: str = "") -> Result:
    case = Case(
        plan="Plan",
        target="Tests",
        suites=suites,
        identifier="/".join((*suites, "test()")),
        name="Shown",
        status=case_status(runs),
        runs=runs,
    )
    devices = (Device(name="iPhone", identifier="A"), Device(name="iPad", identifier="B"))
    return Result(
        format="3.56",
        source="store",
        actions=tuple(Action(device=device, has_tests=True) for device in devices),
        targets=(Target(plan="Plan", name="Tests", kind=kind, identifier_url="test://x/Tests"),),
        suites=tuple(
            Suite(plan="Plan", target="Tests", path=suites[:end], name=suites[end - 1])
            for end in range(1, len(suites) + 1)
        ),
        cases=(case,),
    )


def case_node(made: Result) -> Node:
    node = apple_tests(made).test_nodes[0]
    while node.node_type != "Test Case":
        (node,) = node.children
    return node


def shape(children: tuple[Node, ...]) -> list[tuple[str, str, str]]:
    return [(child.node_type, child.name, child.result) for child in children]


def test_a_run_without_groups_has_the_message_itself() -> None:
    failure = Failure(message="no", place=Place("/src/A.swift", 3))
    nested = Failure(message="inside", top_level=False)
    node = case_node(result(run("Failure", failures=(failure, nested), duration=2.0)))
    assert shape(node.children) == [("Failure Message", "A.swift:3: no", "")]
    assert (node.result, node.duration, node.duration_in_seconds) == ("Failed", "2s", 2.0)


def test_skips_and_expected_failures_have_a_reason() -> None:
    skipped = case_node(result(run("Skipped", skip=Skip(message="not here"))))
    assert shape(skipped.children) == [("Failure Message", "not here", "")]
    expected = ExpectedFailure(reason="known", failure=Failure(message="x"))
    failed = case_node(result(run("Expected Failure", expected_failures=(expected,))))
    assert shape(failed.children) == [("Failure Message", "known", "")]
    assert failed.result == "Expected Failure"


def test_the_mean_leaves_out_what_took_no_time() -> None:
    repeated = [Repetition(number, 2, "RunRetryOnFailure") for number in (1, 2)]
    node = case_node(
        result(run("Failure", repetition=repeated[0]), run(repetition=repeated[1], duration=4.0))
    )
    assert node.duration_in_seconds == 4.0
    assert shape(node.children) == [
        ("Repetition", "First Run", "Failed"),
        ("Repetition", "Retry 1", "Passed"),
    ]
    assert node.result == "Passed"


def test_a_repetition_without_duration_lasted_from_its_first_issue_to_its_last() -> None:
    issues = tuple(Failure(message="x", timestamp=moment) for moment in (10.0, 10.5, 10.25))
    node = case_node(
        result(
            run("Failure", failures=issues, repetition=Repetition(1, 2, "RunRetryOnFailure")),
            run("Failure", repetition=Repetition(2, 2, "RunRetryOnFailure")),
        )
    )
    assert [child.duration_in_seconds for child in node.children] == [0.5, 0.0]
    assert node.duration_in_seconds is None
    assert node.details == "Failed after 2 retries"


def test_devices_then_configurations_then_arguments_part_the_runs() -> None:
    made = result(
        run(arguments=(Argument(value="2"),)),
        run(arguments=(Argument(value="1"),)),
        run("Failure", action=1),
        run("Skipped", action=1, configuration="Dark"),
    )
    phone, pad = case_node(made).children
    assert (phone.node_type, phone.name, phone.node_identifier) == ("Device", "iPhone", "A")
    assert shape(phone.children) == [("Arguments", "1", "Passed"), ("Arguments", "2", "Passed")]
    assert shape(pad.children) == [
        ("Test Plan Configuration", "Default", "Failed"),
        ("Test Plan Configuration", "Dark", "Skipped"),
    ]
    assert pad.result == "Failed"


def test_two_actions_on_one_device_are_one_device() -> None:
    node = case_node(result(run("Failure"), run(action=1, device=0)))
    assert shape(node.children) == [
        ("Repetition", "First Run", "Failed"),
        ("Repetition", "Retry 1", "Passed"),
    ]


def test_a_function_in_no_suite_is_shown_in_the_one_that_apples_tool_makes_up() -> None:
    (target,) = apple_tests(result(run(), suites=(), kind="UI")).test_nodes[0].children
    assert target.node_type == "UI test bundle"
    (suite,) = target.children
    assert (suite.name, suite.node_identifier_url) == (
        "Top-level Tests",
        "test://x/Tests/$TopLevelTests",
    )


def test_a_result_without_tests_is_a_document_without_nodes() -> None:
    empty = apple_tests(Result(format="3.56", source="store"))
    assert json.loads(msgspec.json.encode(empty)) == {
        "devices": [],
        "testNodes": [],
        "testPlanConfigurations": [],
    }
