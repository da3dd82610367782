"""Short lives of a whole fleet: enough for every part to meet every other one, with faults and without."""

import msgspec
import pytest
from tests.tiers import sample

from runyard.sim.faults import KINDS, parse
from runyard.sim.report import Outcome
from runyard.sim.run import Stage
from runyard.sim.shape import Shape

SMALL = Shape(hours=0.2, hosts=2, jobs_per_day=3000.0, rolls_per_day=0.0, scales_per_day=0.0)


def lived(outcome: Outcome) -> Outcome:
    assert outcome.ok, outcome.failure
    return outcome


def small(**changes: object) -> Shape:
    return msgspec.structs.replace(SMALL, **changes)


def test_without_faults_every_job_succeeds_and_nothing_is_left_over(stage: Stage) -> None:
    outcome = lived(stage.simulate(small(seed=5)))
    counts = outcome.counts
    assert counts["jobs"] >= 5
    assert counts["succeeded"] + counts["cancelled"] == counts["jobs"]
    assert counts["failed by fault"] == counts["crashes of server"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_with_every_fault_the_invariants_hold_and_the_fleet_comes_to_rest(
    stage: Stage, seed: int
) -> None:
    outcome = lived(stage.simulate(small(seed=seed, faults=parse("all"))))
    assert outcome.counts["faults"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", sample(list(KINDS), of=3))
def test_each_kind_of_fault_alone_heals(stage: Stage, kind: str) -> None:
    lived(stage.simulate(small(seed=11, hours=0.5, faults=(kind,))))
