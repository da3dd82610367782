"""Runs a fleet without one of its guards: the guards' names, and those switches that are outside the server.

`Shape.off` names the guards that a fleet lacks. Most names are the server's (`dispatch.guards`). The others stand for
a missing component (a reconciler, the cap of a roll) or for a message that is ignored. A run without a guard is
expected to fail: this shows that the guard is needed, and that its loss would be noticed.
"""

from collections.abc import Iterable

from runyard.dispatch import guards
from runyard.dispatch.modes import Mode, Modes, Reconciler, parse
from runyard.http.messages import Request, Response
from runyard.kube.kinds import PODS
from runyard.sim.network import Link
from runyard.wire import names

SLOW = 60.0
OUTSIDE = {
    "busy_answer_counts": "GitHub's answer that a runner is busy, when it is to be deleted",
    "stop_reports_count": "the operator's report that a Pod has ended",
    "watchdog_yields": "a guest's idle watchdog stops for a job that GitHub has committed",
    "webhooks_answered_first": "a webhook is answered without a request to Kubernetes",
    "roll_cap": "a roll replaces a fraction of the pool at a time",
}
RECONCILERS = tuple(str(each) for each in Reconciler)
NAMES = (*OUTSIDE, *RECONCILERS, *guards.NAMES)


def of_the_server(off: tuple[str, ...]) -> tuple[str, ...]:
    """The names of the server's guards; an unknown name is a `ValueError`."""
    return tuple(name for name in off if name not in (*OUTSIDE, *RECONCILERS))


def modes(off: tuple[str, ...]) -> Modes:
    """The reconcilers that are switched off."""
    return parse(tuple(f"{name}={Mode.OFF}" for name in off if name in RECONCILERS))


def github_answer(off: tuple[str, ...], request: Request, answer: Response) -> Response:
    """GitHub's answer as a server without the guard takes it: "busy" counts as "deleted"."""
    deletes = request.method == "DELETE" and "/actions/runners/" in request.path
    if "busy_answer_counts" in off and deletes and answer.status == 422:
        return Response(status=204)
    return answer


async def before_a_webhook(off: tuple[str, ...], links: Iterable[Link], replica: str) -> None:
    """The request that a server without the guard sends to the cluster before it answers a webhook."""
    if "webhooks_answered_first" not in off:
        return
    kube = next(link for link in links if link.name == f"{replica}>kube")
    request = Request(method="GET", path=PODS.collection_path(names.RUNNERS_NAMESPACE))
    await kube.send(request, timeout=SLOW)
