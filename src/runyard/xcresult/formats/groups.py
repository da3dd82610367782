"""Groups the runs of a case by device, configuration and set of arguments.

The runs of a group are repetitions, so a group has one outcome, by Apple's rule: with retries on failure the last
repetition decides; otherwise each counts, and one failure is enough.

Invariant: every run is in exactly one group; groups and runs keep the bundle's order, repetitions theirs.
"""

from collections.abc import Iterator

import msgspec

from runyard.xcresult.formats import words
from runyard.xcresult.reader.aggregation import case_status, repetition_groups, runs_duration
from runyard.xcresult.reader.arguments import shown
from runyard.xcresult.reader.model import Action, Argument, Case, Failure, Run, Status


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Repetitions of a case on one device, in one configuration, with one set of arguments."""

    action: int
    """Index of the first action on the device."""
    configuration: str
    arguments: tuple[Argument, ...]
    runs: tuple[Run, ...]
    """By repetition."""
    status: Status
    duration: float | None
    """That of the case if there is no other group."""

    @property
    def flaky(self) -> bool:
        """Whether a repetition failed and a later one passed."""
        return self.status == "Success" and any(run.status == "Failure" for run in self.runs)

    @property
    def deciding(self) -> Run:
        """The run that determines the outcome: the last run with that outcome."""
        return next(run for run in reversed(self.runs) if run.status == self.status)

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The failures to show of the deciding run."""
        return words.shown_failures(self.deciding)


def groups(case: Case) -> tuple[Group, ...]:
    """Group the runs of a case."""
    found = repetition_groups(case.runs)
    logged = case.duration if len(found) == 1 else None
    return tuple(_group(tuple(sorted(runs, key=_iteration)), logged) for runs in found)


def named(case: Case, actions: tuple[Action, ...]) -> Iterator[tuple[Group, str]]:
    """Return each group with a label of what distinguishes it (arguments, configuration, device); may be empty."""
    configurations = len({run.configuration for run in case.runs}) > 1
    devices = len({run.where for run in case.runs}) > 1
    for group in groups(case):
        parts = [shown(group.arguments)] if group.arguments else []
        parts += [group.configuration] if configurations else []
        parts += [_device(group.action, actions)] if devices else []
        yield group, ", ".join(parts)


def _device(action: int, actions: tuple[Action, ...]) -> str:
    known = action < len(actions)
    return words.device(actions[action].device) if known else f"action {action}"


def _iteration(run: Run) -> int:
    return run.repetition.iteration if run.repetition is not None else 0


def _group(runs: tuple[Run, ...], logged: float | None) -> Group:
    last = runs[-1]
    return Group(
        action=last.where,
        configuration=last.configuration,
        arguments=last.arguments,
        runs=runs,
        status=case_status(runs),
        duration=runs_duration(runs, logged=logged),
    )
