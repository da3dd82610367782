"""The proof itself: small worlds hold, a guard that is missing is noticed, and a counterexample can be read."""

import msgspec
import pytest

from runyard.dispatch.machine.table import Rules
from runyard.dispatch.machine.values import SlotState
from runyard.sim.proof.cases import CASES, SHIPPED, VARIANTS, explore, shipped, world
from runyard.sim.proof.explore import STUCK
from runyard.sim.proof.scene import Settings


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(world(1, 1, 2, limit=1), id="one job, one Pod, two disturbances"),
        pytest.param(world(1, 2, 1), id="one job, two Pods, one disturbance"),
        pytest.param(world(2, 1, 1), id="two jobs, one Pod, one disturbance"),
        pytest.param(world(2, 2, 0, limit=1), id="two jobs, two Pods, budget for one"),
        pytest.param(world(2, 2, 0, limit=2), id="two jobs, two Pods, budget for both"),
    ],
)
def test_a_small_world_holds(settings: Settings) -> None:
    outcome = explore(shipped(settings))
    assert outcome.violation == ""
    assert outcome.at_rest > 0


BROKEN = {
    "no-stamp-before-delivery": "a Pod that executes or is about to execute a job is deleted",
    "no-fence": "a runner that can execute counts as fenced",
    "no-requeue-at-fence": STUCK,
    "no-deadline-idle": STUCK,
    "no-deadline-offered": STUCK,
    "no-deadline-armed": STUCK,
    "no-deadline-executing": STUCK,
    "no-deadline-draining": STUCK,
    "no-deadline-closed": STUCK,
    "no-read-before-second-offer": "a job was offered again although GitHub had it no longer queued",
    "no-outage-grace": "a healthy Pod is reaped because the service was away",
    "absent-without-a-read": "a runner that can execute counts as fenced",
    "no-generation-check": "a runner that can execute counts as fenced",
    "budget-freed-at-draining": "more Pods may run a tenant's code than its budget allows",
    "waiting-counts-as-queued": "a job was offered that nobody has approved",
    "more-than-one-job-a-pod": "a runner that can execute is counted by no claim",
    "displaced-job-stays-bound": "a job is bound if and only if a slot is meant for it",
    "an-end-frees-who-was-meant": "a runner that can execute counts as fenced",
    "a-late-start-revives-a-job": "a job that is over came back",
    "operator-by-old-version": "a Pod that executes or is about to execute a job is deleted",
    "answers-survive-a-failover": "a runner that can execute counts as fenced",
    "stamp-cleared-blindly": "a Pod that executes or is about to execute a job is deleted",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_missing_guard_is_noticed_by_the_harm_it_does(name: str) -> None:
    case = next(case for case in VARIANTS if case.name == name)
    outcome = explore(case)
    assert outcome.violation == BROKEN[name]
    assert outcome.path
    assert case.as_expected(outcome)


def test_every_guard_of_the_machine_is_switched_off_once() -> None:
    assert {case.name for case in VARIANTS} == set(BROKEN)
    off = {
        name
        for case in VARIANTS
        for name, value in msgspec.structs.asdict(case.rules).items()
        if value is False
    }
    assert off | {"no_deadline_for"} == set(Rules.__struct_fields__)
    timeless = {state for case in VARIANTS for state in case.rules.no_deadline_for}
    assert timeless == set(SlotState)


def test_every_case_has_a_name_of_its_own() -> None:
    names = [case.name for case in CASES]
    assert len(names) == len(set(names))
    assert all(case.holds for case in SHIPPED)


def test_a_counterexample_tells_one_story_from_the_start() -> None:
    case = next(case for case in VARIANTS if case.name == "no-stamp-before-delivery")
    assert explore(case).path == (
        "webhook or audit: job 0 queued",
        "Pod 0 is created and polls",
        "job 0 is offered to Pod 0",
        "the runner of Pod 0 is minted",
        "Pod 0 is armed",
        "Pod 0 polls and gets its JIT",
        "the operator deletes Pod 0",
    )


def test_disturbances_are_marked_and_counted() -> None:
    case = next(case for case in VARIANTS if case.name == "answers-survive-a-failover")
    marked = [step for step in explore(case).path if step.startswith("! ")]
    assert len(marked) == case.settings.disturbances


def test_an_exploration_is_the_same_every_time() -> None:
    case = shipped(world(1, 1, 1))
    assert explore(case) == explore(case)
