"""In every incident the explanation is the injected cause, as long as it affects a subject."""

import pytest
from tests.sim.fleet.causes import CAUSES, UNKNOWN, Cause
from tests.sim.fleet.explaining import Asking
from tests.sim.fleet.holds import HOLDS
from tests.tiers import sample

from runyard.sim.fleet import Fleet
from runyard.sim.run import Stage
from runyard.sim.scenarios.catalogue import ALL
from runyard.sim.scenarios.scenario import Scenario
from runyard.web.explain.values import Unknown

ASKED_AT_ONCE = 2
PLAYED = (*ALL, *HOLDS)
EXPLAINED = [s for s in PLAYED if not isinstance(CAUSES.get(s.name, ""), str)]
BESIDE = 0.137  # never in the same instant in which a play takes its next step
EVERY = 15  # of many crash points, so many lie between two that are visited


class Watch:
    """Reads the explanation of each subject that is affected for long enough, and records the named cause."""

    def __init__(self, cause: Cause) -> None:
        self._cause = cause
        self._since: dict[str, float] = {}
        self.asked = 0
        self.wrong: list[str] = []

    async def run(self, fleet: Fleet) -> None:
        asking = Asking(fleet)
        self._since.clear()
        await fleet.clock.sleep(BESIDE)
        while True:
            await fleet.clock.sleep(self._cause.every)
            now = fleet.clock.monotonic()
            affected = self._cause.affected(fleet)
            self._since = {each: self._since.get(each, now) for each in affected}
            settled, until = self._cause.settled, self._cause.until
            due = [each for each, at in self._since.items() if settled <= now - at <= until]
            for each in due[:ASKED_AT_ONCE]:
                await self._ask(asking, each, now)

    async def _ask(self, asking: Asking, each: str, now: float) -> None:
        found = await asking.why(self._cause.subject, each)
        named = UNKNOWN if isinstance(found, Unknown) else found.binding.constraint.value
        self.asked += 1
        if named != self._cause.named:
            self.wrong.append(f"{now:.0f} s: {self._cause.subject} {each}: {named}: {found}")


@pytest.mark.slow
@pytest.mark.parametrize(
    "scenario", sample(EXPLAINED, of=1, fast=12), ids=lambda scenario: scenario.name
)
def test_the_explanation_is_the_injected_cause(stage: Stage, scenario: Scenario) -> None:
    phases = CAUSES[scenario.name]
    assert not isinstance(phases, str)
    watches = [Watch(cause) for cause in phases]

    async def watched(fleet: Fleet) -> None:
        for watch in watches:
            fleet.background(watch.run(fleet), "somebody asks why")
        await scenario.play(fleet)

    shapes = scenario.shapes(1)
    first = len(shapes[::EVERY])
    spread = [shape for start in range(EVERY) for shape in shapes[start::EVERY]]
    for number, shape in enumerate(spread):
        if number >= first and all(watch.asked for watch in watches):
            break  # some causes follow only from a few of the crash points
        outcome = stage.play(shape, watched)
        assert outcome.ok, f"seed {shape.seed}: {outcome.failure}"
    for cause, watch in zip(phases, watches, strict=True):
        wrong = "\n".join(watch.wrong[:3])
        assert not wrong, f"{len(watch.wrong)} of {watch.asked} are not {cause.named}:\n{wrong}"
        assert watch.asked, f"nobody was affected by {cause.named}: it would prove nothing"


def test_no_incident_is_left_unexplained() -> None:
    missing = [scenario.name for scenario in PLAYED if scenario.name not in CAUSES]
    assert not missing, f"say in tests/sim/fleet/causes.py what explains {missing}"
