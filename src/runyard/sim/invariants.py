"""What must hold after every step, whatever broke: checked where it happens, by onlookers that change nothing.

A violation ends the run with the time, what was seen, and the last lines of the trace.

| who looks                     | what must hold                                                              |
|-------------------------------|-----------------------------------------------------------------------------|
| every commit of the server    | budgets; one slot a job; legal edges; what is done stays done; no runner    |
|                               | without a claim                                                             |
| every request to Kubernetes   | nobody deletes a Pod whose runner works; a roll stays within its cap        |
| every poll's answer           | no JIT for a Pod without a stamp, nor for another Pod than before           |
| every event at GitHub         | a job is executed once; a runner that connects is spoken for                |
| every VM                      | started once; never without a record                                        |
| every half minute             | no job waits while a fitting runner idles; the log tells all                |
"""

from collections.abc import Callable, Mapping
from typing import Any

from runyard.db.contract import Row
from runyard.embedded.github.core import GithubCore
from runyard.embedded.kube.core import KubeCore
from runyard.http.messages import Request
from runyard.sim.books import Books, Change, SlotView
from runyard.sim.guest import GuestView
from runyard.sim.loop import SimulationError
from runyard.sim.trace import Trace
from runyard.wire import names

Edges = Mapping[str, tuple[str, ...]]

# From which state a slot or a job may go where; "" is "did not exist". A state may always repeat itself.
SLOT_EDGES: Edges = {
    "": ("idle", "draining"),
    "idle": ("offered", "executing", "draining", "closed"),
    "offered": ("idle", "armed", "executing", "draining", "closed"),
    "armed": ("executing", "draining", "closed"),
    "executing": ("draining", "closed"),
    "draining": ("executing", "closed"),
    "closed": (),
}
JOB_EDGES: Edges = {
    "": ("queued", "running", "done"),
    "queued": ("bound", "running", "done"),
    "bound": ("queued", "running", "done"),
    "running": ("done",),
    "done": (),
}
TERMINAL = ("Succeeded", "Failed")
SPACE = names.RUNNERS_NAMESPACE
LATEST_MINT = 30.0  # seconds; requests are given up long before
_PODS = f"/api/v1/namespaces/{SPACE}/pods/"


class Violation(SimulationError):
    """An invariant does not hold."""


class Invariants:
    """The onlookers of one run."""

    def __init__(
        self,
        *,
        trace: Trace,
        books: Books,
        github: GithubCore,
        kube: KubeCore,
        now: Callable[[], float],
        fail: Callable[[BaseException], None],
    ) -> None:
        self.checks = 0
        self._trace = trace
        self._books = books
        self._github = github
        self._kube = kube
        self._now = now
        self._fail = fail
        self._jits: dict[str, str] = {}  # JIT → uid that it was delivered to
        self._uids: dict[str, str] = {}  # uid → JIT
        self._online: dict[str, int] = {}  # runner name → id, while connected
        self._unasked: dict[str, bool] = {}  # job → given back, and GitHub not asked about it since

    def violated(self, what: str) -> None:
        """End the run with this."""
        lines = "".join(self._trace.last()[-40:])
        self._fail(Violation(f"at {self._now():.3f} s: {what}\n{lines}"))

    # ── the server's rows ───────────────────────────────────────────────────────────────────────

    def committed(self, name: str, rows: list[Row]) -> None:
        """A transaction that wrote something was committed; `rows` are what the log has since."""
        self.checks += 1
        changes, slots = self._books.take_changes(rows)
        touched = {slot.pod_uid: slot for slot in slots}
        for change in changes:
            self._legal(change)
            if change.subject == "job":
                self._looked_at(change)
            elif change.key in touched:
                self._proven(change, touched[change.key])
        for slot in slots:
            self._trace.note("slot", slot.pod_name, slot.state, slot.fence)
            self._slot(slot)

    def _legal(self, change: Change) -> None:
        edges = SLOT_EDGES if change.subject == "slot" else JOB_EDGES
        if change.target != change.source and change.target not in edges.get(change.source, ()):
            self.violated(
                f"{change.subject} {change.key} went from {change.source!r} to {change.target!r} "
                f"({change.why}, {change.actor})"
            )

    def _looked_at(self, change: Change) -> None:
        """A job that was given back is not offered again before GitHub was asked about it."""
        if (change.source, change.target) == ("bound", "queued"):
            # This reason is itself the outcome of a look at GitHub.
            self._unasked[change.key] = change.why != "its runner executes another job"
        if (change.source, change.target) == ("queued", "bound") and self._unasked.get(change.key):
            self.violated(f"job {change.key} was offered again, and nobody asked GitHub about it")

    def asked_github(self, request: Request) -> None:
        """A request has reached GitHub."""
        if request.method == "GET" and "/actions/jobs/" in request.path:
            self._unasked.pop(request.path.rpartition("/")[2], None)

    def _proven(self, change: Change, slot: SlotView) -> None:
        """What a change claims to know must be so: a Pod that is gone, a runner that GitHub has forgotten."""
        if change.target == "closed" and change.source != "closed" and self._exists(slot):
            self.violated(
                f"the slot of {slot.pod_name} was closed, and its Pod is there ({change.why})"
            )
        if change.why in ("fence: deleted", "fence: absent"):
            self._forgotten(slot.runner_name)

    def _forgotten(self, name: str) -> None:
        """A fenced runner is gone at GitHub. Only a mint that was very late may just have made it anew."""
        for runner in self._github.runners().values():
            idle = 0.0 if runner.offline_since is None else self._now() - runner.offline_since
            if runner.name == name and (runner.jit_used or idle > LATEST_MINT):
                self.violated(f"the runner {name} counts as fenced, and GitHub knows it")

    def _exists(self, slot: SlotView) -> bool:
        pod = self._kube.find("pods", SPACE, slot.pod_name)
        if pod is None or pod["metadata"]["uid"] != slot.pod_uid:
            return False
        return pod.get("status", {}).get("phase") not in TERMINAL

    def _slot(self, slot: SlotView) -> None:
        if slot.claims and slot.tenant:
            self._budget(slot)
        if slot.intended_job is not None:
            others = [
                other.pod_name
                for other in self._books.slots.values()
                if other.intended_job == slot.intended_job and other.pod_uid != slot.pod_uid
            ]
            if others:
                self.violated(f"job {slot.intended_job} is meant for {slot.pod_name} and {others}")
        if slot.runner_name in self._online:
            self._spoken_for(slot.runner_name)

    def _budget(self, slot: SlotView) -> None:
        used = self._books.used(slot.tenant, slot.platform)
        limit = self._books.limit(slot.tenant, slot.platform)
        if used[0] > limit[0] or used[1] > limit[1]:
            self.violated(f"{slot.tenant} holds {used} of {limit} on {slot.platform}")

    def _spoken_for(self, runner: str) -> None:
        """A runner that is connected may get a job: somebody's budget must pay for it."""
        slot = self._books.slots.get(self._books.by_runner.get(runner, ""))
        if slot is None or not (slot.claims or slot.fence == "due"):
            self.violated(f"the runner {runner} is connected, and no claim speaks for it: {slot}")

    # ── Kubernetes ──────────────────────────────────────────────────────────────────────────────

    def deletes_busy(self, client: str, request: Request) -> str:
        """Which busy runner this request would delete the Pod of; empty if none."""
        if request.method != "DELETE" or not request.path.startswith(_PODS):
            return ""
        if client.startswith("agent"):
            return ""  # the host confirms the end of a VM; a job that failed without a fault is found at rest
        pod = request.path.removeprefix(_PODS)
        found = self._kube.find("pods", SPACE, pod)
        if found is None or found.get("status", {}).get("phase") in TERMINAL:
            return ""
        runner = names.runner_name(pod)
        return runner if self.busy(runner) else ""

    def busy(self, runner: str) -> bool:
        """Whether a connected runner of that name works on a job."""
        found = self._github.runners().get(self._online.get(runner, -1))
        return found is not None and found.online and found.busy

    def deleted_busy(self, client: str, runner: str) -> None:
        """Such a request was granted."""
        self.violated(f"{client} deleted the Pod of {runner} while it was working")

    def wrote(self, verb: str, kind: str, key: str, uid: str) -> None:
        """Something was committed at the API."""
        self._trace.note("kube", verb, kind, key)
        if kind == "Pod" and verb == "update":
            self._roll_cap(key)

    def _roll_cap(self, key: str) -> None:
        pod = self._kube.find("pods", SPACE, key.partition("/")[2])
        labels = {} if pod is None else pod["metadata"].get("labels", {})
        if names.DRAIN_ELIGIBLE not in labels:
            return
        pool = self._kube.find("runnerpools", SPACE, labels[names.RUNNER_POOL])
        if pool is None:
            return
        spec = pool["spec"]
        percent = spec.get("rollout", {}).get("maxConcurrentPercent", 5)
        cap = max(1, spec.get("replicas", 0) * percent // 100)
        marked = [
            other["metadata"]["name"]
            for other in self._kube.objects("pods")
            if _rolling(other, pool["metadata"]["name"], spec["image"])
        ]
        if len(marked) > cap:
            self.violated(f"the roll of {pool['metadata']['name']} is at {marked}, cap {cap}")

    # ── guests and VMs ──────────────────────────────────────────────────────────────────────────

    def delivered(self, guest: GuestView, jit: str) -> None:
        """A guest got a JIT configuration."""
        self.checks += 1
        if self._jits.setdefault(jit, guest.uid) != guest.uid:
            self.violated(f"{guest.pod} got the JIT of another Pod, {self._jits[jit]}")
        if self._uids.setdefault(guest.uid, jit) != jit:
            self.violated(f"{guest.pod} got a second JIT")

    def answering(self, uid: str, pod: str) -> None:
        """The server is about to give a Pod its JIT: it must be stamped by now."""
        found = self._kube.find("pods", SPACE, pod)
        if found is None or found["metadata"]["uid"] != uid:
            return
        if names.POOL_OWNER not in found["metadata"].get("labels", {}):
            self.violated(f"{pod} is given a JIT and carries no stamp")

    def vm_created(self, host: str, vm: str, recorded: bool) -> None:
        """A host clones a VM."""
        if not recorded:
            self.violated(f"{host} makes {vm} and has no record of it")

    def vm_started(self, host: str, vm: str, times: int) -> None:
        """A host starts a VM."""
        if times > 1:
            self.violated(f"{host} started {vm} {times} times")

    # ── GitHub ──────────────────────────────────────────────────────────────────────────────────

    def happened(self, what: str, detail: dict[str, Any]) -> None:
        """Something happened at GitHub."""
        self.checks += 1
        self._trace.note("github", what, *(str(value) for value in detail.values()))
        runner = str(detail.get("runner"))
        if what == "connected":
            self._online[runner] = detail["runner_id"]
            self._spoken_for(runner)
        elif what in ("removed", "vanished"):
            self._online.pop(runner, None)
        elif what == "job":
            job = self._github.jobs()[detail["job"]]
            if job.executions > 1:
                self.violated(f"job {job.id} was executed {job.executions} times")

    def periodic(self) -> None:
        """What is too dear to check at each step."""
        difference = self._books.unlogged()
        if difference:
            self.violated(f"a change was not logged: {difference}")
        if self._kube.failures or self._github.internal_errors:
            self.violated(f"a core failed: {self._kube.failures} {self._github.internal_errors}")


def _rolling(pod: dict[str, Any], pool: str, image: str) -> bool:
    """Marked to leave, stale, idle and alive."""
    meta = pod["metadata"]
    labels = meta.get("labels", {})
    return (
        labels.get(names.RUNNER_POOL) == pool
        and names.DRAIN_ELIGIBLE in labels
        and names.POOL_OWNER not in labels
        and "deletionTimestamp" not in meta
        and pod.get("status", {}).get("phase") not in TERMINAL
        and pod["spec"]["containers"][0]["image"] != image
    )
