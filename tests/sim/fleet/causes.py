"""The expected explanation of each incident: the affected subjects of each phase, and the one constraint named then.

The test runs an incident, explains the affected subjects again and again, and compares. An incident that delays
nothing has a sentence instead, so that none is left out by mistake. What is affected is read from the fleet (GitHub,
the guests, the Pods, the machines) and from the database, never from an explanation.
"""

from collections.abc import Callable

import msgspec

from runyard.sim.fleet import SPACE, Fleet
from runyard.sim.shape import PLATFORM
from runyard.web.explain.values import Constraint, Subject
from runyard.wire import names

UNKNOWN = "unknown"  # the server has no record of it, and lists what it searched
CLAIMS = ("offered", "armed", "executing", "draining")
Ids = Callable[[Fleet], tuple[str, ...]]


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """One phase: who is affected by it for `settled` seconds without a break, and not longer than `until`."""

    subject: Subject
    affected: Ids
    named: str
    settled: float = 0.0
    until: float = float("inf")
    every: float = 30.0  # how often the explanation is read


def _stamped_without_claim(fleet: Fleet) -> tuple[str, ...]:
    found = []
    for pod in fleet.kube.objects("pods"):
        meta = pod["metadata"]
        slot = fleet.ledger.slots.get(meta["uid"])
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
    known = fleet.ledger.jobs()
    return tuple(str(job) for job in fleet.github.jobs() if job not in known)


def _waiting(fleet: Fleet) -> tuple[str, ...]:
    """Jobs that GitHub has queued and that we know."""
    known = fleet.ledger.jobs()
    jobs = fleet.github.jobs().values()
    return tuple(str(job.id) for job in jobs if job.status == "queued" and job.id in known)


def _during_database_outage(fleet: Fleet) -> tuple[str, ...]:
    if not all(database.down for database in fleet.databases):
        return ()
    return tuple(str(j.id) for j in fleet.github.jobs().values() if j.status == "queued")


def _during_github_outage(fleet: Fleet) -> tuple[str, ...]:
    return _waiting(fleet) if fleet.github.faults.outage else ()


def _meant(state: str) -> Ids:
    """Jobs that a runner in this state is meant for, which has not begun with them."""

    def found(fleet: Fleet) -> tuple[str, ...]:
        slots = [slot for slot in fleet.ledger.slots.values() if slot.state == state]
        meant = {str(slot.intended_job) for slot in slots}
        rows = fleet.ledger.jobs()
        return tuple(
            job for job in _waiting(fleet) if rows[int(job)]["state"] == "bound" and job in meant
        )

    return found


def _displaced(fleet: Fleet) -> tuple[str, ...]:
    """Jobs whose runner got another job, before GitHub was asked about them again."""
    rows = fleet.ledger.jobs()
    return tuple(
        job
        for job in _waiting(fleet)
        if job in fleet.ledger.displaced
        and (row := rows[int(job)])["state"] == "queued"
        and not row["verified"]
    )


def _displaced_over_the_cap(fleet: Fleet) -> tuple[str, ...]:
    """The same after that."""
    return tuple(job for job in _over_the_cap(fleet) if job in fleet.ledger.displaced)


def _on_their_way(*, staged: bool) -> Ids:
    """Pods that have a host and no guest yet, and whose image that host has, or has not."""

    def found(fleet: Fleet) -> tuple[str, ...]:
        return tuple(
            pod["metadata"]["name"]
            for pod in fleet.kube.objects("pods")
            if pod["metadata"]["uid"] not in fleet.guests
            and "deletionTimestamp" not in pod["metadata"]
            and pod.get("status", {}).get("phase") == "Pending"
            and (host := fleet.hosts.get(pod["spec"].get("nodeName", ""))) is not None
            and host.driver.has(pod["spec"]["containers"][0]["image"]) is staged
        )

    return found


def _verified(fleet: Fleet, *, tenant: str = "acme") -> tuple[str, ...]:
    """A tenant's jobs that could be matched at once, if there were somebody to take them."""
    rows = fleet.ledger.jobs()
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
    left = fleet.ledger.limit("acme", PLATFORM)[0] - fleet.ledger.used("acme", PLATFORM)[0]
    jobs = fleet.github.jobs()
    return tuple(job for job in _verified(fleet) if sizes[jobs[int(job)].labels[0]] > left)


def _youngest(fleet: Fleet) -> tuple[str, ...]:
    """The job at the very end of a flood, while every runner works."""
    pods = fleet.kube.objects("pods")
    working = [pod for pod in pods if _works(fleet, pod["metadata"]["uid"])]
    return _verified(fleet)[-1:] if len(working) == len(pods) == _seats(fleet) else ()


def _youngest_while_some_boot(fleet: Fleet) -> tuple[str, ...]:
    """The same while some work and each of the others has a machine that boots."""
    booting = _on_their_way(staged=True)(fleet)
    others = [
        pod["metadata"]["name"]
        for pod in fleet.kube.objects("pods")
        if not _works(fleet, pod["metadata"]["uid"])
    ]
    return _verified(fleet)[-1:] if others and sorted(others) == sorted(booting) else ()


def _works(fleet: Fleet, uid: str) -> bool:
    guest = fleet.guests.get(uid)
    return guest is not None and guest.state == "running"


def _seats(fleet: Fleet) -> int:
    return sum(fleet.shape.seats_of(pool) for pool in fleet.shape.pools)


def _while(fault: str, *, tenant: str = "acme") -> Ids:
    """A tenant's jobs that could be matched, for as long as this goes on."""
    return lambda fleet: _verified(fleet, tenant=tenant) if fleet.disturbed[fault] else ()


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
    waiting = [slot.pod_name for slot in fleet.ledger.slots.values() if slot.state == "idle"]
    return tuple(pod for pod in _guests(fleet, "hung") if pod in waiting)


def _hung_after_work(fleet: Fleet) -> tuple[str, ...]:
    return _guests(fleet, "hung")


def _claims_without_pod(fleet: Fleet) -> tuple[str, ...]:
    """Runners that still hold a budget and whose Pod is gone."""
    pods = [pod["metadata"]["uid"] for pod in fleet.kube.objects("pods")]
    slots = fleet.ledger.slots.values()
    return tuple(s.runner_name for s in slots if s.claims and s.pod_uid not in pods)


def _hold(named: Constraint, *, settled: float = 3.0) -> Cause:
    """A job that waits for this and nothing else, while the fault of that name goes on."""
    return Cause(subject="job", affected=_while(named), named=named, settled=settled, every=5.0)


NOBODY = "nobody is held up by it"
_MINTED = Cause(
    subject="job",
    affected=_meant("offered"),
    named=Constraint.MINTING,
    settled=1.0,
    until=6.0,
    every=1.0,
)
_ARMED = Cause(
    subject="job",
    affected=_meant("armed"),
    named=Constraint.REGISTERING,
    settled=1.0,
    until=110.0,
    every=1.0,
)
_UNTOLD = Cause(subject="job", affected=_never_told, named=UNKNOWN)
_CAPPED = Cause(subject="job", affected=_over_the_cap, named=Constraint.TENANT_CAP, every=10.0)
_STAMPED = Cause(
    subject="pod", affected=_stamped_without_claim, named=Constraint.STAMPED, settled=5.0
)
CAUSES: dict[str, tuple[Cause, ...] | str] = {
    "deploy-leaks-stamped-pods": (_STAMPED,),
    "roll-does-not-collapse-the-pool": (
        Cause(
            subject="pool",
            affected=_rolling_pools,
            named=Constraint.ROLL,
            settled=20.0,
            every=60.0,
        ),
    ),
    "lost-node-runner-lives-on": (
        Cause(subject="pod", affected=_on_lost_hosts, named=Constraint.HOST_AWAY, settled=60.0),
    ),
    "webhooks-lost-for-an-hour": (_UNTOLD,),
    "webhooks-down-for-an-hour": "the same as the other hour without webhooks, for longer",
    "no-address-for-webhooks": "a pull comes before anybody could ask",
    "agent-crash-at-every-effect": (
        Cause(
            subject="pod",
            affected=_on_their_way(staged=False),
            named=Constraint.IMAGE_STAGING,
            settled=4.0,
            every=2.0,
        ),
        Cause(
            subject="pod",
            affected=_on_their_way(staged=True),
            named=Constraint.BOOTING,
            settled=4.0,
            every=2.0,
        ),
    ),
    "server-crash-at-every-effect": (
        _MINTED,
        _ARMED,
        Cause(
            subject="job",
            affected=_meant("offered"),
            named=Constraint.FENCE,
            settled=10.0,
            every=1.0,
        ),
    ),
    "database-outage": (
        Cause(subject="job", affected=_during_database_outage, named=Constraint.DATABASE_AWAY),
    ),
    "github-outage": (
        Cause(
            subject="job",
            affected=_during_github_outage,
            named=Constraint.GITHUB_AWAY,
            settled=60.0,
        ),
    ),
    "job-code-asks-for-more": (
        Cause(subject="pod", affected=_working, named=Constraint.RUNNING, settled=3.0, every=10.0),
    ),
    "reaper-meets-a-working-runner": (_STAMPED,),
    "stamp-of-an-unknown-owner": (_STAMPED,),
    "runner-takes-another-job": (
        Cause(
            subject="job",
            affected=_displaced,
            named=Constraint.ASKED_FIRST,
            every=0.2,
        ),
        Cause(
            subject="job",
            affected=_displaced_over_the_cap,
            named=Constraint.TENANT_CAP,
            settled=1.0,
            every=5.0,
        ),
    ),
    "another-jobs-end-frees-no-runner": NOBODY,
    "claim-of-a-pod-that-vanished": (_ARMED,),
    "webhooks-while-all-else-is-slow": (
        Cause(
            subject="job",
            affected=_during_github_outage,
            named=Constraint.GITHUB_AWAY,
            settled=24.0,
            every=3.0,
        ),
    ),
    "stop-reports-lost": (
        Cause(subject="runner", affected=_claims_without_pod, named=Constraint.DRAINING, every=1.0),
    ),
    "old-event-about-a-finished-job": NOBODY,
    "runner-dies-before-it-registers": (_ARMED,),
    "watchdog-and-job-at-once": NOBODY,
    "poll-loop-dies": (
        Cause(subject="pod", affected=_dead_pollers, named=Constraint.NOT_ASKING, settled=100.0),
    ),
    "machine-that-never-ends": (
        Cause(subject="pod", affected=_hung_after_work, named=Constraint.DRAINING, settled=5.0),
    ),
    "drain-waits-for-the-job": (
        Cause(subject="pod", affected=_working, named=Constraint.RUNNING, settled=3.0),
    ),
    "hosts-that-start-nothing": (
        Cause(
            subject="job",
            affected=_verified,
            named=Constraint.BOOTING,
            settled=40.0,
            until=110.0,
            every=20.0,
        ),
        Cause(
            subject="job",
            affected=_verified,
            named=Constraint.START_FAILED,
            settled=240.0,
            until=500.0,
            every=60.0,
        ),
    ),
    "head-of-the-queue-does-not-block": (_CAPPED,),
    "account-that-cannot-mint": (
        Cause(
            subject="job",
            affected=_while("no-runners-for-birch", tenant="birch"),
            named=Constraint.EXCLUDED,
            settled=25.0,
            every=10.0,
        ),
    ),
    "mints-of-one-account-fail": (
        Cause(
            subject="job",
            affected=_while("mints-of-birch-fail", tenant="birch"),
            named=Constraint.EXCLUDED,
            settled=60.0,
            until=100.0,
            every=10.0,
        ),
    ),
    "storm-of-unknown-mints": "every account is tried again and again, so the constraint changes each few seconds",
    "capped-tenant-asks-for-no-hosts": (_CAPPED,),
    "flood-of-one-tenant": (
        Cause(
            subject="job", affected=_youngest, named=Constraint.ALL_BUSY, settled=2.0, every=15.0
        ),
        Cause(
            subject="job",
            affected=_youngest_while_some_boot,
            named=Constraint.BOOTING,
            settled=4.0,
            every=15.0,
        ),
    ),
    "flood-of-ten-thousand-jobs": "the same as the smaller flood, for longer",
    "job-that-no-pool-serves": (_hold(Constraint.NO_POOL),),
    "tenant-that-is-paused": (_hold(Constraint.PAUSED),),
    "budget-that-is-used-up": (_hold(Constraint.GITHUB_BUDGET, settled=15.0),),
    "fleet-without-hosts": (_hold(Constraint.NO_HOST, settled=20.0),),
    "kubernetes-is-away": (_hold(Constraint.KUBERNETES_AWAY, settled=5.0),),
}
