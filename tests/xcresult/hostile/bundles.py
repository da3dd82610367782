"""Builds bundles with any tree of tests, with correct ids or, on request, wrong ones."""

from collections.abc import Iterable
from pathlib import Path

from tests.xcresult.writer.encoding import Typed, Value, reference, typed
from tests.xcresult.writer.storing import Store, write_info


def case(name: str, summary_id: str | None = None, **fields: Value) -> Typed:
    """The short form of a passing run."""
    return typed(
        "ActionTestMetadata",
        **{
            "identifier": f"Suite/{name}",
            "name": name,
            "testStatus": "Success",
            "duration": 0.5,
            "summaryRef": reference(summary_id, "ActionTestSummary"),
            **fields,
        },
    )


def group(name: str, inner: Iterable[Value]) -> Typed:
    return typed("ActionTestSummaryGroup", identifier=name, name=name, subtests=tuple(inner))


def summary(name: str, **fields: Value) -> Typed:
    """The long form of a failing run."""
    return typed(
        "ActionTestSummary",
        **{
            "identifier": f"Suite/{name}",
            "name": name,
            "testStatus": "Failure",
            "failureSummaries": (typed("ActionTestFailureSummary", message=f"{name} is broken"),),
            **fields,
        },
    )


def attachment(payload_id: str | None, **fields: Value) -> Typed:
    return typed(
        "ActionTestAttachment",
        **{
            "filename": "shot.png",
            "payloadRef": reference(payload_id),
            "payloadSize": 3,
            "uniformTypeIdentifier": "public.png",
            **fields,
        },
    )


def activity(**fields: Value) -> Typed:
    return typed("ActionTestActivitySummary", **{"title": "step", **fields})


def tests(*entries: Value) -> Typed:
    testable = typed("ActionTestableSummary", name="Target", targetName="Target", tests=entries)
    configuration = typed(
        "ActionTestPlanRunSummary", name="Configuration", testableSummaries=(testable,)
    )
    return typed("ActionTestPlanRunSummaries", summaries=(configuration,))


def record(tests_id: str | None, *, actions: int = 1, **fields: Value) -> Typed:
    action = typed(
        "ActionRecord",
        schemeCommandName="Test",
        testPlanName="Plan",
        actionResult=typed(
            "ActionResult",
            status="succeeded",
            testsRef=reference(tests_id, "ActionTestPlanRunSummaries"),
            **fields,
        ),
    )
    return typed("ActionsInvocationRecord", actions=(action,) * actions)


class Bundle:
    """Builds a bundle."""

    def __init__(self, path: Path, *, minor: int = 56) -> None:
        self.path = path
        self.minor = minor
        self.store = Store(path, explicit=False)

    def put(self, value: Typed) -> str:
        return self.store.put_object(value)

    def finish(self, *entries: Value, **fields: Value) -> Path:
        """Write the tests with these entries, the root, and Info.plist."""
        return self.finish_with(self.put(record(self.put(tests(*entries)), **fields)))

    def finish_with(self, root_id: str) -> Path:
        write_info(self.path, minor=self.minor, root_id=root_id, created=0.0)
        return self.path

    def file(self, object_id: str, kind: str = "data") -> Path:
        return self.path / "Data" / f"{kind}.{object_id}"
