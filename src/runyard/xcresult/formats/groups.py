"""The runs of a case, by what was tested: one device, one configuration, one set of arguments.

The runs of a group are repetitions of the same thing, so a group has one outcome, by Apple's rule: with
retries on failure the last one decides; otherwise each counts, and one failure is enough.

Invariant: every run is in exactly one group; groups and runs keep the bundle's order, repetitions theirs.
"""

import msgspec

from runyard.xcresult.formats import words
from runyard.xcresult.reader.aggregation import case_status, repetition_groups
from runyard.xcresult.reader.arguments import shown
from runyard.xcresult.reader.model import Action, Argument, Case, Failure, Run, Status


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Repetitions of one thing."""

    action: int
    configuration: str
    arguments: tuple[Argument, ...]
    runs: tuple[Run, ...]
    """By repetition."""
    status: Status

    @property
    def flaky(self) -> bool:
        """It failed and then passed."""
        return self.status == "Success" and any(run.status == "Failure" for run in self.runs)

    @property
    def deciding(self) -> Run:
        """The run that made the outcome: the last one that has it."""
        return next(run for run in reversed(self.runs) if run.status == self.status)

    @property
    def failures(self) -> tuple[Failure, ...]:
        """What the deciding run complains of."""
        return words.shown_failures(self.deciding)


def groups(case: Case) -> tuple[Group, ...]:
    """The case's groups."""
    found = repetition_groups(case.runs)
    return tuple(_group(tuple(sorted(runs, key=_iteration))) for runs in found)


def name_of(group: Group, case: Case, actions: tuple[Action, ...]) -> str:
    """What tells this group from the others of its case: arguments, configuration, device. May be empty."""
    parts = []
    if group.arguments:
        parts.append(shown(group.arguments))
    if len({run.configuration for run in case.runs}) > 1:
        parts.append(group.configuration)
    if len({run.action for run in case.runs}) > 1:
        known = group.action < len(actions)
        parts.append(
            words.device(actions[group.action].device) if known else f"action {group.action}"
        )
    return ", ".join(parts)


def _iteration(run: Run) -> int:
    return run.repetition.iteration if run.repetition is not None else 0


def _group(runs: tuple[Run, ...]) -> Group:
    last = runs[-1]
    return Group(
        action=last.action,
        configuration=last.configuration,
        arguments=last.arguments,
        runs=runs,
        status=case_status(runs),
    )
