"""The runs of a case, by what was tested: one device, one configuration, one set of arguments.

The runs of a group are repetitions of the same thing, so a group has one outcome, by Apple's rule: with
retries on failure the last one decides; otherwise each counts, and one failure is enough.

Invariant: every run is in exactly one group; groups and runs keep the bundle's order, repetitions theirs.
"""

import msgspec

from runyard.xcresult.formats import words
from runyard.xcresult.reader.model import Action, Argument, Case, Failure, Run, Status

_ORDER: tuple[Status, ...] = ("Failure", "Success", "Expected Failure", "Skipped")


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
    found: dict[tuple[object, ...], list[Run]] = {}
    for run in case.runs:
        key = (run.action, run.configuration, *((a.label, a.name, a.value) for a in run.arguments))
        found.setdefault(key, []).append(run)
    return tuple(_group(tuple(sorted(runs, key=_iteration))) for runs in found.values())


def name_of(group: Group, case: Case, actions: tuple[Action, ...]) -> str:
    """What tells this group from the others of its case: arguments, configuration, device. May be empty."""
    parts = []
    if group.arguments:
        parts.append(words.arguments(group.arguments))
    if len({run.configuration for run in case.runs}) > 1:
        parts.append(group.configuration)
    if len({run.action for run in case.runs}) > 1:
        known = group.action < len(actions)
        parts.append(
            words.device(actions[group.action].device) if known else f"action {group.action}"
        )
    return ", ".join(parts)


def combined(statuses: list[Status]) -> Status:
    """One outcome for several, by Apple's precedence."""
    return next((word for word in _ORDER if word in statuses), "Skipped")


def _iteration(run: Run) -> int:
    return run.repetition.iteration if run.repetition is not None else 0


def _group(runs: tuple[Run, ...]) -> Group:
    last = runs[-1]
    retried = last.repetition is not None and last.repetition.mode == words.RETRY
    return Group(
        action=last.action,
        configuration=last.configuration,
        arguments=last.arguments,
        runs=runs,
        status=last.status if retried else combined([run.status for run in runs]),
    )
