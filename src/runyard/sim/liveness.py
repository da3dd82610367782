"""Checks liveness: jobs run while runners are idle, and after faults the fleet becomes idle again.

Every half minute `Liveness` checks for the one condition that pages in production: a job that could run, a runner
that could run it, and no progress. Time during a fault, and the time allowed for recovery after it, do not count.

`not_at_rest` lists everything that must not exist without work and faults: what is left then is a leak.
"""

from typing import TYPE_CHECKING, Any

from runyard.embedded.github.model import Job
from runyard.sim.guest import GuestView
from runyard.sim.violations import Violated
from runyard.wire import names

if TYPE_CHECKING:
    from runyard.sim.fleet import Fleet

CHECK_EVERY = 30.0
PATIENCE = 120.0
RECOVERY = 180.0  # seconds after a fault: graces of deadlines, an audit of webhooks, a sweep
SPACE = names.RUNNERS_NAMESPACE


class Liveness:
    """Tracks how long each job has been waiting without excuse."""

    def __init__(self, fleet: "Fleet") -> None:
        self._fleet = fleet
        self._waited: dict[int, float] = {}

    def check(self) -> None:
        """Checks once; time without an excuse is added up for each job."""
        fleet = self._fleet
        now = fleet.clock.monotonic()
        if fleet.disturbed or now - fleet.calm_since < RECOVERY:
            return
        stuck = self._stuck(now)
        self._waited = {job: self._waited.get(job, 0.0) + CHECK_EVERY for job in stuck}
        for job, waited in self._waited.items():
            if waited > PATIENCE:
                runner = stuck[job].pod
                fleet.invariants.violated(
                    Violated.JOB_WAITS_UNEXCUSED, job=job, waited=waited, runner=runner
                )

    def _stuck(self, now: float) -> dict[int, GuestView]:
        """Jobs that could run now, each with a runner that could take it."""
        fleet = self._fleet
        queued = [job for job in fleet.github.jobs().values() if job.status == "queued"]
        found: dict[int, GuestView] = {}
        if not queued:
            return found
        idle = self._idle(now)
        for job in queued:
            runner = idle.get(job.labels[0])
            if (
                runner is not None
                and now - _age_start(fleet, job) > CHECK_EVERY
                and self._has_headroom(job)
            ):
                found[job.id] = runner
        return found

    def _idle(self, now: float) -> dict[str, GuestView]:
        """By dispatch label: a guest that polls, in a Pod that is not to be removed."""
        fleet = self._fleet
        labels = {pool.name: pool.label for pool in fleet.shape.pools}
        found: dict[str, GuestView] = {}
        for guest in fleet.guests.values():
            pod = fleet.kube.find("pods", SPACE, guest.pod)
            if guest.state == "polling" and now - guest.since > CHECK_EVERY and _may_get_job(pod):
                found.setdefault(labels[guest.pool], guest)
        return found

    def _has_headroom(self, job: Job) -> bool:
        """Whether the tenant's budget has headroom for one more runner."""
        fleet = self._fleet
        pool = next(pool for pool in fleet.shape.pools if pool.label == job.labels[0])
        platform = "macos"
        limit = fleet.ledger.limit(job.repo.owner, platform)
        used = fleet.ledger.used(job.repo.owner, platform)
        vcpus, memory = pool.cpu_milli // 1000, pool.memory_mb // 1024
        return used[0] + vcpus <= limit[0] and used[1] + memory <= limit[1]


def _age_start(fleet: "Fleet", job: Job) -> float:
    return job.created_at - fleet.loop.start


def _may_get_job(pod: dict[str, Any] | None) -> bool:
    if pod is None or "deletionTimestamp" in pod["metadata"]:
        return False
    labels = pod["metadata"].get("labels", {})
    return names.POOL_OWNER not in labels and names.DRAIN_ELIGIBLE not in labels


def not_at_rest(fleet: "Fleet") -> tuple[str, ...]:
    """Everything that is not idle, or left over."""
    pods = {pod["metadata"]["uid"]: pod for pod in fleet.kube.objects("pods")}
    return (
        *_pods(fleet, pods),
        *_leftovers(fleet, pods),
        *_rows(fleet, pods),
        *_jobs(fleet),
    )


def _pods(fleet: "Fleet", pods: dict[str, dict[str, Any]]) -> list[str]:
    found = []
    wanted = sum(pool["spec"].get("replicas", 0) for pool in fleet.kube.objects("runnerpools"))
    if len(pods) != wanted:
        found.append(f"{len(pods)} Pods, wanted {wanted}")
    for uid, pod in pods.items():
        guest = fleet.guests.get(uid)
        state = "no guest" if guest is None else guest.state
        if state != "polling":
            found.append(f"{pod['metadata']['name']}: {state}, {_phase(pod)}")
        elif not _may_get_job(pod):
            found.append(f"{pod['metadata']['name']}: stamped, marked or terminating")
    return found


def _leftovers(fleet: "Fleet", pods: dict[str, dict[str, Any]]) -> list[str]:
    found = []
    accounts = [
        account["metadata"]["name"]
        for account in fleet.kube.objects("serviceaccounts")
        if names.RUNNER_POOL in account["metadata"].get("labels", {})
    ]
    wanted = sorted(pod["metadata"]["name"] for pod in pods.values())
    if sorted(accounts) != wanted:
        left = [name for name in sorted(accounts) if name not in wanted]
        found.append(f"accounts that are not those of the Pods: {left}")
    vms = sum(len(host.driver.views()) for host in fleet.hosts.values())
    if vms != len(pods):
        found.append(f"{vms} VMs for {len(pods)} Pods")
    for host in fleet.hosts.values():
        recorded = sorted(host.records.vms.values())
        if recorded != sorted(view.name for view in host.driver.views()):
            found.append(f"{host.name}: records of {recorded}")
    found += [f"registration left at GitHub: {each!r}" for each in fleet.github.runners().values()]
    return found


def _rows(fleet: "Fleet", pods: dict[str, dict[str, Any]]) -> list[str]:
    slots = fleet.ledger.slots
    found = [
        f"slot of {slot.pod_name}: {slot.state}, fence {slot.fence}"
        for slot in slots.values()
        if slot.state != "idle"
    ]
    if sorted(slots) != sorted(pods):
        found.append(f"{len(slots)} slots for {len(pods)} Pods")
    return found


def _jobs(fleet: "Fleet") -> list[str]:
    rows = fleet.ledger.jobs()
    found = []
    for job in fleet.github.jobs().values():
        row = rows.get(job.id)
        if job.status != "completed":
            found.append(f"job {job.id} is {job.status} at GitHub")
        elif row is None:
            found.append(f"job {job.id} is unknown to the server")
        elif row["state"] != "done":
            found.append(f"job {job.id} is over at GitHub and {row['state']} in our rows")
        elif row["conclusion"] != job.conclusion:
            found.append(f"job {job.id}: {job.conclusion} at GitHub, {row['conclusion']} in ours")
    return found


def _phase(pod: dict[str, Any]) -> str:
    gone = " terminating" if "deletionTimestamp" in pod["metadata"] else ""
    return f"{pod.get('status', {}).get('phase', '')}{gone}"
