"""An explanation as it is served: each text with its code and its detail."""

import msgspec

from runyard.web.explain.values import FREE, Constraint, Explanation, Step, Subject
from runyard.wire.reasons import Reason, Value, render


class StepView(msgspec.Struct, frozen=True, kw_only=True):
    """One step: `what` and `ends` for people, their codes for programs."""

    constraint: Constraint
    subject: str
    what: str
    what_code: str
    what_detail: dict[str, Value] = {}
    cause_code: str = ""  # of the second half of `what`, where it has one
    cause_detail: dict[str, Value] = {}
    who: str
    since: float | None = None
    numbers: dict[str, float] = {}
    ends: str = ""
    ends_code: str = ""
    ends_detail: dict[str, Value] = {}
    leads: bool = False
    reason: str = ""


class FactView(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is true of the object and holds nothing."""

    code: str
    text: str


class ExplanationView(msgspec.Struct, frozen=True, kw_only=True):
    """The chain of causes. `binding` is one of its steps; `unknown` are sources that could not be read."""

    subject: Subject
    id: str
    at: float
    binding: StepView
    chain: tuple[StepView, ...]
    facts: tuple[FactView, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def free(self) -> bool:
        """Whether nothing holds the object."""
        return self.binding.constraint in FREE


def view(found: Explanation) -> ExplanationView:
    """An explanation with its texts."""
    return ExplanationView(
        subject=found.subject,
        id=found.id,
        at=found.at,
        binding=step_view(found.binding),
        chain=tuple(map(step_view, found.chain)),
        facts=tuple(FactView(code=each.slug, text=render(each)) for each in found.facts),
        unknown=found.unknown,
    )


def step_view(step: Step) -> StepView:
    """One step with its texts."""
    return StepView(
        constraint=step.constraint,
        subject=step.subject,
        what=text(step),
        what_code=step.what.slug,
        what_detail=step.what.fields,
        cause_code=_slug(step.cause),
        cause_detail=_fields(step.cause),
        who=step.who,
        since=step.since,
        numbers=step.numbers,
        ends="" if step.ends is None else render(step.ends),
        ends_code=_slug(step.ends),
        ends_detail=_fields(step.ends),
        leads=step.leads,
        reason=step.reason,
    )


def text(step: Step) -> str:
    """Render what holds the object, and its cause where one is known."""
    what = render(step.what)
    return what if step.cause is None else f"{what}: {render(step.cause)}"


def summary(chain: tuple[Step, ...]) -> str:
    """Summarise a chain in one line: the first step, and the binding one if that is another."""
    binding = next((step for step in chain if not step.leads), chain[-1])
    first = chain[0]
    return text(first) if binding is first else f"{text(first)}: {text(binding)}"


def _slug(reason: Reason | None) -> str:
    return "" if reason is None else reason.slug


def _fields(reason: Reason | None) -> dict[str, Value]:
    return {} if reason is None else reason.fields
