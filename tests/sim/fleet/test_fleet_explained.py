"""In every incident the explanation is the injected cause, at each moment at which somebody is held up by it."""

from collections import Counter

import pytest

from runyard.sim.explaining import Asking
from runyard.sim.fleet import Fleet
from runyard.sim.run import Stage
from runyard.sim.scenarios.catalogue import ALL, Scenario
from runyard.sim.scenarios.causes import CAUSES, UNKNOWN, Cause
from runyard.web.explain.values import Unknown

ASKED_AT_ONCE = 2
EXPLAINED = [scenario for scenario in ALL if isinstance(CAUSES.get(scenario.name), Cause)]
EVERY = 15  # of many crash points, so many lie between two that are visited


class Watch:
    """Asks about whoever has been affected for long enough, and keeps what was named."""

    def __init__(self, cause: Cause) -> None:
        self._cause = cause
        self._since: dict[str, float] = {}
        self.named: Counter[str] = Counter()
        self.wrong: list[str] = []

    async def run(self, fleet: Fleet) -> None:
        asking = Asking(fleet)
        while True:
            await fleet.clock.sleep(self._cause.every)
            now = fleet.clock.monotonic()
            affected = self._cause.affected(fleet)
            self._since = {each: self._since.get(each, now) for each in affected}
            due = [each for each, at in self._since.items() if now - at >= self._cause.settled]
            for each in due[:ASKED_AT_ONCE]:
                await self._ask(asking, each, now)

    async def _ask(self, asking: Asking, each: str, now: float) -> None:
        found = await asking.why(self._cause.subject, each)
        named = UNKNOWN if isinstance(found, Unknown) else found.binding.constraint.value
        self.named[named] += 1
        if named not in self._cause.named:
            self.wrong.append(f"{now:.0f} s: {self._cause.subject} {each}: {found}")


@pytest.mark.parametrize("scenario", EXPLAINED, ids=lambda scenario: scenario.name)
def test_the_explanation_is_the_injected_cause(stage: Stage, scenario: Scenario) -> None:
    cause = CAUSES[scenario.name]
    assert isinstance(cause, Cause)
    watch = Watch(cause)

    async def watched(fleet: Fleet) -> None:
        fleet.background(watch.run(fleet), "somebody asks why")
        await scenario.play(fleet)

    for shape in scenario.shapes(1)[::EVERY]:
        outcome = stage.play(shape, watched)
        assert outcome.ok, f"seed {shape.seed}: {outcome.failure}"
    assert not watch.wrong, f"{len(watch.wrong)} of {watch.named.total()}:\n" + "\n".join(
        watch.wrong[:3]
    )
    assert watch.named, "nobody was affected: the proof would prove nothing"


def test_no_incident_is_left_unexplained() -> None:
    missing = [scenario.name for scenario in ALL if scenario.name not in CAUSES]
    assert not missing, f"say in sim/scenarios/causes.py what explains {missing}"
