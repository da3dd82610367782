"""The shipped roles are exactly what the parts ask for: nothing is missing, and nothing is there for nobody.

A worker that lacked one verb did nothing in production, and no test had told. Here the parts run under their shipped
roles, everything that they ask for is recorded, and the two are compared.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from runyard.clock import RealClock
from runyard.embedded.kube.core import KubeCore
from runyard.http.loopback import Loopback
from runyard.http.messages import Request, Response, Stream
from runyard.kube.client import Kube
from runyard.kube.kinds import NODES, PODS
from runyard.sim.callers import Callers, Need, shipped_needs
from runyard.sim.faults import parse
from runyard.sim.fleet import SPACE, Fleet
from runyard.sim.run import Stage, usual
from runyard.sim.scenarios.acts import at_rest, over, queue, until, warm
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


async def rare_things(fleet: Fleet) -> None:
    """An ordinary job, and then what an ordinary hour may not have: each path that needs a right of its own."""
    await warm(fleet)
    jobs = queue(fleet, 2)
    await until(fleet, "jobs over", lambda: over(fleet, jobs), within=3600.0)
    await warm(fleet)
    await _leak(fleet)
    await warm(fleet)
    await _leave(fleet, "mini-1")
    await warm(fleet)
    await _vanish(fleet, "mini-1")
    await warm(fleet)
    await fleet.replace_host("mini-2")
    await at_rest(fleet)


async def _leak(fleet: Fleet) -> None:
    """A Pod is stamped, and belongs to no job: the server takes it away."""
    name = fleet.kube.objects("pods")[0]["metadata"]["name"]
    stamp = {"metadata": {"labels": {names.POOL_OWNER: "somebody"}}}
    await fleet.admin.patch(PODS, name, stamp, namespace=SPACE)

    def gone() -> bool:
        return fleet.kube.find("pods", SPACE, name) is None

    await until(fleet, "the leak is gone", gone, within=3600.0)


async def _leave(fleet: Fleet, host: str) -> None:
    """A cordoned host's runners are retired; the API is too busy for that at first, so it is said twice."""
    serve, refusals = fleet.kube.handle, [1]

    async def busy(request: Request) -> Response | Stream:
        deletes = request.method == "DELETE" and "/pods/" in request.path
        if deletes and fleet.callers.asking == "operator" and refusals:
            refusals.pop()
            return Response(status=503)
        return await serve(request)

    fleet.kube.handle = busy  # type: ignore[method-assign]  # the API is busy
    await fleet.admin.patch(NODES, host, {"spec": {"unschedulable": True}})
    await until(fleet, "nobody there", lambda: not _pods_on(fleet, host), within=900.0)
    fleet.kube.handle = serve  # type: ignore[method-assign]  # the API is busy
    await fleet.admin.patch(NODES, host, {"spec": {"unschedulable": None}})


async def _vanish(fleet: Fleet, host: str) -> None:
    """While its agent is down somebody removes a Pod by force: the agent must ask what became of it."""
    await until(fleet, "somebody there", lambda: bool(_pods_on(fleet, host)), within=1800.0)
    machine = fleet.hosts[host]
    machine.process.crash()
    for name in _pods_on(fleet, host):
        pod = await fleet.admin.get(PODS, name, namespace=SPACE)
        fleet.hit[pod["metadata"]["uid"]] = "removed by force"
        await fleet.admin.delete(PODS, name, namespace=SPACE, grace=0)
        none = {"metadata": {"finalizers": []}}
        await fleet.admin.patch(PODS, name, none, namespace=SPACE)


def _pods_on(fleet: Fleet, host: str) -> list[str]:
    pods = fleet.kube.objects("pods")
    return [pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName") == host]


def dashboard_needs() -> set[Need]:
    """The server's dashboard reads for itself; it is not part of a simulated fleet."""
    callers = Callers()
    callers.add("server-1")
    callers.asking = "server-1"
    core = KubeCore(
        clock=RealClock(), rng=random.Random(1), authenticate=callers.who, authorize=callers.decide
    )
    cluster = asyncio.run(
        read_cluster(Kube(Loopback(core.handle)), namespace=names.RUNNERS_NAMESPACE)
    )
    assert not cluster.refused and not callers.refused
    return set(callers.needs)


@pytest.fixture(scope="module")
def needs(stage: Stage) -> set[Need]:
    (shape,) = small(3)
    return recorded(stage, shape, rare_things) | dashboard_needs()


@pytest.mark.parametrize("part", rights.PARTS)
def test_the_shipped_roles_are_what_the_part_asks_for(needs: set[Need], part: str) -> None:
    asked = {need for need in needs if need[0] == part}
    shipped = shipped_needs(part)
    assert (sorted(asked - shipped), sorted(shipped - asked)) == ([], []), "missing, unused"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_hour_of_faults_needs_no_right_more(stage: Stage) -> None:
    shape = Shape(seed=1, hours=1.0, faults=parse("all"))
    asked = recorded(stage, shape, usual)
    assert not asked - set().union(*(shipped_needs(part) for part in rights.PARTS))


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
        clock=RealClock(), rng=random.Random(1), authenticate=callers.who, authorize=callers.decide
    )
    cluster = asyncio.run(
        read_cluster(Kube(Loopback(core.handle)), namespace=names.RUNNERS_NAMESPACE)
    )
    assert cluster.refused == ("pods",)
    assert list(callers.refused) == [(rights.SERVER, SPACE, "", "pods", "list")]


@pytest.mark.parametrize("part", rights.PARTS)
def test_no_part_may_read_secrets_or_do_everything(part: str) -> None:
    for _, _, group, resource, verb in shipped_needs(part):
        assert resource != "secrets" and "*" not in (group, resource, verb)
