"""The embedded API over TLS with the pinned kubectl, and a stand-in for the node that its Pods are bound to."""

import asyncio
import contextlib
import os
import random
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from tests.embedded.kube_http.fakekubelet import FakeKubelet, node_context, serving_kubelet

from runyard.clock import RealClock
from runyard.embedded.kube import kubeconfig
from runyard.embedded.kube.access.login import authenticator
from runyard.embedded.kube.core import KubeCore, Security
from runyard.embedded.kube.nodeproxy.passing import HttpNodes
from runyard.http.addresses import decode_target
from runyard.http.messages import Request, Response
from runyard.http.server import Listening, listen
from runyard.http.tls import (
    Pair,
    client_context,
    issue_client,
    issue_server,
    make_authority,
    server_context,
    write_pair,
)

KUBECTL = Path(sys.executable).parent / "kubectl"
ADMIN = "an-administrator-of-tests"
NODE = "mini-1"
PODS = "/api/v1/namespaces/default/pods"
TIMEOUT = 30.0


class ProxyHarness:
    """An API, a fake node, and the proxy between them."""

    def __init__(self, folder: Path, authority: Pair, node: FakeKubelet, nodes: HttpNodes) -> None:
        self.folder = folder
        self.authority = authority
        self.node = node
        self.nodes = nodes
        self.core = KubeCore(
            clock=RealClock(), rng=random.Random(3), security=Security(rbac=True), proxy=nodes
        )
        self.core.guard(authenticator([ADMIN], self.core.tokens))
        self.listening: Listening

    async def send(
        self, method: str, path: str, body: Any = None, *, kind: str = "application/json"
    ) -> Response:
        """Sends a request as administrator; returns the answer."""
        path, query = decode_target(path)
        request = Request(
            method=method,
            path=path,
            query=query,
            headers=(("authorization", f"Bearer {ADMIN}"), ("content-type", kind)),
            body=b"" if body is None else msgspec.json.encode(body),
        )
        answer = await self.core.handle(request)
        if isinstance(answer, Response):
            return answer
        parts = [part async for part in answer]
        await answer.aclose()
        return Response(status=answer.status, headers=answer.headers, body=b"".join(parts))

    async def make(self, path: str, body: Any) -> None:
        answer = await self.send("POST", path, body)
        assert answer.status == 201, answer

    async def add_node(self, name: str, *, port: int = 0, addresses: Any = None) -> None:
        known = [{"type": "InternalIP", "address": "127.0.0.1"}]
        status: dict[str, Any] = {"addresses": known if addresses is None else addresses}
        if port:
            status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": port}}
        await self.make("/api/v1/nodes", {"metadata": {"name": name}, "status": status})

    async def add_pod(self, name: str, *, node: str = NODE, containers: Any = ("runner",)) -> None:
        spec = {"containers": [{"name": each, "image": "vm:1"} for each in containers]}
        await self.make(
            PODS,
            {
                "metadata": {"name": name},
                "spec": spec | ({"nodeName": node} if node else {}),
            },
        )

    async def populate(self) -> None:
        """Creates a node that serves, and a Pod that runs there."""
        await self.add_node(NODE, port=self.node.port)
        await self.add_pod("mac-1")
        running = {"status": {"phase": "Running"}}
        merge = "application/merge-patch+json"
        answer = await self.send("PATCH", f"{PODS}/mac-1/status", running, kind=merge)
        assert answer.status == 200, answer

    # ---- kubectl

    async def start(self, *arguments: str, token: str = "") -> asyncio.subprocess.Process:
        options = (f"--token={token}",) if token else ()
        return await asyncio.create_subprocess_exec(
            str(KUBECTL),
            f"--kubeconfig={self.folder / 'config'}",
            f"--cache-dir={self.folder / 'cache'}",
            *options,
            *arguments,
            env={"HOME": str(self.folder), "PATH": os.environ["PATH"]},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def kubectl(
        self, *arguments: str, stdin: bytes = b"", token: str = ""
    ) -> tuple[int, bytes, str]:
        """Runs kubectl; returns its exit code and output."""
        process = await self.start(*arguments, token=token)
        async with asyncio.timeout(TIMEOUT):
            out, err = await process.communicate(stdin)
        assert process.returncode is not None
        return process.returncode, out, err.decode()

    # ---- by hand

    async def dial(self, method: str, target: str, **headers: str) -> "Dialled":
        """A connection to the API, upgraded as those headers say."""
        context = client_context(self.authority.certificate)
        port = self.listening.port
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        all_headers = {
            "host": "x",
            "authorization": f"Bearer {ADMIN}",
            "connection": "Upgrade",
        } | headers
        lines = "".join(
            f"{key.replace('_', '-')}: {value}\r\n" for key, value in all_headers.items()
        )
        writer.write(f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode())
        async with asyncio.timeout(TIMEOUT):
            head = await reader.readuntil(b"\r\n\r\n")
        return Dialled(head.decode(), reader, writer)


class Dialled(msgspec.Struct, frozen=True):
    """The head of a response, and the open connection."""

    head: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


def to_nodes(folder: Path, authority: Pair) -> ssl.SSLContext:
    pair = issue_client(authority, "the-api", ("system:masters",), now=RealClock().now())
    return client_context(authority.certificate, files=write_pair(folder, "to-nodes", pair))


@contextlib.asynccontextmanager
async def passing(folder: Path, **limits: Any) -> AsyncIterator[ProxyHarness]:
    """An API and a node that serves, with the Pod `mac-1` bound to it."""
    now = RealClock().now()
    authority = make_authority(now=now)
    own = write_pair(folder, "server", issue_server(authority, ["127.0.0.1"], now=now))
    nodes = HttpNodes(to_nodes(folder, authority), **limits)
    async with serving_kubelet(node_context(folder, authority, node=NODE)) as node:
        harness = ProxyHarness(folder, authority, node, nodes)
        harness.listening = await listen(harness.core.handle, tls=server_context(own))
        text = kubeconfig.render(
            harness.listening.url, token=ADMIN, ca=authority.certificate, namespace="default"
        )
        (folder / "config").touch(mode=0o600)
        (folder / "config").write_text(text)
        try:
            await harness.populate()
            yield harness
        finally:
            await harness.listening.close()
        assert not harness.core.failures


def play(folder: Path, scenario: Callable[[ProxyHarness], Awaitable[None]], **limits: Any) -> None:
    """Run a scenario; afterwards no call may be left open."""

    async def main() -> None:
        async with passing(folder, **limits) as harness:
            await scenario(harness)
            async with asyncio.timeout(TIMEOUT):
                await harness.node.idle.wait()
                while harness.nodes.open:
                    await asyncio.sleep(0)

    asyncio.run(main())
