"""Formats a result like Apple's `xcresulttool get test-results tests`, for tools that expect that JSON.

A tree of nodes: plan, bundle, suites, cases. Below a case are its runs, grouped only where they differ: by device if
there are several, then by configuration, arguments and repetition. A node whose runs need no groups has the messages
itself. Apple's rules: a case's duration is the mean of its runs' non-zero durations, and absent if all are zero;
functions outside any suite are in a suite "Top-level Tests"; argument sets are sorted by name.

Not included, because a result does not have them: insights, and Apple's nodes for captured values.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from runyard.xcresult.formats import words
from runyard.xcresult.formats.groups import Group, groups
from runyard.xcresult.reader.aggregation import RETRY, combine, runs_duration
from runyard.xcresult.reader.arguments import shown
from runyard.xcresult.reader.model import (
    Case,
    Device,
    Result,
    Run,
    Status,
    Suite,
    Target,
)
from runyard.xcresult.reader.report import repetition_name

RESULTS: dict[Status, str] = {
    "Success": "Passed",
    "Failure": "Failed",
    "Skipped": "Skipped",
    "Expected Failure": "Expected Failure",
}
PRECEDENCE = ("Failed", "Passed", "Expected Failure", "Skipped")
TOP_LEVEL = "$TopLevelTests"


class Node(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A node of Apple's tree. Empty fields are omitted."""

    name: str
    node_type: str
    result: str = ""
    node_identifier: str = ""
    node_identifier_url: str = msgspec.field(default="", name="nodeIdentifierURL")
    duration: str = ""
    duration_in_seconds: float | None = None
    details: str = ""
    tags: tuple[str, ...] = ()
    children: "tuple[Node, ...]" = ()


class DeviceShape(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A device that tests ran on."""

    architecture: str
    device_id: str
    device_name: str
    model_name: str
    os_build_number: str
    os_version: str
    platform: str


class ConfigurationShape(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A configuration of a test plan."""

    configuration_id: str
    configuration_name: str


class Tests(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The whole document."""

    devices: tuple[DeviceShape, ...]
    test_nodes: tuple[Node, ...]
    test_plan_configurations: tuple[ConfigurationShape, ...]


def apple_tests(result: Result) -> Tests:
    """Build the document; msgspec writes it as JSON with Apple's names."""
    tested = [action for action in result.actions if action.has_tests]
    configurations = _configurations(result.cases)
    plans = dict.fromkeys(target.plan for target in result.targets)
    writer = _Writer(result, configurations)
    return Tests(
        devices=tuple(dict.fromkeys(_device(action.device) for action in tested)),
        test_nodes=tuple(writer.plan(plan) for plan in plans),
        test_plan_configurations=tuple(
            ConfigurationShape(configuration_id=str(number), configuration_name=name)
            for name, number in configurations.items()
        ),
    )


class _Writer:
    def __init__(self, result: Result, configurations: dict[str, int]) -> None:
        self._result = result
        self._configurations = configurations
        self._targets: dict[str, list[Target]] = {}
        self._statuses: dict[tuple[str, str], list[Status]] = {}
        self._suites: dict[tuple[str, str, tuple[str, ...]], list[Suite]] = {}
        self._cases: dict[tuple[str, str, tuple[str, ...]], list[Case]] = {}
        for suite in result.suites:
            key = (suite.plan, suite.target, suite.path[:-1])
            self._suites.setdefault(key, []).append(suite)
        for case in result.cases:
            self._cases.setdefault((case.plan, case.target, case.suites), []).append(case)
            self._statuses.setdefault((case.plan, case.target), []).append(case.status)
        for target in result.targets:
            self._targets.setdefault(target.plan, []).append(target)

    def plan(self, plan: str) -> Node:
        targets = self._targets.get(plan, [])
        statuses = [one for each in targets for one in self._status(each)]
        return Node(
            name=plan,
            node_type="Test Plan",
            result=_result(statuses),
            children=tuple(self._target(target) for target in targets),
        )

    def _target(self, target: Target) -> Node:
        key = (target.plan, target.name, ())
        children = [self._suite(suite) for suite in self._suites.get(key, ())]
        loose = self._cases.get(key, [])
        if loose:
            url = f"{target.identifier_url}/{TOP_LEVEL}" if target.identifier_url else ""
            children.append(
                Node(
                    name=words.TOP_LEVEL,
                    node_type="Test Suite",
                    result=_result([case.status for case in loose]),
                    node_identifier_url=url,
                    children=tuple(self._case(case) for case in loose),
                )
            )
        return Node(
            name=target.name,
            node_type="UI test bundle" if target.kind == "UI" else "Unit test bundle",
            result=_result(self._status(target)),
            node_identifier_url=target.identifier_url,
            children=tuple(children),
        )

    def _status(self, target: Target) -> list[Status]:
        return self._statuses.get((target.plan, target.name), [])

    def _suite(self, suite: Suite) -> Node:
        key = (suite.plan, suite.target, suite.path)
        inner = [self._suite(child) for child in self._suites.get(key, ())]
        cases = [self._case(case) for case in self._cases.get(key, ())]
        children = (*inner, *cases)
        return Node(
            name=suite.name,
            node_type="Test Suite",
            result=_combined_nodes(children) or RESULTS[suite.status],
            node_identifier_url=suite.identifier_url,
            tags=tuple(tag.name for tag in suite.tags),
            children=children,
        )

    def _case(self, case: Case) -> Node:
        found = groups(case)
        seconds = runs_duration(case.runs)
        return Node(
            name=case.name,
            node_type="Test Case",
            result=RESULTS[case.status],
            node_identifier=case.identifier,
            node_identifier_url=case.identifier_url,
            duration=apple_duration(seconds) if seconds is not None else "",
            duration_in_seconds=seconds,
            details=_details(found[0]) if len(found) == 1 else "",
            tags=tuple(tag.name for tag in case.tags),
            children=self._by_device(found),
        )

    def _by_device(self, found: Sequence[Group]) -> tuple[Node, ...]:
        parted = _parted(found, lambda group: group.action)
        if len(parted) < 2:
            return self._by_configuration(found)
        return tuple(self._device(same) for same in parted)

    def _device(self, same: Sequence[Group]) -> Node:
        action = same[0].action
        known = action < len(self._result.actions)
        device = self._result.actions[action].device if known else Device()
        return _part(
            same,
            name=device.name,
            node_type="Device",
            identifier=device.identifier,
            details=f"{device.platform} {device.os_version}".strip(),
            children=self._by_configuration(same),
        )

    def _by_configuration(self, found: Sequence[Group]) -> tuple[Node, ...]:
        parted = _parted(found, lambda group: group.configuration)
        if len(parted) < 2:
            return _by_arguments(found)
        return tuple(
            _part(
                same,
                name=same[0].configuration,
                node_type="Test Plan Configuration",
                identifier=str(self._configurations.get(same[0].configuration, "")),
                children=_by_arguments(same),
            )
            for same in parted
        )


def _by_arguments(found: Sequence[Group]) -> tuple[Node, ...]:
    if len(found) == 1 and not found[0].arguments:
        return _runs(found[0])
    nodes = [_arguments(group) for group in found]
    return tuple(sorted(nodes, key=lambda node: node.name))


def _arguments(group: Group) -> Node:
    alone = len(group.runs) == 1
    seconds = _run_seconds(group.runs[0])
    return Node(
        name=shown(group.arguments).replace("\n", " "),
        node_type="Arguments",
        result=RESULTS[group.status],
        duration=apple_duration(seconds) if alone else "",
        duration_in_seconds=seconds if alone else None,
        details=_details(group),
        children=_runs(group),
    )


def _runs(group: Group) -> tuple[Node, ...]:
    """The repetitions, or the messages if there was only one run."""
    if len(group.runs) == 1:
        return _messages(group.runs[0])
    return tuple(_repetition(number, run) for number, run in enumerate(group.runs, 1))


def _repetition(number: int, run: Run) -> Node:
    iteration = run.repetition.iteration if run.repetition else number
    seconds = _run_seconds(run)
    return Node(
        name=repetition_name(iteration),
        node_type="Repetition",
        result=RESULTS[run.status],
        node_identifier=str(iteration),
        duration=apple_duration(seconds),
        duration_in_seconds=seconds,
        children=_messages(run),
    )


def _messages(run: Run) -> tuple[Node, ...]:
    if run.status == "Failure":
        texts = [words.located_message(failure) for failure in run.failures if failure.top_level]
    elif run.status == "Expected Failure":
        texts = [each.reason for each in run.expected_failures if each.top_level and each.reason]
    elif run.status == "Skipped" and run.skip is not None:
        texts = [run.skip.message]
    else:
        texts = []
    return tuple(Node(name=text, node_type="Failure Message") for text in texts)


def _details(group: Group) -> str:
    """The text that Apple's tool adds to a test or argument set whose last retry failed."""
    last = group.runs[-1]
    retried = last.repetition is not None and last.repetition.mode == RETRY
    if not retried or len(group.runs) < 2 or group.status != "Failure":
        return ""
    return f"Failed after {len(group.runs)} retries"


def apple_duration(seconds: float) -> str:
    """Format a duration like Apple's tool: two digits below a second, whole units above."""
    if seconds <= 0:
        return "0s"
    if seconds < 1:
        digits = f"{float(f'{seconds:.1e}'):.12f}".rstrip("0").rstrip(".")
        return f"{digits}s"
    whole = int(seconds)
    parts = ((whole // 3600, "h"), (whole // 60 % 60, "m"), (whole % 60, "s"))
    return " ".join(f"{number}{unit}" for number, unit in parts if number)


def _part(
    same: Sequence[Group],
    *,
    name: str,
    node_type: str,
    identifier: str,
    children: tuple[Node, ...],
    details: str = "",
) -> Node:
    seconds = runs_duration(run for group in same for run in group.runs)
    return Node(
        name=name,
        node_type=node_type,
        result=RESULTS[combine(group.status for group in same)],
        node_identifier=identifier,
        duration=apple_duration(seconds) if seconds is not None else "",
        duration_in_seconds=seconds,
        details=details,
        children=children,
    )


def _parted(found: Sequence[Group], key: Callable[[Group], object]) -> list[list[Group]]:
    parts: dict[object, list[Group]] = {}
    for group in found:
        parts.setdefault(key(group), []).append(group)
    return list(parts.values())


def _run_seconds(run: Run) -> float:
    """A run's duration; if it has none, the time from its first issue to its last."""
    if run.duration:
        return run.duration
    moments = [each.timestamp for each in run.failures if each.timestamp is not None]
    return max(moments) - min(moments) if moments else 0.0


def _result(statuses: Sequence[Status]) -> str:
    return RESULTS[combine(statuses)] if statuses else ""


def _combined_nodes(nodes: Iterable[Node]) -> str:
    named = {node.result for node in nodes}
    return next((word for word in PRECEDENCE if word in named), "")


def _configurations(cases: Iterable[Case]) -> dict[str, int]:
    names = dict.fromkeys(run.configuration for case in cases for run in case.runs)
    return {name: number for number, name in enumerate(names, 1)}


def _device(device: Device) -> DeviceShape:
    return DeviceShape(
        architecture=device.architecture,
        device_id=device.identifier,
        device_name=device.name,
        model_name=device.model_name,
        os_build_number=device.os_build,
        os_version=device.os_version,
        platform=device.platform,
    )
