"""Reads a whole bundle: from the root object to the model's `Result`.

The root must exist and have its type. Each action's tests are read object by object and dropped once they are mapped,
then its log. Damaged tests of an action are a warning as long as another action can be read; otherwise there is no
result.
"""

from collections.abc import Callable

from runyard.xcresult.errors import BundleInvalid, TooLarge
from runyard.xcresult.reader.actions import read_action, same_devices
from runyard.xcresult.reader.budget import Budget
from runyard.xcresult.reader.cases import (
    freeze_cases,
    freeze_suites,
    freeze_targets,
    runner_errors,
)
from runyard.xcresult.reader.decode import DEPTH, Node
from runyard.xcresult.reader.deferred import LocalReaders, Readers
from runyard.xcresult.reader.durations import total
from runyard.xcresult.reader.fields import brief, child, children, kind, reference, text
from runyard.xcresult.reader.graph import BUDGET, Graph
from runyard.xcresult.reader.issues import read_build_issues
from runyard.xcresult.reader.logs import Log
from runyard.xcresult.reader.model import Action, Result, Wanted
from runyard.xcresult.reader.objects import Info, Objects
from runyard.xcresult.reader.walk import Walk
from runyard.xcresult.reader.xcode import xcode_version

ROOT = "ActionsInvocationRecord"
XCODE_ACTIONS = 3
"""Number of actions whose diagnostics are searched for the version of Xcode."""
NEWEST = 60
"""The newest minor version that this reader was tested with."""
ACTIONS = 1_000
"""More actions than any real bundle has, with many devices and merged bundles."""


class StoreStripped(BundleInvalid):
    """The store lacks objects that every result needs."""


def read_result(
    objects: Objects,
    info: Info,
    *,
    wanted: Wanted = Wanted(),  # noqa: B008  (frozen)
    depth: int = DEPTH,
    budget: int = BUDGET,
    spending: Budget | None = None,
    readers: Callable[[Graph], Readers] = LocalReaders,
) -> Result:
    """Read the bundle; `readers` may read parts of it in other processes.

    `budget` limits the bytes of typed objects, `spending` the work and the memory.
    """
    if not objects.has(info.root_id):
        raise StoreStripped(f"the root object is missing ({info.root_id})")
    graph = Graph(objects, depth=depth, budget=budget, spending=spending)
    root = _root(graph, info)
    scheme = _scheme(graph, root)
    records = children(root, "actions")
    if len(records) > ACTIONS:
        raise TooLarge(f"the bundle has more than {ACTIONS} actions")
    actions = tuple(read_action(one) for one in records)
    reading = readers(graph)
    logs = [(one.plan or scheme, reading.log(one.log_id)) for one in actions if wanted.logs]
    walk = Walk(graph, reading, minor=info.minor, activities=wanted.activities)
    _walk_tests(walk, records, actions, scheme=scheme)
    reading.finish()
    by_plan: dict[str, list[Log]] = {}
    for plan, log_of in logs:
        if (log := log_of()) is not None:
            by_plan.setdefault(plan, []).append(log)
    cases = freeze_cases(walk, by_plan)
    targets = freeze_targets(walk, cases, by_plan)
    return Result(
        format=f"{info.major}.{info.minor}",
        source="store",
        test_plan=next((action.plan for action in actions if action.plan), scheme) or None,
        scheme=scheme,
        actions=actions,
        targets=targets,
        suites=freeze_suites(walk, cases, by_plan),
        cases=cases,
        errors=runner_errors(cases, targets),
        build_issues=tuple(
            issue for one in records for issue in read_build_issues(child(one, "buildResult"))
        ),
        warnings=graph.warnings,
        duration=total(log for logs in by_plan.values() for log in logs),
        xcode=_xcode(objects, actions),
    )


def _root(graph: Graph, info: Info) -> Node:
    root = graph.need(info.root_id, what="the root object")
    if kind(root) != ROOT:
        raise BundleInvalid(f"the root object is not {ROOT} but {brief(kind(root))}")
    if info.minor > NEWEST:
        graph.warn(
            f"format {info.major}.{info.minor} is newer than any known one (up to"
            f" {info.major}.{NEWEST}): its new parts were left out"
        )
    return root


def _xcode(objects: Objects, actions: tuple[Action, ...]) -> str:
    for action in actions[:XCODE_ACTIONS]:
        if version := xcode_version(objects, action.diagnostics_id):
            return version
    return ""


def _scheme(graph: Graph, root: Node) -> str:
    metadata_id = reference(root, "metadataRef")
    if not metadata_id:
        return ""
    with graph.spending.passing():
        metadata = graph.load(metadata_id, what="the invocation's metadata") or {}
        return text(child(metadata, "schemeIdentifier"), "entityName")


def _walk_tests(
    walk: Walk, records: list[Node], actions: tuple[Action, ...], *, scheme: str
) -> None:
    problems: list[str] = []
    readable = 0
    devices = same_devices(actions)
    for index, (record, action) in enumerate(zip(records, actions, strict=True)):
        tests_id = reference(child(record, "actionResult"), "testsRef")
        if not tests_id:
            continue
        try:
            with walk.graph.spending.passing():
                # the tree of one action is dropped before the next one is read
                walk.tests(
                    walk.graph.need(tests_id, what="the tests of an action"),
                    action=index,
                    device=devices[index],
                    plan=action.plan or scheme,
                )
        except BundleInvalid as error:
            walk.graph.warn(str(error), object_id=tests_id)
            problems.append(tests_id)
        else:
            readable += 1
    if problems and not readable:
        stripped = not any(walk.graph.objects.has(one) for one in problems)
        causes = [one for one in walk.graph.warnings if one.object_id in problems]
        raise (StoreStripped if stripped else BundleInvalid)(
            "; ".join(one.message for one in causes)
        )
