"""Where a fleet can be played without one of its guards: the names, and those seams that lie outside of the server.

`Shape.off` names what a fleet lacks. Most names are the server's own (`dispatch.guards`). The others stand for a part
that is not there (a reconciler, the cap of a roll) or for a line on which a word is not heard. A run without a guard
exists to fail: it shows that the guard is needed, and that its loss would be noticed.
"""

from collections.abc import Iterable

from runyard.dispatch import guards
from runyard.dispatch.recovery.modes import Mode, Modes, Reconciler, parse
from runyard.http.messages import Request, Response
from runyard.kube.kinds import PODS
from runyard.sim.network import Link
from runyard.wire import names

SLOW = 60.0
OUTSIDE = {
    "busy_is_heard": "GitHub's word that a runner is busy, when it is to be deleted",
    "stop_reports_are_heard": "the operator's word that a Pod has ended",
    "watchdog_yields": "a guest's idle watchdog gives way to a job that GitHub has committed",
    "webhooks_wait_for_nobody": "a webhook is answered without a question to Kubernetes",
    "roll_cap": "a roll replaces a part of the pool at a time",
}
RECONCILERS = tuple(str(each) for each in Reconciler)
NAMES = (*OUTSIDE, *RECONCILERS, *guards.NAMES)


def of_the_server(off: tuple[str, ...]) -> tuple[str, ...]:
    """The names that the server itself knows; one that nobody knows is a `ValueError`."""
    return tuple(name for name in off if name not in (*OUTSIDE, *RECONCILERS))


def modes(off: tuple[str, ...]) -> Modes:
    """The reconcilers that rest."""
    return parse(tuple(f"{name}={Mode.OFF}" for name in off if name in RECONCILERS))


def heard(off: tuple[str, ...], request: Request, answer: Response) -> Response:
    """GitHub's answer, as a server without the guard would take it: "busy" is as good as "deleted"."""
    deletes = request.method == "DELETE" and "/actions/runners/" in request.path
    if "busy_is_heard" in off and deletes and answer.status == 422:
        return Response(status=204)
    return answer


async def before_a_webhook(off: tuple[str, ...], links: Iterable[Link], replica: str) -> None:
    """What a server does first that looks at the cluster while GitHub waits."""
    if "webhooks_wait_for_nobody" not in off:
        return
    kube = next(link for link in links if link.name == f"{replica}>kube")
    look = Request(method="GET", path=PODS.collection_path(names.RUNNERS_NAMESPACE))
    await kube.send(look, timeout=SLOW)
