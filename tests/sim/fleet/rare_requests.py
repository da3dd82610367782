"""A scenario in which the components send every kind of request to Kubernetes, for recording them."""

from runyard.http.messages import Request, Response, Stream
from runyard.kube.kinds import NODES, PODS
from runyard.sim.fleet import SPACE, Fleet
from runyard.sim.scenarios.acts import at_rest, over, queue, until, warm
from runyard.sim.scenarios.expectations import Expectation
from runyard.wire import names


async def rare_requests_scenario(fleet: Fleet) -> None:
    """Runs an ordinary job, and then every rare path that needs a right of its own."""
    await warm(fleet)
    jobs = queue(fleet, 2)
    await until(fleet, Expectation.JOBS_OVER, lambda: over(fleet, jobs), within=3600.0)
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
    """Stamps a Pod without a job: the server deletes it."""
    name = fleet.kube.objects("pods")[0]["metadata"]["name"]
    stamp = {"metadata": {"labels": {names.POOL_OWNER: "somebody"}}}
    await fleet.admin.patch(PODS, name, stamp, namespace=SPACE)

    def gone() -> bool:
        return fleet.kube.find("pods", SPACE, name) is None

    await until(fleet, Expectation.THE_LEAK_IS_GONE, gone, within=3600.0)


async def _leave(fleet: Fleet, host: str) -> None:
    """Cordons a host, whose runners are retired; the API refuses the first deletion, so the operator repeats it."""
    serve, refusals = fleet.kube.handle, [1]

    async def busy(request: Request) -> Response | Stream:
        deletes = request.method == "DELETE" and "/pods/" in request.path
        if deletes and fleet.callers.asking == "operator" and refusals:
            refusals.pop()
            return Response(status=503)
        return await serve(request)

    fleet.kube.handle = busy  # type: ignore[method-assign]  # the API is busy
    await fleet.admin.patch(NODES, host, {"spec": {"unschedulable": True}})
    await until(
        fleet, Expectation.HOST_HAS_NO_PODS, lambda: not _pods_on(fleet, host), within=900.0
    )
    fleet.kube.handle = serve  # type: ignore[method-assign]  # the API is busy
    await fleet.admin.patch(NODES, host, {"spec": {"unschedulable": None}})


async def _vanish(fleet: Fleet, host: str) -> None:
    """Removes a Pod by force while its agent is down: the agent must read its state."""
    await until(
        fleet, Expectation.HOST_HAS_PODS, lambda: bool(_pods_on(fleet, host)), within=1800.0
    )
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
