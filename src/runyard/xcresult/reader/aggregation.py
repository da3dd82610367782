"""Aggregates runs to one status, by Apple's rules.

- One (device, configuration, argument set) retried on failure has the status of its highest iteration;
  repeated for another reason, all of its iterations count.
- Statuses combine: Failure if any, else Success if any, else Expected Failure if any, else Skipped. The same
  precedence makes suites, targets and plans.
- Flaky: it succeeded in the end, and an earlier iteration failed.
- The duration of a case, and of a set of its runs, is the mean of the runs' durations that are not zero.
"""

from collections.abc import Iterable

from runyard.xcresult.reader.model import Argument, Run, Status

RETRY = "RunRetryOnFailure"
_PRECEDENCE: tuple[Status, ...] = ("Failure", "Success", "Expected Failure")


def combine(statuses: Iterable[Status]) -> Status:
    """Combine statuses into one."""
    found = frozenset(statuses)
    return next((status for status in _PRECEDENCE if status in found), "Skipped")


def case_status(runs: tuple[Run, ...]) -> Status:
    """The status of a case."""
    if len(runs) == 1:
        return runs[0].status
    return combine(_final(group) for group in repetition_groups(runs))


def is_flaky(runs: tuple[Run, ...]) -> bool:
    """Whether a case succeeded in the end and failed before."""
    if len(runs) == 1 or case_status(runs) != "Success":
        return False
    return any(run.status == "Failure" for run in runs)


def repetition_groups(runs: Iterable[Run]) -> list[list[Run]]:
    """Group the runs by device, configuration and set of arguments: the runs of a group are repetitions."""
    groups: dict[tuple[object, ...], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.where, run.configuration, *_set(run.arguments)), []).append(run)
    return list(groups.values())


def _set(arguments: tuple[Argument, ...]) -> Iterable[tuple[str, ...]]:
    """A key for a set of arguments. Their order varies between runs if they have names."""
    if not arguments:
        return ()
    keys = [(one.label, one.name, one.value, one.identifier) for one in arguments]
    distinct = len({one[:2] for one in keys}) == len(keys)
    return sorted(keys) if distinct else keys


def runs_duration(runs: Iterable[Run], *, logged: float | None = None) -> float | None:
    """The duration of repeated runs in every format: Apple's mean, or `logged` if no run has a duration."""
    mean = mean_duration(run.duration for run in runs)
    return logged if mean is None else mean


def mean_duration(durations: Iterable[float]) -> float | None:
    """The mean of the durations that are not zero; None if all are zero."""
    found = [duration for duration in durations if duration > 0]
    return sum(found) / len(found) if found else None


def _final(runs: list[Run]) -> Status:
    last = runs[0]
    for run in runs:
        if run.repetition is None or run.repetition.mode != RETRY:
            return combine(run.status for run in runs)
        if last.repetition and run.repetition.iteration >= last.repetition.iteration:
            last = run
    return last.status
