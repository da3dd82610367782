"""Compares our reading of a bundle's store with Apple's cache of the same bundle.

The cache does not contain everything. Data that it never contains is removed from both sides (`without`), by the same
rules for all bundles:
- no logs: durations of targets and of the whole, and those of cases and suites whose runs have none;
- no object ids but those of payloads and diagnostics; no sizes and no presence of payloads;
- nothing of an action's task, title and status, of a target's language and region;
- its build issues are mixed with those of the action, so it has none.
What it has only sometimes is compared when it is there: for data of older Xcodes it leaves identifiers NULL for
tests that passed (the identifier can be made again, its URL cannot), and the version of Xcode is new in it. An
action has tests there only when some ran. The time of an attachment may be cut to the second. The settings of a
UI test have another order in each run, and in the cache the labels of the first run: only their values are
compared. The scheme of a merged bundle is a project file there, and absent in the store.
"""

from collections.abc import Iterator

import msgspec

from runyard.xcresult.reader.model import Action, Case, Result, Run, Suite, Target

SECONDS = 1e-6
CUT = 1.0
SETTING = "XCUI"

Plain = object


def differences(store: Result, cache: Result) -> list[str]:
    """List every difference that no rule explains, one line each."""
    found = list(_differences(_plain(without(store)), _plain(without(cache)), "result"))
    return [
        f"{path}: {ours!r} in the store, {theirs!r} in the cache" for path, ours, theirs in found
    ]


def without(result: Result) -> Result:
    """Remove from the result what a cache never contains."""
    return msgspec.structs.replace(
        result,
        source="store",
        scheme="",
        duration=None,
        build_issues=(),
        warnings=(),
        actions=tuple(_action(action, result) for action in result.actions),
        targets=tuple(_target(target) for target in result.targets),
        suites=tuple(_suite(suite, result) for suite in result.suites),
        cases=tuple(_case(case) for case in result.cases),
    )


def _action(action: Action, result: Result) -> Action:
    ran = {run.action for case in result.cases for run in case.runs}
    return msgspec.structs.replace(
        action,
        task="",
        title="",
        status="",
        build_status="",
        log_id="",
        coverage_report_id="",
        coverage_archive_id="",
        plan=action.plan or result.test_plan or "",
        has_tests=result.actions.index(action) in ran,
    )


def _target(target: Target) -> Target:
    return msgspec.structs.replace(target, duration=None, language="", region="")


def _suite(suite: Suite, result: Result) -> Suite:
    runs = [
        run
        for case in result.cases
        if (case.plan, case.target, case.suites) == (suite.plan, suite.target, suite.path)
        for run in case.runs
    ]
    if any(run.duration for run in runs):
        return suite
    return msgspec.structs.replace(suite, duration=None)


def _case(case: Case) -> Case:
    has_duration = any(run.duration for run in case.runs)
    return msgspec.structs.replace(
        case,
        duration=case.duration if has_duration else None,
        runs=tuple(_run(run) for run in case.runs),
    )


def _run(run: Run) -> Run:
    arguments = tuple(
        msgspec.structs.replace(each, label="") if each.label.startswith(SETTING) else each
        for each in run.arguments
    )
    return msgspec.structs.replace(run, summary_id="", arguments=arguments)


def _plain(result: Result) -> Plain:
    return msgspec.to_builtins(result)


ABSENT = frozenset({"size", "present"})
SOMETIMES = frozenset({"identifier_url", "framework", "xcode"})


def _differences(ours: Plain, theirs: Plain, path: str) -> Iterator[tuple[str, Plain, Plain]]:
    name = path.rpartition(".")[2]
    if name in ABSENT or (name in SOMETIMES and theirs == ""):
        return
    if isinstance(ours, float) and isinstance(theirs, float):
        allowed = CUT if path.endswith("attachments.timestamp") else SECONDS
        if abs(ours - theirs) >= allowed:
            yield path, ours, theirs
    elif isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted(ours.keys() | theirs.keys()):
            yield from _differences(ours.get(key), theirs.get(key), f"{path}.{key}")
    elif isinstance(ours, tuple | list) and isinstance(theirs, tuple | list):
        if len(ours) != len(theirs):
            yield path, ours, theirs
        for one, other in zip(ours, theirs, strict=False):
            yield from _differences(one, other, path)
    elif ours != theirs:
        yield path, ours, theirs
