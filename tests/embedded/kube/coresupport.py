"""Helpers for the embedded Kubernetes API: virtual time, short requests, sample objects."""

import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from runyard.embedded.kube.core import KubeCore
from runyard.embedded.kube.settings import Settings
from runyard.embedded.kube.storage.journal import Journal
from runyard.http.messages import Request, Response, Stream
from runyard.sim.clock import VirtualClock
from runyard.sim.loop import run_virtual

T = TypeVar("T")

MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
MAPS = "/api/v1/namespaces/default/configmaps"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
POOLS = "/apis/tuist.dev/v1alpha1/namespaces/tuist-runners/runnerpools"
NODE_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"


class Harness:
    """One core, its clock, and every write that it reported."""

    def __init__(self, *, journal: Journal | None = None, seed: int = 7, **settings: Any) -> None:
        self.clock = VirtualClock()
        self.writes: list[tuple[str, str, str, str]] = []
        self.core = KubeCore(
            clock=self.clock,
            rng=random.Random(seed),
            on_write=lambda *write: self.writes.append(write),
            settings=Settings(**settings),
            journal=journal,
        )

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        kind: str = "application/json",
        **query: Any,
    ) -> Response | Stream:
        agent = query.pop("agent", "tester")
        raw = (
            body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
        )
        return await self.core.handle(
            Request(
                method=method,
                path=path,
                query=tuple((key, str(value)) for key, value in query.items()),
                headers=(("content-type", kind), ("user-agent", f"{agent}/1.0")),
                body=raw,
            )
        )

    async def call(self, method: str, path: str, body: Any = None, **options: Any) -> Response:
        answer = await self.send(method, path, body, **options)
        assert isinstance(answer, Response)
        assert b"InternalError" not in answer.body, answer.body
        return answer

    async def ok(self, method: str, path: str, body: Any = None, **options: Any) -> dict[str, Any]:
        answer = await self.call(method, path, body, **options)
        assert answer.status in (200, 201), answer.body
        value: dict[str, Any] = answer.json()
        return value

    async def refused(
        self, method: str, path: str, body: Any = None, **options: Any
    ) -> tuple[int, str]:
        answer = await self.call(method, path, body, **options)
        status = answer.json()
        assert status["kind"] == "Status" and status["code"] == answer.status
        assert status["status"] == "Failure", status
        return answer.status, status.get("reason", "")

    async def merge(self, path: str, body: Any, **options: Any) -> dict[str, Any]:
        return await self.ok("PATCH", path, body, kind=MERGE, **options)

    async def apply(self, path: str, body: Any, manager: str, **options: Any) -> dict[str, Any]:
        return await self.ok(
            "PATCH", path, with_type(path, body), kind=APPLY, fieldManager=manager, **options
        )

    async def watch(self, path: str, **query: Any) -> Stream:
        stream = await self.send("GET", path, watch="true", **query)
        assert isinstance(stream, Stream)
        return stream

    async def pass_time(self, seconds: float, *, step: float = 5.0) -> None:
        """Advances time while the controllers tick."""
        for _ in range(round(seconds / step)):
            await self.clock.sleep(step)
            self.core.tick()


def play(scenario: Callable[[Harness], Awaitable[T]], **settings: Any) -> T:
    """Runs a scenario on a new core under virtual time."""

    async def main() -> T:
        harness = Harness(**settings)
        result = await scenario(harness)
        assert not harness.core.failures
        return result

    return run_virtual(main())


KINDS = {
    "configmaps": "ConfigMap",
    "nodes": "Node",
    "pods": "Pod",
    "serviceaccounts": "ServiceAccount",
    "leases": "Lease",
    "secrets": "Secret",
    "runnerpools": "RunnerPool",
    "namespaces": "Namespace",
    "events": "Event",
}


def with_type(path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Adds kind and apiVersion to a body, derived from its path."""
    steps = path.split("/")
    version = "v1" if steps[1] == "api" else f"{steps[2]}/{steps[3]}"
    kind = next(KINDS[step] for step in reversed(steps) if step in KINDS)
    return {"kind": kind, "apiVersion": version} | body


async def events(stream: Stream, *, count: int | None = None) -> list[dict[str, Any]]:
    """The next events of a watch: that many, or all until it ends."""
    found: list[dict[str, Any]] = []
    async for chunk in stream:
        found += [msgspec.json.decode(line) for line in chunk.splitlines()]
        if count is not None and len(found) >= count:
            break
    return found


def types_and_names(found: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Events as type and name."""
    return [(item["type"], item["object"]["metadata"].get("name", "")) for item in found]


def pod(name: str = "p", **spec: Any) -> dict[str, Any]:
    container = {"name": "runner", "image": "vm:1"}
    if "limits" in spec:
        container["resources"] = {"limits": spec.pop("limits")}
    meta = {"name": name, **spec.pop("meta", {})}
    return {"metadata": meta, "spec": {"containers": [container], **spec}}


def node(name: str = "n1", *, ready: str = "True", pods: str = "2", **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": more.get("labels", {})},
        "spec": more.get("spec", {}),
        "status": {
            "allocatable": {"pods": pods, "cpu": "16", "memory": "32Gi"},
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }


def pool(name: str = "mac", **spec: Any) -> dict[str, Any]:
    base = {
        "image": "vm:1",
        "fleetSelector": "f",
        "dispatchLabel": "d",
        "runnerLabels": ["self-hosted"],
    }
    what = {"kind": "RunnerPool", "apiVersion": "tuist.dev/v1alpha1"}
    return {**what, "metadata": {"name": name}, "spec": base | spec}
