"""Builds bundles in memory, object by object, for shapes that no available real bundle has."""

from typing import Any

from tests.xcresult import memory
from tests.xcresult.reader.encoding import encode

from runyard.xcresult.reader.ids import content_id
from runyard.xcresult.reader.model import Result, Wanted
from runyard.xcresult.reader.objects import Info
from runyard.xcresult.reader.result import read_result

SUPERTYPES = {
    "ActionTestSummaryGroup": ("ActionTestSummaryIdentifiableObject", "ActionAbstractTestSummary"),
    "ActionTestMetadata": ("ActionTestSummaryIdentifiableObject", "ActionAbstractTestSummary"),
    "ActionTestSummary": ("ActionTestSummaryIdentifiableObject", "ActionAbstractTestSummary"),
}


class Memory(memory.Memory):
    """Objects by content id."""

    def put(self, payload: bytes) -> str:
        object_id = content_id((), [payload])
        self.payloads[object_id] = payload
        return object_id

    def add(self, value: Any) -> str:
        return self.put(encode(value, supertypes=SUPERTYPES))


def text(value: object) -> tuple[str, str]:
    return ("String", str(value))


def node(kind: str, **members: Any) -> tuple[str, dict[str, Any]]:
    """An object; plain strings and numbers become scalars, None is left out."""
    return (kind, {key: _value(one) for key, one in members.items() if one is not None})


def _value(one: Any) -> Any:
    if isinstance(one, bool):
        return ("Bool", "true" if one else "false")
    if isinstance(one, int | float | str):
        return text(one)
    if isinstance(one, list):
        return [_value(each) for each in one]
    return one


def ref(object_id: str | None) -> Any:
    return node("Reference", id=object_id) if object_id else None


def run(name: str, status: str = "Success", **members: Any) -> Any:
    """A run's short form."""
    members = {"identifier": f"Suite/{name}", "duration": 1.5} | members
    return node("ActionTestMetadata", name=name, testStatus=status, **members)


def group(name: str, *subtests: Any, **members: Any) -> Any:
    members = {"identifier": name} | members
    return node("ActionTestSummaryGroup", name=name, subtests=list(subtests), **members)


def module(*tests: Any, name: str = "AppTests", **members: Any) -> Any:
    return node("ActionTestableSummary", name=name, targetName=name, tests=list(tests), **members)


def plan_run(*testables: Any, configuration: str = "Test Scheme Action") -> Any:
    return node(
        "ActionTestPlanRunSummaries",
        summaries=[
            node("ActionTestPlanRunSummary", name=configuration, testableSummaries=list(testables))
        ],
    )


def device(name: str) -> Any:
    return node(
        "ActionRunDestinationRecord",
        displayName=name,
        targetDeviceRecord=node(
            "ActionDeviceRecord",
            name=name,
            operatingSystemVersion="26.0",
            platformRecord=node("ActionPlatformRecord", userDescription="iOS Simulator"),
        ),
    )


def action(
    tests_id: str | None, *, log_id: str | None = None, plan: str | None = "Plan", name: str = "A"
) -> Any:
    result = node("ActionResult", status="succeeded", testsRef=ref(tests_id), logRef=ref(log_id))
    return node(
        "ActionRecord",
        schemeCommandName="Test",
        testPlanName=plan,
        actionResult=result,
        runDestination=device(name),
    )


def root(store: Memory, *actions: Any) -> str:
    return store.add(node("ActionsInvocationRecord", actions=list(actions)))


def read(store: Memory, root_id: str, *, minor: int = 56, **kwargs: Any) -> Result:
    info = Info(major=3, minor=minor, root_id=root_id)
    return read_result(store, info, wanted=kwargs.pop("wanted", Wanted()), **kwargs)


def read_tests(store: Memory, *testables: Any, minor: int = 56, **kwargs: Any) -> Result:
    """Read a bundle with one action and these targets."""
    return read(store, root(store, action(store.add(plan_run(*testables)))), minor=minor, **kwargs)
