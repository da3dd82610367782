"""The cases of the proof: the shipped machine in several sizes, and every guard switched off in turn.

A *shipped* case must hold. Every other case takes one guard away, from the machine (`Rules`) or
from an effect around it (`Settings`), in the smallest model in which its loss can be noticed, and
must be caught: this shows that the guard is needed and that the proof would notice its absence.
"""

import msgspec

from runyard.dispatch.guards import without
from runyard.dispatch.machine.changes import Context
from runyard.dispatch.machine.table import Rules
from runyard.dispatch.machine.values import CLAIMS, SlotState
from runyard.sim.proof.explore import Explorer, Outcome
from runyard.sim.proof.model import Model, Settings
from runyard.sim.proof.rows import ANSWERS, CLEARS, Database


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One exploration and what is expected of it."""

    name: str
    about: str
    settings: Settings
    rules: Rules = Rules()
    holds: bool = False  # expected

    def as_expected(self, outcome: Outcome) -> bool:
        """Whether this is the expected outcome."""
        return outcome.holds == self.holds


def explore(case: Case) -> Outcome:
    """Explores a case to its end."""
    settings = case.settings
    freed = (SlotState.DRAINING,) if settings.budget_freed_early else ()
    database = Database(
        Context(rules=case.rules),
        limit=settings.limit,
        may_lose=settings.lose_commits,
        budget=tuple(state for state in CLAIMS if state not in freed),
        dropped=ANSWERS if settings.warm_blindly else (*ANSWERS, *CLEARS),
    )
    return Explorer(Model(database, settings)).run()


def sized(
    jobs: int, pods: int, disturbances: int, *, limit: int = 2, held: bool = False
) -> Settings:
    """A model of that size; `held`: the first job awaits an approval."""
    return Settings(jobs=jobs, pods=pods, disturbances=disturbances, limit=limit, held=held)


def shipped(settings: Settings) -> Case:
    """The shipped machine in a model of that size."""
    size = f"{settings.jobs}x{settings.pods}"
    name = f"shipped-{size}-budget-{settings.limit}-disturbances-{settings.disturbances}"
    name += "-held" * settings.held
    return Case(name=name, about="all guards on", settings=settings, holds=True)


def _without(name: str, about: str, settings: Settings, *, guard: str) -> Case:
    return Case(name=name, about=about, settings=settings, rules=without(guard).rules)


def _broken(name: str, about: str, settings: Settings, **effects: bool) -> Case:
    changed = msgspec.structs.replace(settings, **effects)
    return Case(name=name, about=about, settings=changed)


def _timeless(slot_state: SlotState, disturbances: int) -> Case:
    return Case(
        name=f"no-deadline-{slot_state}",
        about=f"the deadline of a slot in the state {slot_state} is ignored",
        settings=sized(1, 1, disturbances),
        rules=without(f"deadline_{slot_state}").rules,
    )


SHIPPED = (
    shipped(sized(2, 2, 1, limit=2)),
    shipped(sized(2, 2, 1, limit=1)),
    shipped(sized(1, 2, 2, limit=2)),
    shipped(sized(2, 1, 2, limit=1)),
    shipped(sized(1, 1, 4, limit=1)),
    shipped(sized(1, 1, 3, limit=1, held=True)),
    shipped(sized(2, 1, 1, limit=1, held=True)),
)

VARIANTS = (
    _without(
        "no-stamp-before-delivery",
        "a JIT is delivered before the owner stamp is acknowledged",
        sized(1, 1, 1),
        guard="stamp_before_delivery",
    ),
    _broken(
        "no-fence",
        "a runner counts as gone without asking GitHub",
        sized(1, 1, 0),
        skip_fence=True,
    ),
    _without(
        "no-requeue-at-fence",
        "the fence frees the runner but not its job",
        sized(1, 1, 1),
        guard="requeue_at_fence",
    ),
    _timeless(SlotState.IDLE, 1),
    _timeless(SlotState.OFFERED, 1),
    _timeless(SlotState.ARMED, 1),
    _timeless(SlotState.EXECUTING, 1),
    _timeless(SlotState.DRAINING, 1),
    _timeless(SlotState.CLOSED, 1),
    _without(
        "no-read-before-second-offer",
        "a requeued job is offered without asking GitHub",
        sized(1, 2, 0),
        guard="read_before_second_offer",
    ),
    _without(
        "no-outage-grace",
        "deadlines count the time when the service was unavailable",
        sized(1, 1, 1),
        guard="outage_grace",
    ),
    _without(
        "absent-without-a-read",
        "a 404 counts although nothing in that scope could be read",
        sized(1, 1, 1),
        guard="absent_needs_a_read",
    ),
    _without(
        "warm-without-proof",
        "an offer that passed its deadline leaves its Pod warm, whether or not a JIT was delivered",
        sized(1, 1, 2),
        guard="warm_if_abandoned",
    ),
    _without(
        "no-generation-check",
        "answers are committed although the slot has changed since",
        sized(1, 1, 1),
        guard="generation_fences_writes",
    ),
    _broken(
        "budget-freed-at-draining",
        "a tenant's budget is freed while the Pod still exists",
        sized(2, 2, 1, limit=1),
        budget_freed_early=True,
    ),
    _without(
        "waiting-counts-as-queued",
        "a job that awaits an approval is offered",
        sized(1, 1, 0, held=True),
        guard="waiting_is_not_queued",
    ),
    _without(
        "more-than-one-job-a-pod",
        "a Pod that had a runner may get another one",
        sized(1, 1, 0),
        guard="one_job_a_pod",
    ),
    _without(
        "displaced-job-stays-bound",
        "a job whose runner got another job is not requeued",
        sized(2, 1, 0),
        guard="requeue_displaced",
    ),
    _without(
        "an-end-frees-who-was-meant",
        "the end of a job closes the slot that was intended for it",
        sized(2, 2, 0),
        guard="end_by_runner",
    ),
    _without(
        "a-late-start-revives-a-job",
        "a start that arrives after the end is applied",
        sized(1, 1, 1),
        guard="done_stays_done",
    ),
    _broken(
        "operator-by-old-version",
        "the operator deletes a Pod by an outdated view of it",
        sized(1, 1, 1),
        operator_by_old_version=True,
    ),
    _broken(
        "answers-survive-a-failover",
        "an answer from before a lost commit is committed after it",
        sized(1, 1, 2),
        answers_survive_failover=True,
    ),
    _broken(
        "stamp-cleared-blindly",
        "a refused mint clears the stamp without a read of the slot",
        sized(1, 1, 3),
        unstamp_blindly=True,
    ),
    _broken(
        "fenced-stamp-cleared-blindly",
        "the stamp of a fenced Pod is cleared without a read of its slot",
        sized(1, 1, 2),
        warm_blindly=True,
    ),
)

CASES = (*SHIPPED, *VARIANTS)
