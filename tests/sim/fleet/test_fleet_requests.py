"""What the parts ask of Kubernetes is on the list that the conformance scripts are held to."""

import asyncio
import random

import pytest
from tests.conformance.kube import usage
from tests.sim.fleet.rare_requests import rare_requests_scenario

from runyard.clock import RealClock
from runyard.embedded.kube.access.auth import User
from runyard.embedded.kube.core import KubeCore
from runyard.http.loopback import Loopback
from runyard.http.messages import Request
from runyard.kube.client import Kube
from runyard.kube.kinds import SERVICE_ACCOUNTS
from runyard.sim.callers import Callers
from runyard.sim.run import Stage
from runyard.sim.scenarios.pods import small
from runyard.web.cluster import read_cluster
from runyard.wire import names


@pytest.mark.slow
def test_the_parts_ask_for_what_is_listed_and_for_all_of_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, None] = {}
    known = Callers.who

    def who(self: Callers, request: Request) -> User:
        if self.asking:
            seen.update(dict.fromkeys(usage.words(request)))
        return known(self, request)

    monkeypatch.setattr(Callers, "who", who)
    (shape,) = small(3)
    outcome = stage.play(shape, rare_requests_scenario)
    assert outcome.ok, outcome.failure
    usage.compare("parts", {**seen, **_dashboard(), **_pages()})


def _dashboard() -> dict[str, None]:
    """The server's dashboard reads for itself; it is not part of a simulated fleet."""
    seen: dict[str, None] = {}
    core = KubeCore(clock=RealClock(), rng=random.Random(1))
    kube = Kube(Loopback(usage.recording(core.handle, seen)))
    asyncio.run(read_cluster(kube, namespace=names.RUNNERS_NAMESPACE))
    return seen


def _pages() -> dict[str, None]:
    """Small fleets fit on one page, large ones do not."""
    seen: dict[str, None] = {}
    core = KubeCore(clock=RealClock(), rng=random.Random(1))
    kube = Kube(Loopback(usage.recording(core.handle, seen)))
    asyncio.run(kube.list(SERVICE_ACCOUNTS, limit=2))
    return seen
