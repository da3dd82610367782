"""The shipped roles are exactly what the parts ask for: nothing is missing, and nothing is there for nobody.

A worker that lacked one verb did nothing in production, and no test had told. Here the parts run under their shipped
roles, everything that they ask for is recorded, and the two are compared.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest
from tests.granted import NOT_RECORDED
from tests.sim.fleet.rare_requests import rare_requests_scenario
from tests.tiers import pick

from runyard.clock import RealClock
from runyard.embedded.kube.core import KubeCore, Security
from runyard.http.loopback import Loopback
from runyard.kube.client import Kube
from runyard.sim.callers import Callers, Need, shipped_needs
from runyard.sim.faults import parse
from runyard.sim.fleet import SPACE, Fleet
from runyard.sim.run import Stage, usual
from runyard.sim.scenarios.pods import small
from runyard.sim.shape import Shape
from runyard.web.cluster import read_cluster
from runyard.wire import names, rights


def recorded(stage: Stage, shape: Shape, play: Callable[[Fleet], Awaitable[None]]) -> set[Need]:
    """What the parts asked for during a play; nothing of it was refused."""
    seen: list[Fleet] = []

    async def watched(fleet: Fleet) -> None:
        seen.append(fleet)
        await play(fleet)

    outcome = stage.play(shape, watched)
    assert outcome.ok, outcome.failure
    assert not seen[0].callers.refused
    return set(seen[0].callers.needs)


def dashboard_needs() -> set[Need]:
    """The server's dashboard reads for itself; it is not part of a simulated fleet."""
    callers = Callers()
    callers.add("server-1")
    callers.asking = "server-1"
    core = KubeCore(
        clock=RealClock(),
        rng=random.Random(1),
        security=Security(authenticate=callers.who, authorize=callers.decide),
    )
    cluster = asyncio.run(
        read_cluster(Kube(Loopback(core.handle)), namespace=names.RUNNERS_NAMESPACE)
    )
    assert not cluster.refused and not callers.refused
    return set(callers.needs)


@pytest.fixture(scope="module")
def needs(stage: Stage) -> set[Need]:
    (shape,) = small(3)
    return recorded(stage, shape, rare_requests_scenario) | dashboard_needs()


@pytest.mark.slow
@pytest.mark.parametrize("part", rights.COMPONENTS)
def test_the_shipped_roles_are_what_the_part_asks_for(needs: set[Need], part: str) -> None:
    asked = {need for need in needs if need[0] == part}
    shipped = shipped_needs(part)
    unused = shipped - asked - NOT_RECORDED
    assert (sorted(asked - shipped), sorted(unused)) == ([], []), "missing, unused"


def test_what_is_excused_from_the_comparison_is_granted() -> None:
    shipped = set().union(*(shipped_needs(part) for part in rights.COMPONENTS))
    assert sorted(NOT_RECORDED - shipped) == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_hours_of_faults_need_no_right_more(stage: Stage) -> None:
    shape = Shape(seed=1, hours=pick(fast=0.4, ci=0.4, long=2.0), faults=parse("all"))
    asked = recorded(stage, shape, usual)
    assert not asked - set().union(*(shipped_needs(part) for part in rights.COMPONENTS))


def test_a_part_that_lacks_a_right_is_refused_in_the_simulation_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = rights.roles(rights.SERVER)
    cut = [
        {**role, "rules": [rule for rule in role["rules"] if rule["resources"] != ["pods"]]}
        for role in whole
    ]
    roles = {rights.SERVER: tuple(cut)}
    monkeypatch.setattr(rights, "roles", lambda part: roles[part])
    callers = Callers()
    callers.add("server-1")
    callers.asking = "server-1"
    core = KubeCore(
        clock=RealClock(),
        rng=random.Random(1),
        security=Security(authenticate=callers.who, authorize=callers.decide),
    )
    cluster = asyncio.run(
        read_cluster(Kube(Loopback(core.handle)), namespace=names.RUNNERS_NAMESPACE)
    )
    assert cluster.refused == ("pods",)
    assert list(callers.refused) == [(rights.SERVER, SPACE, "", "pods", "list")]


@pytest.mark.parametrize("part", rights.COMPONENTS)
def test_no_part_may_read_secrets_or_do_everything(part: str) -> None:
    for _, _, group, resource, verb in shipped_needs(part):
        assert resource != "secrets" and "*" not in (group, resource, verb)
