"""What each incident must be explained by: whom it holds up at a moment, and the one constraint that is named then.

The proof plays an incident, asks again and again about those who are affected, and compares. An incident that holds
nobody up has a sentence instead, so that none is left out by mistake.
"""

from collections.abc import Callable

import msgspec

from runyard.sim.fleet import SPACE, Fleet
from runyard.sim.shape import PLATFORM
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


def _verified(fleet: Fleet, *, tenant: str = "acme") -> tuple[str, ...]:
    """A tenant's jobs that could be matched at once, if there were somebody to take them."""
    rows = fleet.books.jobs()
    return tuple(
        job
        for job in _waiting(fleet)
        if (row := rows[int(job)])["state"] == "queued"
        and row["verified"]
        and row["tenant"] == tenant
    )


def _over_the_cap(fleet: Fleet) -> tuple[str, ...]:
    """Those of them that want more than the tenant has left."""
    sizes = {pool.label: pool.cpu_milli // 1000 for pool in fleet.shape.pools}
    left = fleet.books.limit("acme", PLATFORM)[0] - fleet.books.used("acme", PLATFORM)[0]
    jobs = fleet.github.jobs()
    return tuple(job for job in _verified(fleet) if sizes[jobs[int(job)].labels[0]] > left)


def _youngest(fleet: Fleet) -> tuple[str, ...]:
    """The job at the very end of a flood."""
    return _verified(fleet)[-1:]


def _of_the_refused_account(fleet: Fleet) -> tuple[str, ...]:
    return _verified(fleet, tenant="birch") if fleet.disturbed else ()


def _guests(fleet: Fleet, state: str) -> tuple[str, ...]:
    """Pods whose guest is in a state and that nobody deletes."""
    found = []
    for guest in fleet.guests.values():
        pod = fleet.kube.find("pods", SPACE, guest.pod)
        if guest.state == state and pod is not None and "deletionTimestamp" not in pod["metadata"]:
            found.append(guest.pod)
    return tuple(found)


def _working(fleet: Fleet) -> tuple[str, ...]:
    return _guests(fleet, "running")


def _dead_pollers(fleet: Fleet) -> tuple[str, ...]:
    """Guests that hang and whose slot still counts them as waiting."""
    waiting = [slot.pod_name for slot in fleet.books.slots.values() if slot.state == "idle"]
    return tuple(pod for pod in _guests(fleet, "hung") if pod in waiting)


def _hung_after_work(fleet: Fleet) -> tuple[str, ...]:
    return _guests(fleet, "hung")


def _claims_without_pod(fleet: Fleet) -> tuple[str, ...]:
    """Runners that still hold a budget and whose Pod is gone."""
    pods = [pod["metadata"]["uid"] for pod in fleet.kube.objects("pods")]
    slots = fleet.books.slots.values()
    return tuple(s.runner_name for s in slots if s.claims and s.pod_uid not in pods)


_BUSY = (
    Constraint.ALL_BUSY,
    Constraint.BOOTING,
    Constraint.NOT_ASKING,
    Constraint.DRAINING,
)
NOBODY = "nobody is held up by it"
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
    "webhooks-down-for-an-hour": Cause(subject="job", affected=_never_told, named=(UNKNOWN,)),
    "no-address-for-webhooks": "a pull comes before anybody could ask",
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
    "job-code-asks-for-more": Cause(
        subject="pod", affected=_working, named=(Constraint.RUNNING,), settled=3.0, every=10.0
    ),
    "reaper-meets-a-working-runner": Cause(
        subject="pod", affected=_stamped_without_claim, named=(Constraint.STAMPED,), settled=5.0
    ),
    "runner-takes-another-job": Cause(
        subject="job", affected=_over_the_cap, named=(Constraint.TENANT_CAP,), every=5.0
    ),
    "another-jobs-end-frees-nobody": NOBODY,
    "claim-of-a-pod-that-vanished": Cause(
        subject="job",
        affected=_bound,
        named=(Constraint.REGISTERING, Constraint.FENCE),
        settled=3.0,
        every=2.0,
    ),
    "webhooks-while-all-else-is-slow": Cause(
        subject="job",
        affected=_during_github_outage,
        named=(Constraint.MINTING, Constraint.FENCE, Constraint.GITHUB, Constraint.GITHUB_AWAY),
        settled=12.0,
        every=3.0,
    ),
    "stop-reports-lost": Cause(
        subject="runner", affected=_claims_without_pod, named=(Constraint.DRAINING,), every=5.0
    ),
    "old-word-about-a-finished-job": NOBODY,
    "runner-dies-before-it-registers": Cause(
        subject="job",
        affected=_bound,
        named=(Constraint.REGISTERING, Constraint.FENCE),
        settled=1.0,
        every=1.0,
    ),
    "watchdog-and-job-at-once": NOBODY,
    "poll-loop-dies": Cause(
        subject="pod", affected=_dead_pollers, named=(Constraint.NOT_ASKING,), settled=100.0
    ),
    "machine-that-never-ends": Cause(
        subject="pod", affected=_hung_after_work, named=(Constraint.DRAINING,), settled=5.0
    ),
    "drain-waits-for-the-job": Cause(
        subject="pod", affected=_working, named=(Constraint.RUNNING,), settled=3.0
    ),
    "hosts-that-start-nothing": Cause(
        subject="job",
        affected=_verified,
        named=(Constraint.START_FAILED, Constraint.BOOTING),
        settled=180.0,
        every=60.0,
    ),
    "head-of-the-queue-blocks-nobody": Cause(
        subject="job", affected=_over_the_cap, named=(Constraint.TENANT_CAP,), every=10.0
    ),
    "account-that-cannot-mint": Cause(
        subject="job",
        affected=_of_the_refused_account,
        named=(Constraint.EXCLUDED,),
        settled=25.0,
        every=10.0,
    ),
    "capped-tenant-asks-for-no-hosts": Cause(
        subject="job", affected=_over_the_cap, named=(Constraint.TENANT_CAP,), every=10.0
    ),
    "flood-of-one-tenant": Cause(subject="job", affected=_youngest, named=_BUSY, settled=60.0),
    "flood-of-ten-thousand-jobs": "the same as the smaller flood, for longer",
}
