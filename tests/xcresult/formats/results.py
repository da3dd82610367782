"""Builds results for the tests of formats, with everything that a format shows."""

from msgspec.structs import replace

from runyard.xcresult.reader.aggregation import runs_duration
from runyard.xcresult.reader.model import (
    Action,
    Argument,
    BuildIssue,
    Case,
    Device,
    ExpectedFailure,
    Failure,
    Place,
    Repetition,
    Result,
    Run,
    RunnerError,
    Skip,
    Status,
    Suite,
    Target,
)
from runyard.xcresult.reader.model import Warning as BundleWarning

SOURCE = "/Users/ci/app/Tests/CartTests.swift"
PHONE = Device(name="iPhone 17", identifier="PHONE-1", platform="iOS Simulator", os_version="26.0")
PAD = Device(name="iPad Air", identifier="PAD-1", platform="iOS Simulator", os_version="26.0")


def failure(message: str = "1 is not 2", line: int = 7, *, top_level: bool = True) -> Failure:
    return Failure(
        message=message,
        place=Place(SOURCE, line),
        issue_type="Assertion Failure",
        top_level=top_level,
    )


def run(
    status: Status = "Success",
    *,
    duration: float = 0.25,
    retry: int = 0,
    mode: str = "RunRetryOnFailure",
    argument: str = "",
    action: int = 0,
    configuration: str = "Test Scheme Action",
    failures: tuple[Failure, ...] = (),
    expected: tuple[ExpectedFailure, ...] = (),
    skip: Skip | None = None,
) -> Run:
    return Run(
        action=action,
        configuration=configuration,
        status=status,
        duration=duration,
        repetition=Repetition(retry, 3, mode) if retry else None,
        arguments=(Argument(value=argument),) if argument else (),
        failures=failures,
        expected_failures=expected,
        skip=skip,
    )


def case(
    name: str,
    *runs: Run,
    status: Status = "Success",
    target: str = "AppTests",
    suites: tuple[str, ...] = ("CartTests",),
    flaky: bool = False,
    duration: float | None = None,
    display: str = "",
) -> Case:
    runs = runs or (run(status),)
    return Case(
        plan="App",
        target=target,
        suites=suites,
        identifier="/".join((*suites, name)),
        name=display or name,
        function=name,
        status=status,
        flaky=flaky,
        duration=runs_duration(runs, logged=duration),
        runs=runs,
    )


def result(
    *cases: Case, errors: tuple[RunnerError, ...] = (), issues: tuple[BuildIssue, ...] = ()
) -> Result:
    places = dict.fromkeys((each.target, each.suites) for each in cases if each.suites)
    return Result(
        format="3.56",
        source="store",
        test_plan="App",
        actions=(
            Action(plan="App", device=PHONE, started=1_760_000_000.0, has_tests=True),
            Action(plan="App", device=PAD, started=1_760_000_001.0, has_tests=True),
        ),
        targets=tuple(
            Target(plan="App", name=name, duration=3.0)
            for name in dict.fromkeys(each.target for each in cases)
        ),
        suites=tuple(
            Suite(plan="App", target=target, path=path, name=path[-1], duration=1.5)
            for target, path in places
        ),
        cases=cases,
        errors=errors,
        build_issues=issues,
        duration=61.0,
        xcode="26.1 (17B100)",
    )


def everything() -> Result:
    """One of each kind."""
    made = result(
        case("testPass()"),
        case(
            "testFail()",
            run("Failure", failures=(failure(), failure("inner", 9, top_level=False))),
            status="Failure",
        ),
        case(
            "testFlaky()",
            run("Failure", retry=1, failures=(failure("now and then", 11),)),
            run("Success", retry=2, duration=0.5),
            flaky=True,
        ),
        case(
            "testStubborn()",
            run("Failure", retry=1, failures=(failure("first", 21),)),
            run("Failure", retry=2, failures=(failure("second", 22),)),
            status="Failure",
        ),
        case(
            "testSkip()",
            run("Skipped", duration=0.0, skip=Skip(message="not today")),
            status="Skipped",
        ),
        case(
            "testExpected()",
            run(
                "Expected Failure",
                expected=(ExpectedFailure(reason="known", failure=failure("as always", 31)),),
            ),
            status="Expected Failure",
        ),
        case(
            "sum(of:)",
            run(argument="1"),
            run("Failure", argument="2", failures=(failure("2 is odd", 41),)),
            status="Failure",
            suites=("Maths", "Sums"),
            display="Sums are right",
        ),
        case("everywhere()", run(), run(action=1), suites=(), target="OtherTests"),
        errors=(RunnerError(message="the runner crashed", target="UITests"),),
        issues=(
            BuildIssue(
                kind="warning", message="unused variable", place=Place("/Users/ci/app/App.swift", 3)
            ),
            BuildIssue(
                kind="error", message="no such module", place=Place("/Users/ci/app/App.swift", 1)
            ),
        ),
    )
    return replace(made, warnings=(BundleWarning(message="an object is missing", object_id="0~x"),))
