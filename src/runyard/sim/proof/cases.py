"""What is proved: the shipped machine in several sizes, and every guard switched off in turn.

A *shipped* case must hold. Every other case takes one guard away, from the machine (`Rules`) or
from an effect around it (`Settings`), in the smallest world in which its loss can be noticed, and
must be caught: that shows that the guard is needed and that the proof would notice its absence.
"""

import msgspec

from runyard.dispatch.machine.changes import Context
from runyard.dispatch.machine.table import Rules
from runyard.dispatch.machine.values import SlotState
from runyard.sim.proof.explore import Explorer, Outcome
from runyard.sim.proof.rows import Database
from runyard.sim.proof.scene import Scene, Settings


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One exploration and what is expected of it."""

    name: str
    about: str
    settings: Settings
    rules: Rules = Rules()
    holds: bool = False  # expected

    def as_expected(self, outcome: Outcome) -> bool:
        """Is this what should have come out?"""
        return outcome.holds == self.holds


def explore(case: Case) -> Outcome:
    """Explore a case to its end."""
    settings = case.settings
    database = Database(
        Context(rules=case.rules), limit=settings.limit, may_lose=settings.lose_commits
    )
    return Explorer(Scene(database, settings)).run()


def world(
    jobs: int, pods: int, disturbances: int, *, limit: int = 2, held: bool = False
) -> Settings:
    """A world of that size; `held`: the first job awaits an approval."""
    return Settings(jobs=jobs, pods=pods, disturbances=disturbances, limit=limit, held=held)


def shipped(settings: Settings) -> Case:
    """The shipped machine in a world of that size."""
    size = f"{settings.jobs}x{settings.pods}"
    name = f"shipped-{size}-budget-{settings.limit}-disturbances-{settings.disturbances}"
    name += "-held" * settings.held
    return Case(name=name, about="all guards on", settings=settings, holds=True)


def _without(name: str, about: str, settings: Settings, **rules: bool) -> Case:
    changed = msgspec.structs.replace(Rules(), **rules)
    return Case(name=name, about=about, settings=settings, rules=changed)


def _broken(name: str, about: str, settings: Settings, **effects: bool) -> Case:
    changed = msgspec.structs.replace(settings, **effects)
    return Case(name=name, about=about, settings=changed)


def _timeless(state: SlotState, disturbances: int) -> Case:
    return Case(
        name=f"no-deadline-{state}",
        about=f"a slot that is {state} is never asked about",
        settings=world(1, 1, disturbances),
        rules=Rules(no_deadline_for=(state,)),
    )


SHIPPED = (
    shipped(world(2, 2, 1, limit=2)),
    shipped(world(2, 2, 1, limit=1)),
    shipped(world(1, 2, 2, limit=2)),
    shipped(world(2, 1, 2, limit=1)),
    shipped(world(1, 1, 4, limit=1)),
    shipped(world(1, 1, 3, limit=1, held=True)),
    shipped(world(2, 1, 1, limit=1, held=True)),
)

VARIANTS = (
    _without(
        "no-stamp-before-delivery",
        "a JIT is delivered before the owner stamp is acknowledged",
        world(1, 1, 1),
        stamp_before_delivery=False,
    ),
    _broken(
        "no-fence",
        "a runner is believed gone without asking GitHub",
        world(1, 1, 0),
        skip_fence=True,
    ),
    _without(
        "no-requeue-at-fence",
        "the fence frees the runner but not its job",
        world(1, 1, 1),
        requeue_at_fence=False,
    ),
    _timeless(SlotState.IDLE, 1),
    _timeless(SlotState.OFFERED, 1),
    _timeless(SlotState.ARMED, 1),
    _timeless(SlotState.EXECUTING, 1),
    _timeless(SlotState.DRAINING, 1),
    _timeless(SlotState.CLOSED, 1),
    _without(
        "no-read-before-second-offer",
        "a job that was given back is offered without asking GitHub",
        world(1, 2, 0),
        read_before_second_offer=False,
    ),
    _without(
        "no-outage-grace",
        "deadlines count the time when nobody could speak to us",
        world(1, 1, 1),
        outage_grace=False,
    ),
    _without(
        "absent-without-a-read",
        "a 404 counts although nothing in that scope could be read",
        world(1, 1, 1),
        absent_needs_a_read=False,
    ),
    _without(
        "no-generation-check",
        "answers are committed whatever became of the slot since",
        world(1, 1, 1),
        generation_fences_writes=False,
    ),
    _without(
        "budget-freed-at-draining",
        "a tenant's budget is freed while the Pod still exists",
        world(2, 2, 1, limit=1),
        budget_until_gone=False,
    ),
    _without(
        "waiting-counts-as-queued",
        "a job that awaits an approval is offered",
        world(1, 1, 0, held=True),
        waiting_is_not_queued=False,
    ),
    _without(
        "more-than-one-job-a-pod",
        "whoever was given a runner may ask for another one",
        world(1, 1, 0),
        one_job_a_pod=False,
    ),
    _without(
        "displaced-job-stays-bound",
        "a job whose runner got another one is not given back",
        world(2, 1, 0),
        requeue_displaced=False,
    ),
    _without(
        "an-end-frees-who-was-meant",
        "the end of a job spends the runner that was meant for it",
        world(2, 2, 0),
        end_by_runner=False,
    ),
    _without(
        "a-late-start-revives-a-job",
        "a start that is heard of after the end is believed",
        world(1, 1, 1),
        done_stays_done=False,
    ),
    _broken(
        "operator-by-old-version",
        "the operator deletes a Pod by an outdated view of it",
        world(1, 1, 1),
        operator_by_old_version=True,
    ),
    _broken(
        "answers-survive-a-failover",
        "an answer asked before the database lost a commit is committed after it",
        world(1, 1, 2),
        answers_survive_failover=True,
    ),
    _broken(
        "stamp-cleared-blindly",
        "a refused mint clears the stamp without a look at the slot",
        world(1, 1, 3),
        unstamp_blindly=True,
    ),
)

CASES = (*SHIPPED, *VARIANTS)
