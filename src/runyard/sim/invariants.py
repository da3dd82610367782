"""Checks what must hold after every step, whatever failed. The checks change nothing.

A violation ends the run with the time, what was found, and the last lines of the trace.

| checked at                    | what must hold                                                              |
|-------------------------------|-----------------------------------------------------------------------------|
| every commit of the server    | budgets; one slot a job; legal edges; final states stay; no runner          |
|                               | without a claim                                                             |
| every request to Kubernetes   | no Pod with a working runner is deleted; a roll stays within its cap        |
| every poll's answer           | no JIT for a Pod without a stamp, nor for another Pod than before           |
| every event at GitHub         | a job is executed once; a runner that connects has a claim                  |
| every VM                      | started once; never without a record                                        |
| every half minute             | no job waits while a fitting runner is idle; every change was logged        |
"""

from collections.abc import Callable, Mapping
from typing import Any

from runyard.db.contract import Row
from runyard.embedded.github.core import GithubCore
from runyard.embedded.kube.core import KubeCore
from runyard.http.messages import Request
from runyard.sim.guest import GuestView
from runyard.sim.ledger import Change, Ledger, SlotView
from runyard.sim.trace import Trace
from runyard.sim.violations import Violated, Violation
from runyard.wire import names
from runyard.wire.reasons import Value
from runyard.wire.reasons_dispatch import FENCED, Why

Edges = Mapping[str, tuple[str, ...]]

# The legal transitions of slots and jobs; "" is "did not exist". A state may always repeat itself.
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
LATEST_MINT = 30.0  # seconds; requests time out long before
_PODS = f"/api/v1/namespaces/{SPACE}/pods/"


class Invariants:
    """The invariant checks of one run."""

    def __init__(
        self,
        *,
        trace: Trace,
        ledger: Ledger,
        github: GithubCore,
        kube: KubeCore,
        now: Callable[[], float],
        fail: Callable[[BaseException], None],
    ) -> None:
        self.checks = 0
        self._trace = trace
        self._ledger = ledger
        self._github = github
        self._kube = kube
        self._now = now
        self._fail = fail
        self._jits: dict[str, str] = {}  # JIT → uid that it was delivered to
        self._uids: dict[str, str] = {}  # uid → JIT
        self._online: dict[str, int] = {}  # runner name → id, while connected
        self._unasked: dict[str, bool] = {}  # job → requeued, and GitHub not asked about it since

    def violated(self, code: Violated, **detail: Value) -> None:
        """Ends the run with this violation."""
        lines = "".join(self._trace.last()[-40:])
        at = f"at {self._now():.3f} s: "
        self._fail(Violation(code.because(**detail), at=at, note=f"\n{lines}"))

    # ── the server's rows ───────────────────────────────────────────────────────────────────────

    def committed(self, name: str, rows: list[Row]) -> None:
        """Called after a commit that wrote something; `rows` are the new log entries."""
        self.checks += 1
        changes, slots = self._ledger.take_changes(rows)
        touched = {slot.pod_uid: slot for slot in slots}
        for change in changes:
            self._legal(change)
            if change.subject == "job":
                self._read_before_offer(change)
            elif change.key in touched:
                self._proven(change, touched[change.key])
        for slot in slots:
            self._trace.note("slot", slot.pod_name, slot.state, slot.fence)
            self._slot(slot)

    def _legal(self, change: Change) -> None:
        edges = SLOT_EDGES if change.subject == "slot" else JOB_EDGES
        if change.target != change.source and change.target not in edges.get(change.source, ()):
            self.violated(
                Violated.ILLEGAL_TRANSITION,
                subject=change.subject,
                key=change.key,
                source=change.source,
                target=change.target,
                reason=change.reason,
                actor=change.actor,
            )

    def _read_before_offer(self, change: Change) -> None:
        """A requeued job is not offered again before GitHub was asked about it."""
        if (change.source, change.target) == ("bound", "queued"):
            # This reason is itself the result of a read at GitHub.
            self._unasked[change.key] = change.reason != Why.RUNNER_BUSY_ELSEWHERE
        if (change.source, change.target) == ("queued", "bound") and self._unasked.get(change.key):
            self.violated(Violated.OFFERED_UNREAD, job=change.key)

    def asked_github(self, request: Request) -> None:
        """Called when a request has reached GitHub."""
        if request.method == "GET" and "/actions/jobs/" in request.path:
            self._unasked.pop(request.path.rpartition("/")[2], None)

    def _proven(self, change: Change, slot: SlotView) -> None:
        """Checks a change that is based on a proof: the Pod is really gone, the runner really deleted at GitHub."""
        if change.target == "closed" and change.source != "closed" and self._exists(slot):
            self.violated(Violated.CLOSED_WITH_POD, pod=slot.pod_name, reason=change.reason)
        if change.reason in FENCED:
            self._forgotten(slot.runner_name or names.runner_name(slot.pod_name))

    def _forgotten(self, name: str) -> None:
        """A fenced runner is gone at GitHub. Only a very late mint may have created it again."""
        for runner in self._github.runners().values():
            idle = 0.0 if runner.offline_since is None else self._now() - runner.offline_since
            if runner.name == name and (runner.jit_used or idle > LATEST_MINT):
                self.violated(Violated.FENCED_RUNNER_KNOWN, runner=name)

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
                for other in self._ledger.slots.values()
                if other.intended_job == slot.intended_job and other.pod_uid != slot.pod_uid
            ]
            if others:
                self.violated(
                    Violated.JOB_OF_TWO_SLOTS,
                    job=slot.intended_job,
                    pod=slot.pod_name,
                    others=", ".join(others),
                )
        if slot.runner_name in self._online:
            self._has_claim(slot.runner_name)

    def _budget(self, slot: SlotView) -> None:
        used = self._ledger.used(slot.tenant, slot.platform)
        limit = self._ledger.limit(slot.tenant, slot.platform)
        if used[0] > limit[0] or used[1] > limit[1]:
            self.violated(
                Violated.OVER_BUDGET,
                tenant=slot.tenant,
                used=str(used),
                limit=str(limit),
                platform=slot.platform,
            )

    def _has_claim(self, runner: str) -> None:
        """A connected runner may get a job: a claim must hold budget for it."""
        slot = self._ledger.slots.get(self._ledger.by_runner.get(runner, ""))
        if slot is None or not (slot.claims or slot.fence == "due"):
            self.violated(Violated.RUNNER_WITHOUT_CLAIM, runner=runner, slot=str(slot))

    # ── Kubernetes ──────────────────────────────────────────────────────────────────────────────

    def deletes_busy(self, client: str, request: Request) -> str:
        """The busy runner whose Pod this request would delete; empty if none."""
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
        """Called when such a request was granted."""
        self.violated(Violated.BUSY_POD_DELETED, client=client, runner=runner)

    def wrote(self, verb: str, kind: str, key: str, uid: str) -> None:
        """Called when something was committed at the API."""
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
            name = str(pool["metadata"]["name"])
            self.violated(Violated.ROLL_OVER_CAP, pool=name, pods=", ".join(marked), cap=cap)

    # ── guests and VMs ──────────────────────────────────────────────────────────────────────────

    def delivered(self, guest: GuestView, jit: str) -> None:
        """Called when a guest received a JIT configuration."""
        self.checks += 1
        if self._jits.setdefault(jit, guest.uid) != guest.uid:
            self.violated(Violated.JIT_OF_ANOTHER_POD, pod=guest.pod, other=self._jits[jit])
        if self._uids.setdefault(guest.uid, jit) != jit:
            self.violated(Violated.SECOND_JIT, pod=guest.pod)

    def answering(self, uid: str, pod: str) -> None:
        """Called before the server answers a Pod with its JIT: the Pod must be stamped by now."""
        found = self._kube.find("pods", SPACE, pod)
        if found is None or found["metadata"]["uid"] != uid:
            return
        if names.POOL_OWNER not in found["metadata"].get("labels", {}):
            self.violated(Violated.JIT_WITHOUT_STAMP, pod=pod)

    def vm_created(self, host: str, vm: str, recorded: bool) -> None:
        """Called when a host clones a VM."""
        if not recorded:
            self.violated(Violated.VM_WITHOUT_RECORD, host=host, vm=vm)

    def vm_started(self, host: str, vm: str, times: int) -> None:
        """Called when a host starts a VM."""
        if times > 1:
            self.violated(Violated.VM_STARTED_AGAIN, host=host, vm=vm, times=times)

    # ── GitHub ──────────────────────────────────────────────────────────────────────────────────

    def happened(self, what: str, detail: dict[str, Any]) -> None:
        """Called on an event at GitHub."""
        self.checks += 1
        self._trace.note("github", what, *(str(value) for value in detail.values()))
        runner = str(detail.get("runner"))
        if what == "connected":
            self._online[runner] = detail["runner_id"]
            self._has_claim(runner)
        elif what in ("removed", "vanished"):
            self._online.pop(runner, None)
        elif what == "job":
            job = self._github.jobs()[detail["job"]]
            if job.executions > 1:
                self.violated(Violated.JOB_EXECUTED_AGAIN, job=job.id, times=job.executions)

    def periodic(self) -> None:
        """Checks what is too expensive for each step."""
        difference = self._ledger.unlogged()
        if difference:
            self.violated(Violated.CHANGE_NOT_LOGGED, difference=str(difference))
        if self._kube.failures or self._github.internal_errors:
            failures = f"{self._kube.failures} {self._github.internal_errors}"
            self.violated(Violated.CORE_FAILED, failures=failures)


def _rolling(pod: dict[str, Any], pool: str, image: str) -> bool:
    """Whether it is marked to leave, stale, idle and alive."""
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
