"""The proof itself: small models hold, a missing guard is found, and a counterexample can be read."""

import msgspec
import pytest

from runyard.dispatch.machine.table import Rules
from runyard.dispatch.machine.values import SlotState
from runyard.sim.proof.cases import CASES, SHIPPED, VARIANTS, explore, shipped, sized
from runyard.sim.proof.invariants import Broken
from runyard.sim.proof.model import Settings


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(sized(1, 1, 2, limit=1), id="one job, one Pod, two disturbances"),
        pytest.param(sized(1, 2, 1), id="one job, two Pods, one disturbance"),
        pytest.param(sized(2, 1, 1), id="two jobs, one Pod, one disturbance"),
        pytest.param(sized(2, 2, 0, limit=1), id="two jobs, two Pods, budget for one"),
        pytest.param(sized(2, 2, 0, limit=2), id="two jobs, two Pods, budget for both"),
    ],
)
def test_a_small_model_holds(settings: Settings) -> None:
    outcome = explore(shipped(settings))
    assert outcome.violation is None
    assert outcome.at_rest > 0


BROKEN = {
    "no-stamp-before-delivery": Broken.BUSY_POD_DELETED,
    "no-fence": Broken.RUNNER_FENCED,
    "no-requeue-at-fence": Broken.STUCK,
    "no-deadline-idle": Broken.STUCK,
    "no-deadline-offered": Broken.STUCK,
    "no-deadline-armed": Broken.STUCK,
    "no-deadline-executing": Broken.STUCK,
    "no-deadline-draining": Broken.STUCK,
    "no-deadline-closed": Broken.STUCK,
    "no-read-before-second-offer": Broken.OFFERED_NOT_QUEUED,
    "no-outage-grace": Broken.HEALTHY_POD_REAPED,
    "absent-without-a-read": Broken.RUNNER_FENCED,
    "no-generation-check": Broken.RUNNER_FENCED,
    "budget-freed-at-draining": Broken.OVER_BUDGET,
    "waiting-counts-as-queued": Broken.OFFERED_UNAPPROVED,
    "more-than-one-job-a-pod": Broken.RUNNER_WITHOUT_CLAIM,
    "displaced-job-stays-bound": Broken.BOUND_WITHOUT_SLOT,
    "an-end-frees-who-was-meant": Broken.RUNNER_FENCED,
    "a-late-start-revives-a-job": Broken.JOB_CAME_BACK,
    "operator-by-old-version": Broken.BUSY_POD_DELETED,
    "answers-survive-a-failover": Broken.RUNNER_FENCED,
    "stamp-cleared-blindly": Broken.BUSY_POD_DELETED,
    "warm-without-proof": Broken.BUSY_POD_DELETED,
    "fenced-stamp-cleared-blindly": Broken.BUSY_POD_DELETED,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN)
def test_a_missing_guard_is_noticed_by_the_harm_it_does(name: str) -> None:
    case = next(case for case in VARIANTS if case.name == name)
    outcome = explore(case)
    assert outcome.violation == BROKEN[name].because()
    assert outcome.path
    assert case.as_expected(outcome)


def test_every_guard_of_the_machine_is_switched_off_once() -> None:
    assert {case.name for case in VARIANTS} == set(BROKEN)
    shipped = msgspec.structs.asdict(Rules())
    off = {
        name
        for case in VARIANTS
        for name, value in msgspec.structs.asdict(case.rules).items()
        if value != shipped[name]
    }
    assert off == set(Rules.__struct_fields__)
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
    case = shipped(sized(1, 1, 1))
    assert explore(case) == explore(case)
