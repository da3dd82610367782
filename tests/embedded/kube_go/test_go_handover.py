"""runyard's operator and a controller on client-go want the same Lease: never do both lead, and no Pod is made twice.

The Go program stands for Tuist's runners-controller: it has the name and the namespace of its Lease, and while it leads
it fills the pool without any other precaution.
"""

import asyncio
import itertools
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.embedded.kube_go.gosupport import Running, start
from tests.embedded.kube_http.kubectlsupport import SPACE, Served, serve

from runyard.http.messages import Request, Response, Stream
from runyard.wire import names
from runyard.wire.instants import from_rfc3339

pytestmark = pytest.mark.slow

LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{names.CONTROLLER_NAMESPACE}/leases"
POOL = f"/apis/tuist.dev/v1alpha1/namespaces/{SPACE}/runnerpools/mac"
PODS = f"/api/v1/namespaces/{SPACE}/pods"
MERGE = "application/merge-patch+json"
GO, OURS = "kube-client", "runyard-operator"
GO_LEASE = 3  # seconds: how long the operator waits after it was killed
TIMEOUT = 90.0  # a busy machine; an idle one needs 20 s


class Contest:
    """One pool, one Lease, and the two who want it."""

    def __init__(self, served: Served, folder: Path, client: Path) -> None:
        self._served = served
        self._client = client
        self._config = folder / "config"
        self._log = folder / "operator.log"
        self.wrong: list[str] = []
        self.records: list[dict[str, Any]] = []
        self.operator: asyncio.subprocess.Process | None = None
        self.go: Running | None = None
        self._answer = served.core.handle
        served.core.handle = self._judged  # type: ignore[method-assign]  # every request passes

    async def _judged(self, request: Request) -> Response | Stream:
        """Notes a Pod that is created by the one who does not hold the Lease when the answer is sent."""
        answer = await self._answer(request)
        if answer.status < 300 and request.path.startswith(LEASES) and request.method != "GET":
            self.records.append(self.lease())
        if request.method == "POST" and request.path == PODS and answer.status == 201:
            sender = request.header("user-agent").partition("/")[0]
            writer = GO if sender == GO else OURS
            if self.holder() != writer:
                self.wrong.append(f"{writer} created a Pod while {self.holder()} led")
        return answer

    def lease(self) -> dict[str, Any]:
        found = self._served.core.find("leases", names.CONTROLLER_NAMESPACE, names.CONTROLLER_LEASE)
        return {} if found is None else dict(found["spec"])

    def holder(self) -> str:
        held = self.lease().get("holderIdentity") or ""
        return OURS if held.startswith(OURS) else GO if held else ""

    def pods(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in self._served.core.objects("pods")]

    async def scale(self, replicas: int) -> None:
        body = {"spec": {"replicas": replicas}}
        await self._served.write("PATCH", POOL, body, content_type=MERGE)

    async def start_go(self) -> None:
        self.go = await start(self._client, "pods", "mac", kubeconfig=self._config, lease=GO_LEASE)
        await self.go.until("waiting")

    async def start_operator(self) -> None:
        argv = ("-m", "runyard.cli.main", "operator", "--listen", "127.0.0.1:0", "--name", OURS)
        argv += ("--kubeconfig", str(self._config), "--dispatch-url", "http://127.0.0.1:1/dispatch")
        with self._log.open("ab") as log:
            self.operator = await asyncio.create_subprocess_exec(
                sys.executable, *argv, stdout=log, stderr=log
            )
        await self.until(
            lambda: b"another replica leads" in self._log.read_bytes() or self.holder() == OURS
        )

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(TIMEOUT):
            while not condition():
                await asyncio.sleep(0.05)

    async def filled(self, count: int) -> None:
        """Waits until there are so many Pods, and gives both some time to make one too many."""
        await self.until(lambda: len(self.pods()) >= count)
        since = len(self.records)
        await self.until(lambda: len(self.records) >= since + 2)  # two renewals of the leader
        assert len(self.pods()) == count and not self.wrong, self.wrong

    async def end(self) -> None:
        if self.operator is not None and self.operator.returncode is None:
            self.operator.kill()
            await self.operator.wait()
        if self.go is not None and self.go.process.returncode is None:
            self.go.process.kill()
            await self.go.process.wait()


def check_records(records: list[dict[str, Any]]) -> None:
    """Each record is one that the other side understands; a change of the holder counts as a transition."""
    for record in records:
        assert {
            "holderIdentity",
            "leaseDurationSeconds",
            "renewTime",
            "acquireTime",
        } <= record.keys()
        for key in ("renewTime", "acquireTime"):
            assert len(record[key]) == len("2026-01-02T03:04:05.000000Z") and from_rfc3339(
                record[key]
            )
    taken = [record for record in records if record["holderIdentity"]]
    for before, after in itertools.pairwise(taken):
        changed = before["holderIdentity"] != after["holderIdentity"]
        counted = after.get("leaseTransitions", 0) - before.get("leaseTransitions", 0)
        assert counted == int(changed), (before, after)
        assert changed or before["acquireTime"] == after["acquireTime"]


def test_the_operator_and_a_controller_in_go_never_lead_at_once(
    kube_client: Path, tmp_path: Path
) -> None:
    async def scenario(served: Served) -> None:
        for name in ("mac-1", "mac-2"):
            await served.write("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})
        contest = Contest(served, tmp_path, kube_client)
        await contest.scale(0)
        try:
            await contest.start_go()
            assert contest.go is not None
            await contest.go.until("leading")
            await contest.start_operator()
            await contest.scale(4)
            await contest.filled(4)
            assert contest.holder() == GO

            await contest.go.end()  # in order: the Lease is given up
            await contest.until(lambda: contest.holder() == OURS)
            await contest.start_go()
            await contest.scale(6)
            await contest.filled(6)
            assert contest.holder() == OURS

            assert contest.operator is not None
            contest.operator.terminate()
            assert await contest.operator.wait() == 0
            await contest.go.until("leading")
            await contest.start_operator()
            await contest.scale(7)
            await contest.filled(7)
            contest.go.process.kill()  # the Lease expires
            await contest.until(lambda: contest.holder() == OURS)
            await contest.scale(8)
            await contest.filled(8)
        finally:
            await contest.end()
        check_records(contest.records)
        assert contest.lease()["leaseTransitions"] == 3

    serve(tmp_path, scenario)
