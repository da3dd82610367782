"""A core behind a real socket, with sample objects, a kubeconfig, and the pinned kubectl beside this Python."""

import asyncio
import os
import random
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from runyard.clock import RealClock
from runyard.embedded.kube import kubeconfig
from runyard.embedded.kube.access.login import authenticator
from runyard.embedded.kube.core import KubeCore, Security
from runyard.http.messages import Request, Response, Stream
from runyard.http.server import listen
from runyard.http.tls import issue_server, make_authority, server_context, write_pair
from runyard.wire.instants import to_rfc3339

T = TypeVar("T")

KUBECTL = Path(sys.executable).parent / "kubectl"
ADMIN = "an-administrator-of-tests"
SPACE = "tuist-runners"
PODS = f"/api/v1/namespaces/{SPACE}/pods"


class Served:
    """One running API and the requests that it got from kubectl."""

    def __init__(self, folder: Path) -> None:
        self.core = KubeCore(clock=RealClock(), rng=random.Random(5), security=Security(rbac=True))
        self.core.guard(authenticator([ADMIN], self.core.tokens))
        self.request_log: list[str] = []
        self.requests: list[Request] = []
        self.folder = folder
        self.url = ""

    async def handle(self, request: Request) -> Response | Stream:
        self.requests.append(request)
        answer = await self.core.handle(request)
        watch = "?watch" if request.param("watch") else ""
        self.request_log.append(f"{request.method} {request.path}{watch} {answer.status}")
        return answer

    async def write(self, method: str, path: str, body: Any, **headers: str) -> dict[str, Any]:
        pairs = {"authorization": f"Bearer {ADMIN}", "content-type": "application/json"} | {
            key.replace("_", "-"): value for key, value in headers.items()
        }
        answer = await self.core.handle(
            Request(
                method=method,
                path=path,
                headers=tuple(pairs.items()),
                body=msgspec.json.encode(body),
            )
        )
        assert isinstance(answer, Response) and answer.status in (200, 201), answer
        value: dict[str, Any] = answer.json()
        return value

    def command(self, *arguments: str) -> tuple[str, ...]:
        config = f"--kubeconfig={self.folder / 'config'}"
        return (str(KUBECTL), config, f"--cache-dir={self.folder / 'cache'}", *arguments)

    @property
    def environment(self) -> dict[str, str]:
        return {"HOME": str(self.folder), "PATH": os.environ["PATH"]}

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self.command(*arguments),
            env=self.environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def run(self, *arguments: str) -> tuple[int, str, str]:
        process = await self.start(*arguments)
        out, err = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()

    async def kubectl(self, *arguments: str) -> str:
        """Runs kubectl, which must succeed; returns its output."""
        code, out, err = await self.run(*arguments)
        assert code == 0, (arguments, err, self.request_log)
        return out


Scenario = Callable[[Served], Awaitable[None]]
Play = Callable[[Scenario], None]


def serve(folder: Path, scenario: Callable[[Served], Awaitable[T]]) -> T:
    """Runs a scenario against a populated API over HTTP."""

    async def main() -> T:
        served = Served(folder)
        # kubectl sends its token only over an encrypted connection.
        authority = make_authority(now=RealClock().now())
        pair = issue_server(authority, ["127.0.0.1"], now=RealClock().now())
        tls = server_context(write_pair(folder, "server", pair))
        listening = await listen(served.handle, tls=tls)
        served.url = listening.url
        text = kubeconfig.render(
            listening.url, token=ADMIN, ca=authority.certificate, namespace=SPACE
        )
        (folder / "config").write_text(text)
        (folder / "config").chmod(0o600)
        try:
            await populate(served)
            result = await scenario(served)
        finally:
            await listening.close()
        assert not served.core.failures
        return result

    return asyncio.run(main())


async def populate(served: Served) -> None:
    now = to_rfc3339(RealClock().now() - 200)
    await served.write("POST", "/api/v1/nodes", NODE)
    for name in ("mac-1", "mac-2"):
        await served.write("POST", PODS, pod(name))
    status = {"phase": "Running", "podIP": "127.0.0.9", "startTime": now}
    status["containerStatuses"] = [  # type: ignore[assignment]  # a map of texts, but for this one
        {
            "name": "runner",
            "image": "vm:1",
            "ready": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": now}},
        }
    ]
    merge = "application/merge-patch+json"
    await served.write("PATCH", f"{PODS}/mac-1/status", {"status": status}, content_type=merge)
    pools = f"/apis/tuist.dev/v1alpha1/namespaces/{SPACE}/runnerpools"
    await served.write("POST", pools, POOL)
    seen = {"status": {"observedReplicas": 1, "observedImage": "vm:1"}}
    await served.write("PATCH", f"{pools}/mac/status", seen, content_type=merge)
    made = served.core.find("pods", SPACE, "mac-1")
    assert made is not None
    await served.write("POST", f"/api/v1/namespaces/{SPACE}/events", event(made, now))
    lease = {"metadata": {"name": "mini-1"}, "spec": {"holderIdentity": "mini-1"}}
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    await served.write("POST", leases, lease)


def pod(name: str) -> dict[str, Any]:
    limits = {"cpu": "4", "memory": "8Gi"}
    container = {"name": "runner", "image": "vm:1", "resources": {"limits": limits}}
    return {"metadata": {"name": name, "labels": {"a": "b"}}, "spec": {"containers": [container]}}


def event(about: dict[str, Any], now: str) -> dict[str, Any]:
    meta = about["metadata"]
    return {
        "metadata": {"name": "mac-1.1"},
        "involvedObject": {
            "kind": "Pod",
            "apiVersion": "v1",
            "name": meta["name"],
            "namespace": meta["namespace"],
            "uid": meta["uid"],
        },
        "type": "Normal",
        "reason": "CreatingVM",
        "message": "cloning the image vm:1",
        "source": {"component": "tart-kubelet", "host": "mini-1"},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 3,
    }


NODE = {
    "metadata": {
        "name": "mini-1",
        "labels": {"kubernetes.io/os": "darwin", "node-role.kubernetes.io/runner": ""},
    },
    "status": {
        "allocatable": {"pods": "1", "cpu": "8", "memory": "16Gi"},
        "capacity": {"pods": "1", "cpu": "8", "memory": "16Gi"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "TartKubeletReady"}],
        "addresses": [{"type": "InternalIP", "address": "127.0.0.7"}],
        "nodeInfo": {
            "kubeletVersion": "v0.1.0",
            "osImage": "macOS 15.6",
            "kernelVersion": "24.6.0",
            "containerRuntimeVersion": "tart://2.28.0",
        },
    },
}
POOL = {
    "apiVersion": "tuist.dev/v1alpha1",
    "kind": "RunnerPool",
    "metadata": {"name": "mac"},
    "spec": {
        "image": "vm:1",
        "fleetSelector": "minis",
        "dispatchLabel": "mac",
        "runnerLabels": ["self-hosted"],
        "replicas": 2,
    },
}
