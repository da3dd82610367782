"""Tests how many runs become one status, by Apple's rules."""

import pytest

from runyard.xcresult.reader.aggregation import case_status, combine, is_flaky, mean_duration
from runyard.xcresult.reader.model import Argument, Repetition, Run, Status


def run(
    status: Status,
    iteration: int = 0,
    *,
    mode: str = "RunRetryOnFailure",
    action: int = 0,
    configuration: str = "c",
    arguments: tuple[str, ...] = (),
) -> Run:
    return Run(
        action=action,
        configuration=configuration,
        status=status,
        repetition=Repetition(iteration, 3, mode) if iteration else None,
        arguments=tuple(Argument(value=value, label=value[:1]) for value in arguments),
    )


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ((), "Skipped"),
        (("Skipped",), "Skipped"),
        (("Skipped", "Expected Failure"), "Expected Failure"),
        (("Skipped", "Expected Failure", "Success"), "Success"),
        (("Success", "Failure", "Skipped"), "Failure"),
    ],
)
def test_failure_outweighs_success_outweighs_the_rest(
    statuses: tuple[Status, ...], expected: Status
) -> None:
    assert combine(statuses) == expected


def test_the_last_retry_decides_in_whatever_order_they_are_listed() -> None:
    runs = (run("Success", 3), run("Failure", 1), run("Failure", 2))
    assert case_status(runs) == "Success"
    assert is_flaky(runs)
    assert case_status((run("Failure", 2), run("Success", 1))) == "Failure"


def test_a_repetition_that_is_no_retry_counts_each_time() -> None:
    runs = (run("Failure", 1, mode="FixedIterations"), run("Success", 2, mode="FixedIterations"))
    assert case_status(runs) == "Failure"
    assert not is_flaky(runs)


def test_retries_of_one_device_do_not_excuse_another() -> None:
    good = (run("Failure", 1), run("Success", 2))
    assert case_status((*good, run("Failure", 1, action=1))) == "Failure"
    assert case_status((*good, run("Failure", 1, configuration="d"))) == "Failure"
    assert case_status((*good, run("Failure", 1, arguments=("x",)))) == "Failure"
    assert is_flaky((*good, run("Success", 1, action=1)))


def test_arguments_are_a_set_whatever_their_order() -> None:
    runs = (run("Failure", 1, arguments=("a1", "b1")), run("Success", 2, arguments=("b1", "a1")))
    assert case_status(runs) == "Success"


def test_a_single_success_is_not_flaky() -> None:
    assert not is_flaky((run("Success", 1),))
    assert not is_flaky((run("Success"), run("Success")))


def test_unmeasured_durations_do_not_count() -> None:
    assert mean_duration([0.0, 2.0, 4.0]) == 3.0
    assert mean_duration([0.0]) is None
    assert mean_duration([]) is None


def test_arguments_without_names_keep_their_order() -> None:
    failed, passed = (
        run("Failure", 1, arguments=("_1", "_2")),
        run("Success", 2, arguments=("_2", "_1")),
    )
    assert case_status((failed, passed)) == "Failure", "f(1, 2) is not f(2, 1)"
