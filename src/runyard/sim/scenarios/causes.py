"""What each incident must be explained by: whom it holds up at a moment, and the one constraint that is named then.

The proof plays an incident, asks again and again about those who are affected, and compares. An incident that holds
nobody up has a sentence instead, so that none is left out by mistake.
"""

from collections.abc import Callable

import msgspec

from runyard.sim.fleet import Fleet
from runyard.web.explain.values import Constraint, Subject
from runyard.wire import names

UNKNOWN = "unknown"  # the server has never heard of it, and says what it searched
CLAIMS = ("offered", "armed", "executing", "draining")
Ids = Callable[[Fleet], tuple[str, ...]]


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """The injected cause. Somebody is asked about once affected for `settled` seconds without a break."""

    subject: Subject
    affected: Ids
    named: tuple[str, ...]
    settled: float = 0.0
    every: float = 30.0  # how often somebody asks


def _stamped_without_claim(fleet: Fleet) -> tuple[str, ...]:
    found = []
    for pod in fleet.kube.objects("pods"):
        meta = pod["metadata"]
        slot = fleet.books.slots.get(meta["uid"])
        claimed = slot is not None and slot.state in CLAIMS
        stamped = names.POOL_OWNER in meta.get("labels", {})
        if stamped and not claimed and "deletionTimestamp" not in meta:
            found.append(meta["name"])
    return tuple(found)


def _rolling_pools(fleet: Fleet) -> tuple[str, ...]:
    found = []
    for pool in fleet.kube.objects("runnerpools"):
        name, image = pool["metadata"]["name"], pool["spec"]["image"]
        if any(
            pod["metadata"]["labels"][names.RUNNER_POOL] == name
            and pod["spec"]["containers"][0]["image"] != image
            for pod in fleet.kube.objects("pods")
        ):
            found.append(name)
    return tuple(found)


def _on_lost_hosts(fleet: Fleet) -> tuple[str, ...]:
    lost = [host.name for host in fleet.hosts.values() if host.cut]
    return tuple(
        pod["metadata"]["name"]
        for pod in fleet.kube.objects("pods")
        if pod["spec"].get("nodeName") in lost
    )


def _never_told(fleet: Fleet) -> tuple[str, ...]:
    known = fleet.books.jobs()
    return tuple(str(job) for job in fleet.github.jobs() if job not in known)


def _waiting(fleet: Fleet) -> tuple[str, ...]:
    """Jobs that GitHub has queued and that we know."""
    known = fleet.books.jobs()
    jobs = fleet.github.jobs().values()
    return tuple(str(job.id) for job in jobs if job.status == "queued" and job.id in known)


def _during_database_outage(fleet: Fleet) -> tuple[str, ...]:
    if not all(database.down for database in fleet.databases):
        return ()
    return tuple(str(j.id) for j in fleet.github.jobs().values() if j.status == "queued")


def _during_github_outage(fleet: Fleet) -> tuple[str, ...]:
    return _waiting(fleet) if fleet.github.faults.outage else ()


def _bound(fleet: Fleet) -> tuple[str, ...]:
    """Jobs that a runner is meant for, which has not begun with them."""
    rows = fleet.books.jobs()
    return tuple(job for job in _waiting(fleet) if rows[int(job)]["state"] == "bound")


def _on_their_way(fleet: Fleet) -> tuple[str, ...]:
    """Pods that have a host and no guest yet."""
    return tuple(
        pod["metadata"]["name"]
        for pod in fleet.kube.objects("pods")
        if pod["metadata"]["uid"] not in fleet.guests
        and pod["spec"].get("nodeName")
        and "deletionTimestamp" not in pod["metadata"]
        and pod.get("status", {}).get("phase") == "Pending"
    )


CAUSES: dict[str, Cause | str] = {
    "deploy-leaks-stamped-pods": Cause(
        subject="pod", affected=_stamped_without_claim, named=(Constraint.STAMPED,), settled=5.0
    ),
    "roll-does-not-collapse-the-pool": Cause(
        subject="pool",
        affected=_rolling_pools,
        named=(Constraint.ROLL,),
        settled=20.0,
        every=60.0,
    ),
    "lost-node-runner-lives-on": Cause(
        subject="pod", affected=_on_lost_hosts, named=(Constraint.HOST_AWAY,), settled=60.0
    ),
    "webhooks-lost-for-an-hour": Cause(subject="job", affected=_never_told, named=(UNKNOWN,)),
    "agent-crash-at-every-effect": Cause(
        subject="pod",
        affected=_on_their_way,
        named=(Constraint.BOOTING, Constraint.IMAGE_STAGING),
        settled=5.0,
        every=3.0,
    ),
    "server-crash-at-every-effect": Cause(
        subject="job",
        affected=_bound,
        named=(Constraint.MINTING, Constraint.FENCE, Constraint.REGISTERING),
        settled=2.0,
        every=1.0,
    ),
    "database-outage": Cause(
        subject="job", affected=_during_database_outage, named=(Constraint.DATABASE_AWAY,)
    ),
    "github-outage": Cause(
        subject="job",
        affected=_during_github_outage,
        named=(Constraint.GITHUB_AWAY,),
        settled=60.0,
    ),
}
