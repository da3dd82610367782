"""Tests the test tree: suites, cases, runner errors, and the effect of damage."""

from typing import Any

import pytest
from tests.xcresult.reader import stores
from tests.xcresult.reader.stores import Memory, action, group, module, node, plan_run, ref, run

from runyard.xcresult.errors import BundleInvalid, TooLarge
from runyard.xcresult.reader.figures import figures
from runyard.xcresult.reader.ids import content_id
from runyard.xcresult.reader.model import Place, Wanted
from runyard.xcresult.reader.report import report
from runyard.xcresult.reader.result import StoreStripped
from runyard.xcresult.reader.verdict import Verdict, verdict

NOWHERE = content_id((), [b"not there"])


def failure(message: str = "it failed", **members: Any) -> Any:
    return node("ActionTestFailureSummary", message=message, **members)


def summary(name: str = "testA()", **members: Any) -> Any:
    return node("ActionTestSummary", name=name, identifier=f"Suite/{name}", **members)


def one_run(long: Any, *, minor: int = 56, wanted: Wanted = Wanted()) -> Any:  # noqa: B008  (frozen)
    store = Memory()
    short = run("testA()", summaryRef=ref(store.add(long)))
    result = stores.read_tests(store, module(group("Suite", short)), minor=minor, wanted=wanted)
    assert result.warnings == ()
    return result.cases[0].runs[0]


def test_groups_that_only_wrap_are_no_suites() -> None:
    wrapped = group(
        "All tests",
        group("AppTests", group("Outer", group("Inner", run("a()"))), identifier="AppTests.xctest"),
    )
    selected = group("Selected tests", group("AppTests.xctest", group("Outer", run("b()"))))
    bare = run("c()", identifier="c()")
    inner = group("Outer", group("All tests", run("d()")))
    result = stores.read_tests(Memory(), module(wrapped, selected, bare, inner))
    assert [(case.suites, case.function) for case in result.cases] == [
        (("Outer", "Inner"), "a()"),
        (("Outer",), "b()"),
        ((), "c()"),
        (("Outer", "All tests"), "d()"),
    ]
    assert [suite.path for suite in result.suites] == [
        ("Outer",),
        ("Outer", "Inner"),
        ("Outer", "All tests"),
    ]


def test_one_name_in_two_targets_is_two_cases() -> None:
    targets = [module(group("Suite", run("a()")), name=name) for name in ("One", "Two")]
    result = stores.read_tests(Memory(), *targets)
    assert [case.target for case in result.cases] == ["One", "Two"]


def test_devices_and_configurations_are_runs_and_test_plans_are_cases() -> None:
    store = Memory()
    tree = module(group("Suite", run("a()")))
    first, second = (store.add(plan_run(tree, configuration=name)) for name in ("de", "en"))
    actions = [
        action(first, name="A"),
        action(second, name="A"),
        action(first, name="B"),
        action(first, plan="Other"),
    ]
    result = stores.read(store, stores.root(store, *actions))
    assert [(case.plan, len(case.runs)) for case in result.cases] == [("Plan", 3), ("Other", 1)]
    runs = [(one.action, one.configuration) for one in result.cases[0].runs]
    assert runs == [(0, "de"), (1, "en"), (2, "de")]
    assert [one.device.name for one in result.actions] == ["A", "A", "B", "A"]


def test_tests_that_passed_do_not_hide_the_failed_build_of_a_merged_bundle() -> None:
    store = Memory()
    passed = action(store.add(plan_run(module(group("Suite", run("a()"))))))
    unbuilt = node(
        "ActionRecord",
        actionResult=node("ActionResult", status="cancelled"),
        buildResult=node("ActionResult", status="failed"),
    )
    result = stores.read(store, stores.root(store, passed, unbuilt))
    assert len(result.cases) == 1 and verdict(result) is Verdict.BUILD_FAILED


def test_a_long_form_inside_the_tree_is_a_run() -> None:
    inline = summary("a()", testStatus="Failure", duration=2.0, failureSummaries=[failure()])
    result = stores.read_tests(Memory(), module(group("Suite", inline)))
    (found,) = result.cases[0].runs
    assert (found.status, found.duration, found.failures[0].message) == (
        "Failure",
        2.0,
        "it failed",
    )


@pytest.mark.parametrize("activities", [True, False])
def test_the_short_form_has_the_duration_if_known(*, activities: bool) -> None:
    store = Memory()
    long = ref(store.add(summary("a()", testStatus="Success", duration=2.0)))
    entries = [
        run("a()", duration=0.0, summaryRef=long),
        run("b()", duration=1.0, summaryRef=long),
        run("c()", duration=None, summaryRef=long),
    ]
    wanted = Wanted(activities=activities)
    result = stores.read_tests(store, module(group("Suite", *entries)), wanted=wanted)
    assert [case.runs[0].duration for case in result.cases] == [0.0, 1.0, 2.0]


def test_display_names_win_and_functions_stay() -> None:
    store = Memory()
    long = store.add(summary("a()", summary="A nice name", testStatus="Success"))
    tree = module(group("Foo", run("a()", summaryRef=ref(long)), summary="Suite 1"))
    result = stores.read_tests(store, tree)
    assert (result.cases[0].name, result.cases[0].function) == ("A nice name", "a()")
    assert (result.suites[0].name, result.suites[0].path) == ("Suite 1", ("Foo",))


@pytest.mark.parametrize(
    ("minor", "url", "framework"),
    [
        (24, None, "XCTest"),
        (39, "test://com.apple.xcode/App/AppTests/Suite/testA", "XCTest"),
        (56, "test://com.apple.xcode/App/AppTests/Suite/example()", "Swift Testing"),
        (56, "test://com.apple.xcode/App/AppTests/Suite/example(value:)", "Swift Testing"),
        (56, None, ""),
    ],
)
def test_the_framework_is_derived_from_the_url(minor: int, url: str | None, framework: str) -> None:
    tree = module(group("Suite", run("a()", identifierURL=url)))
    assert stores.read_tests(Memory(), tree, minor=minor).cases[0].framework == framework


def test_a_place_is_taken_from_the_context_first() -> None:
    location = node("SourceCodeLocation", filePath="/src/b.swift", lineNumber=7)
    context = node("SourceCodeContext", location=location)
    found = one_run(
        summary(
            failureSummaries=[
                failure(fileName="/src/a.swift", lineNumber=3, sourceCodeContext=context),
                failure(fileName="/src/a.swift", lineNumber=3),
                failure(fileName="file:///src/with%20space.swift", lineNumber=4),
                failure(),
            ]
        )
    )
    assert [one.place for one in found.failures] == [
        Place("/src/b.swift", 7),
        Place("/src/a.swift", 3),
        Place("/src/with space.swift", 4),
        None,
    ]


@pytest.mark.parametrize(("minor", "levels"), [(24, [True, True]), (26, [True, False])])
def test_before_the_field_existed_every_failure_was_top_level(
    minor: int, levels: list[bool]
) -> None:
    failures = [failure(isTopLevelFailure=True), failure()]
    found = one_run(summary(failureSummaries=failures), minor=minor)
    assert [one.top_level for one in found.failures] == levels


def test_arguments_of_older_formats_sit_in_the_configuration() -> None:
    pair = node("SortedKeyValueArrayPair", key="XCUIAppearanceMode", value="2")
    values = node("SortedKeyValueArray", storage=[pair])
    configuration = node("ActionTestConfiguration", values=values)
    found = one_run(summary(configuration=configuration), minor=34)
    assert [(one.label, one.value) for one in found.arguments] == [("XCUIAppearanceMode", "2")]


def attachment(name: str, **members: Any) -> Any:
    return node("ActionTestAttachment", filename=name, payloadRef=ref(NOWHERE), **members)


def test_attachments_are_found_wherever_they_hang_and_know_their_failure() -> None:
    activities = [
        node(
            "ActionTestActivitySummary",
            title="outer",
            failureSummaryIDs=["F1"],
            attachments=[attachment("a")],
            subactivities=[
                node("ActionTestActivitySummary", title="inner", attachments=[attachment("b")])
            ],
        ),
        node(
            "ActionTestActivitySummary",
            title="elsewhere",
            failureSummaryIDs=["of another run"],
            attachments=[attachment("c"), attachment("d", uuid="D")],
        ),
    ]
    failures = [failure(uuid="F1", attachments=[attachment("d", uuid="D"), attachment("e")])]
    expected = [
        node(
            "ActionTestExpectedFailure",
            failureReason="known",
            failureSummary=failure(attachments=[attachment("f")]),
        )
    ]
    long = summary(
        activitySummaries=activities, failureSummaries=failures, expectedFailures=expected
    )
    found = one_run(long, wanted=Wanted(activities=True))
    marks = {one.filename: one.on_failure for one in found.attachments}
    assert marks == {"a": True, "b": True, "c": False, "d": True, "e": True, "f": False}
    assert not any(one.present for one in found.attachments)
    assert found.activities[0].activities[0].title == "inner"
    assert one_run(long).activities == ()


def test_skips_repetitions_metrics_tags_and_bugs_are_read() -> None:
    store = Memory()
    long = summary(
        testStatus="Skipped",
        skipNoticeSummary=node(
            "ActionTestNoticeSummary", message="not now", fileName="/a.swift", lineNumber=6
        ),
        repetitionPolicySummary=node(
            "ActionTestRepetitionPolicySummary",
            iteration=2,
            totalIterations=3,
            repetitionMode="FixedIterations",
        ),
        performanceMetrics=[
            node(
                "ActionTestPerformanceMetricSummary",
                identifier="m",
                measurements=[0.5, "nan", "x", 1.5],
                maxPercentRegression=10.0,
            )
        ],
        tags=[node("TestTag", name="slow")],
        trackedIssues=[node("IssueTrackingMetadata", identifier="1", url="https://x.example")],
        documentation=[node("TestDocumentation", content="why")],
    )
    tree = module(group("Suite", run("a()", "Skipped", summaryRef=ref(store.add(long)))))
    case = stores.read_tests(store, tree).cases[0]
    found = case.runs[0]
    assert found.skip and (found.skip.message, found.skip.place) == (
        "not now",
        Place("/a.swift", 6),
    )
    assert found.repetition and (found.repetition.iteration, found.repetition.total) == (2, 3)
    assert found.metrics[0].measurements == (0.5, 1.5)
    assert found.metrics[0].max_percent_regression == 10.0
    assert [tag.name for tag in case.tags] == ["slow"]
    assert case.bugs[0].url == "https://x.example"
    assert case.documentation == ("why",)


RUNNER = "AppTests-Runner (4242) encountered an error"


@pytest.mark.parametrize(
    "name",
    [
        RUNNER,
        "App encountered an error",
        "App (7) encountered an error (Early unexpected exit)",
        "Something that no version has said yet",
    ],
)
@pytest.mark.parametrize("long", [True, False])
def test_a_runner_that_failed_is_an_error_and_no_test(name: str, *, long: bool) -> None:
    entry = node(
        "ActionTestSummary" if long else "ActionTestMetadata",
        name=name,
        identifier=name,
        testStatus="Failure",
        failureSummaries=[failure("could not launch")] if long else None,
    )
    tree = module(group("System Failures", entry), failureSummaries=[failure("could not launch")])
    result = stores.read_tests(Memory(), tree)
    assert [case.runner_error for case in result.cases] == [True]
    found = [(error.target, error.message, error.fatal) for error in result.errors]
    assert found == [("AppTests", "could not launch", True)]
    assert report(result).status == "failure"
    assert report(result).test_modules == ()


def test_a_failed_runner_without_a_message_is_an_error() -> None:
    entry = node("ActionTestMetadata", name=RUNNER, identifier=RUNNER, testStatus="Failure")
    result = stores.read_tests(Memory(), module(group("System Failures", entry)))
    assert [error.message for error in result.errors] == [RUNNER]


def test_issues_without_a_test_are_errors_that_do_not_fail_the_run() -> None:
    name = "Issues recorded without an associated test or suite"
    for identifier in (name, None):
        entry = summary(name, testStatus="Failure", failureSummaries=[failure("A"), failure("A")])
        entry[1].pop("identifier")
        if identifier:
            entry[1]["identifier"] = stores.text(identifier)
        result = stores.read_tests(Memory(), module(entry, group("Suite", run("a()"))))
        assert [case.sessionless for case in result.cases] == [True, False]
        (error,) = result.errors
        assert error.message == "Issue recorded without an associated test: A"
        assert not error.fatal
        assert report(result).status == "success"


def test_a_test_that_merely_reads_like_an_error_is_kept() -> None:
    store = Memory()
    long = store.add(summary("a()", summary="App encountered an error", testStatus="Success"))
    tree = module(
        group(
            "Suite",
            run("a()", summaryRef=ref(long)),
            run("App encountered an error", identifierURL="test://x/y"),
        ),
        group("System Failures", run("testDisk()", identifier="System Failures/testDisk()")),
    )
    result = stores.read_tests(store, tree)
    assert not any(case.runner_error for case in result.cases)
    assert result.errors == ()


def test_a_failure_of_the_target_alone_fails_the_run() -> None:
    tree = module(group("Suite", run("a()")), failureSummaries=[failure("crashed at start")])
    result = stores.read_tests(Memory(), tree)
    assert [target.status for target in result.targets] == ["Failure"]
    assert [error.message for error in result.errors] == ["crashed at start"]
    assert report(result).status == "failure"


@pytest.mark.parametrize("damage", [None, b"", b"[T[K2:_nV1:A]", b"[T[K2:_nV5:Array]]", b"junk"])
def test_a_damaged_summary_costs_its_details_only(damage: bytes | None) -> None:
    store = Memory()
    summary_id = NOWHERE if damage is None else store.put(damage)
    entries = [run("a()", "Failure", summaryRef=ref(summary_id)), run("b()")]
    result = stores.read_tests(store, module(group("Suite", *entries)))
    assert [(case.status, case.duration) for case in result.cases] == [
        ("Failure", 1.5),
        ("Success", 1.5),
    ]
    assert [warning.object_id for warning in result.warnings] == [summary_id]


def test_one_bad_object_is_one_warning_however_often_it_is_named() -> None:
    entries = [run(f"t{n}()", summaryRef=ref(NOWHERE)) for n in range(5)]
    result = stores.read_tests(Memory(), module(group("Suite", *entries)))
    assert len(result.warnings) == 1
    assert len(result.cases) == 5


def test_without_its_root_there_is_no_result() -> None:
    store = Memory()
    with pytest.raises(StoreStripped, match="root"):
        stores.read(store, NOWHERE)
    for data in (b"", b"junk", b"[T[K2:_nV5:Array]]"):
        with pytest.raises(BundleInvalid, match="root"):
            stores.read(store, store.put(data))
    with pytest.raises(BundleInvalid, match="ActionsInvocationRecord"):
        stores.read(store, store.add(node("SomethingElse")))


def test_tests_that_cannot_be_read_are_no_empty_success() -> None:
    store = Memory()
    with pytest.raises(StoreStripped):
        stores.read(store, stores.root(store, action(NOWHERE)))
    with pytest.raises(BundleInvalid):
        stores.read(store, stores.root(store, action(store.put(b"junk"))))


def test_one_action_that_cannot_be_read_leaves_the_others() -> None:
    store = Memory()
    good = store.add(plan_run(module(group("Suite", run("a()")))))
    result = stores.read(store, stores.root(store, action(NOWHERE), action(good)))
    assert len(result.cases) == 1
    assert result.cases[0].runs[0].action == 1
    assert len(result.warnings) == 1


def test_unknown_words_and_types_are_no_success_and_no_crash() -> None:
    later = node("ActionTestSummaryGroup2", name="New", identifier="New", subtests=[run("b()")])
    strange = node("Strange", name="x")
    tree = module(group("Suite", run("a()", "Exploded")), later, strange)
    result = stores.read_tests(Memory(), tree, minor=99)
    assert [case.status for case in result.cases] == ["Failure", "Success"]
    words = ("format 3.99 is newer", "'Exploded' of a test counts as a failure", "'Strange'")
    for word, warning in zip(words, result.warnings, strict=True):
        assert word in warning.message
    assert stores.read_tests(Memory(), module(group("S", run("a()"))), minor=60).warnings == ()


def test_members_of_the_wrong_kind_count_as_absent() -> None:
    wrong = [("String", "x")]
    long = node(
        "ActionTestSummary",
        name=wrong,
        arguments=("String", "x"),
        failureSummaries=[("String", "x"), node("ActionTestFailureSummary", message=wrong)],
        activitySummaries=node("Odd"),
        repetitionPolicySummary=("String", "1"),
        performanceMetrics=[wrong],
        tags=("Odd", {}),
    )
    found = one_run(long, wanted=Wanted(activities=True))
    assert len(found.failures) == 1
    assert found.failures[0].message == ""


def test_a_million_references_to_one_large_object_end_in_an_error() -> None:
    store = Memory()
    large = store.add(summary("a()", tags=[stores.text("x" * 10_000)]))
    entries = [run(f"t{n}()", summaryRef=ref(large)) for n in range(100)]
    with pytest.raises(TooLarge, match="decoded_bytes"):
        stores.read_tests(store, module(group("Suite", *entries)), budget=200_000)
    few = [run(f"t{n}()", summaryRef=ref(large)) for n in range(3)]
    result = stores.read_tests(store, module(group("Suite", *few)), budget=1_000_000)
    assert result.warnings == ()


def test_absurd_nesting_is_damage() -> None:
    deep: Any = run("a()")
    for level in range(150):
        deep = group(f"S{level}", deep)
    with pytest.raises(BundleInvalid, match="levels"):
        stores.read_tests(Memory(), module(deep))
    activity: Any = node("ActionTestActivitySummary", title="last")
    for _ in range(90):
        activity = node("ActionTestActivitySummary", title="x", subactivities=[activity])
    found = one_run(summary(activitySummaries=[activity]), wanted=Wanted(activities=True))
    assert found.activities[0].activities


def test_the_scheme_stands_in_for_a_plan_that_has_no_name() -> None:
    store = Memory()
    metadata = store.add(
        node(
            "ActionsInvocationMetadata",
            schemeIdentifier=node("EntityIdentifier", entityName="Scheme"),
        )
    )
    tests_id = store.add(plan_run(module(group("Suite", run("a()")))))
    top = node(
        "ActionsInvocationRecord",
        actions=[action(tests_id, plan=None)],
        metadataRef=ref(metadata),
    )
    result = stores.read(store, store.add(top), minor=24)
    assert (result.test_plan, result.scheme, result.cases[0].plan) == ("Scheme",) * 3


def test_a_merged_bundle_does_not_have_a_test_plan_without_a_name() -> None:
    store = Memory()
    halves = [store.add(plan_run(module(group("Suite", run(name))))) for name in ("a()", "b()")]
    top = stores.root(store, *(action(tests_id, plan=None) for tests_id in halves))
    result = stores.read(store, top, minor=34)
    assert len(result.cases) == 2
    assert result.test_plan is None and report(result).test_plan_name is None
    assert figures(result, objects=0, objects_hash_ok=0)["test_plan"] is None


def test_words_that_some_versions_keep_elsewhere_are_found() -> None:
    store = Memory()
    long = summary(
        testStatus="Success",
        arguments=[node("TestArgument", description="3", typeName="Int")],
        tags=[node("TestTag", identifier="slow")],
        trackedIssues=[node("IssueTrackingMetadata", identifier="1", summary="known")],
        warningSummaries=[
            node(
                "ActionTestIssueSummary",
                detailedDescription="look here",
                attachments=[attachment("w")],
            )
        ],
    )
    tree = module(group("Suite", run("a()", summaryRef=ref(store.add(long)))))
    case = stores.read_tests(store, tree).cases[0]
    found = case.runs[0]
    assert (found.arguments[0].value, found.arguments[0].type_name) == ("3", "Int")
    assert (case.tags[0].name, case.bugs[0].comment) == ("slow", "known")
    assert found.issue_warnings[0].message == "look here"
    assert [(one.filename, one.on_failure) for one in found.attachments] == [("w", False)]


def retried(store: Memory, status: str, iteration: int) -> Any:
    policy = node(
        "ActionTestRepetitionPolicySummary", iteration=iteration, repetitionMode="RunRetryOnFailure"
    )
    long = summary(testStatus=status, repetitionPolicySummary=policy, duration=iteration)
    return run("testA()", status, summaryRef=ref(store.add(long)))


def test_a_device_that_two_merged_bundles_ran_on_is_one_device() -> None:
    store = Memory()
    first = plan_run(module(group("Suite", retried(store, "Failure", 1))))
    second = plan_run(
        module(group("Suite", retried(store, "Success", 2), retried(store, "Failure", 1)))
    )
    actions = [action(store.add(one)) for one in (first, second)]
    case = stores.read(store, stores.root(store, *actions)).cases[0]
    assert [(one.action, one.where) for one in case.runs] == [(0, 0), (1, 0), (1, 0)]
    assert (case.status, case.flaky) == ("Success", True), "its highest iteration succeeded"
    others = [action(store.add(one), name=name) for one, name in ((first, "A"), (second, "B"))]
    case = stores.read(store, stores.root(store, *others)).cases[0]
    assert case.status == "Failure", "two devices are two outcomes"
