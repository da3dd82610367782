"""Compares the requests that a real API server and the embedded one send to the same fake node.

It compares what the node receives: method, path, query, the offered protocol, and that no credential of the client is
passed. The Node declares that it supports WebSockets; otherwise the real server would translate them.
"""

import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import controlplane
import msgspec
import pytest
from tests.conformance.kube import backends
from tests.embedded.kube_http.fakekubelet import (
    FakeKubelet,
    Received,
    node_context,
    serving_kubelet,
)
from tests.embedded.kube_http.proxysupport import to_nodes

from runyard.clock import RealClock
from runyard.embedded.kube.nodeproxy.passing import HttpNodes
from runyard.http.addresses import decode_target
from runyard.http.server import listen
from runyard.http.tls import (
    Pair,
    client_context,
    issue_server,
    make_authority,
    server_context,
    write_pair,
)

NODE = "alike-1"
PODS = "/api/v1/namespaces/default/pods"
KEY = base64.b64encode(b"sixteen bytes...").decode()
SEEN = ("upgrade", "sec-websocket-protocol", "x-stream-protocol-version")

PLAIN: dict[str, str] = {}
CHANNELS = {
    "upgrade": "websocket",
    "connection": "Upgrade",
    "sec-websocket-key": KEY,
    "sec-websocket-version": "13",
    "sec-websocket-protocol": "v5.channel.k8s.io",
}
PORTS = CHANNELS | {"sec-websocket-protocol": "SPDY/3.1+portforward.k8s.io"}
SPDY = {
    "upgrade": "SPDY/3.1",
    "connection": "Upgrade",
    "x-stream-protocol-version": "v5.channel.k8s.io",
    "content-length": "0",
}
REQUESTS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("GET", "log", PLAIN),
    ("GET", "log?follow=true&tailLines=5", PLAIN),
    ("GET", "log?follow=maybe&previous=0&timestamps", PLAIN),
    ("GET", "log?previous=true&timestamps=true&sinceSeconds=3&limitBytes=007", PLAIN),
    ("GET", "log?sinceTime=2024-01-01T01:00:00.123%2B01:00&container=runner&foo=bar", PLAIN),
    ("GET", "log?sinceTime=&tailLines=%2B5&tailLines=7", PLAIN),
    (
        "GET",
        "exec?command=sh&command=-c&command=echo+%22a%26b%22&stdin=true&stdout=true&tty=1",
        CHANNELS,
    ),
    ("GET", "exec?stderr=1&stdout=false&command=%C3%A4+%2F%3B%2B", CHANNELS),
    ("POST", "exec?stdout=true&command=b&command=a&command=&container=runner", SPDY),
    ("POST", "exec", SPDY),
    ("GET", "attach?stdin=true&stdout=true&stderr=true&command=no", CHANNELS),
    ("POST", "attach?stdout=true", SPDY),
    ("GET", "portforward", PORTS),
    ("POST", "portforward?ports=80&ports=443", SPDY),
)


class Server(msgspec.Struct, frozen=True):
    """One API server, and how to call it."""

    port: int
    tls: ssl.SSLContext
    token: str

    async def send(
        self, method: str, target: str, headers: dict[str, str], body: bytes = b""
    ) -> int:
        """The status of the answer; the connection is closed once it began."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.tls)
        given = {"host": "api", "authorization": f"Bearer {self.token}", **headers}
        if body:
            given |= {"content-type": "application/json", "content-length": str(len(body))}
        lines = "".join(f"{key}: {value}\r\n" for key, value in given.items())
        writer.write(f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode() + body)
        async with asyncio.timeout(30):
            head = await reader.readuntil(b"\r\n\r\n")
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return int(head.split(b" ")[1])

    async def make(self, path: str, body: dict[str, Any]) -> None:
        code = await self.send("POST", path, {}, msgspec.json.encode(body))
        assert code in (201, 409), (path, code)  # an account may be there already


async def _received(server: Server, node: FakeKubelet) -> list[Any]:
    """The requests that reach the node when a client requests each subresource once."""
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": node.port}},
        "declaredFeatures": ["ExtendWebSocketsToKubelet"],
    }
    await server.make("/api/v1/nodes", {"metadata": {"name": NODE}, "status": status})
    account = {"metadata": {"name": "default"}}
    await server.make("/api/v1/namespaces/default/serviceaccounts", account)
    spec = {"nodeName": NODE, "containers": [{"name": "runner", "image": "vm:1"}]}
    await server.make(PODS, {"metadata": {"name": "alike"}, "spec": spec})
    for method, what, headers in REQUESTS:
        answer = await server.send(method, f"{PODS}/alike/{what}", headers)
        assert answer == (101 if headers else 200), (method, what, answer)
    return [_comparable(each) for each in node.received]


def _comparable(received: Received) -> Any:
    path, query = decode_target(received.target)
    assert "authorization" not in received.headers
    assert received.user
    return received.method, path, query, [received.headers.get(name) for name in SEEN]


@contextlib.asynccontextmanager
async def _embedded(folder: Path, authority: Pair) -> AsyncIterator[Server]:
    now = RealClock().now()
    core = backends.make_core()
    core.proxy = HttpNodes(to_nodes(folder, authority))
    files = write_pair(folder, "server", issue_server(authority, ["127.0.0.1"], now=now))
    listening = await listen(core.handle, tls=server_context(files))
    try:
        tls = client_context(authority.certificate)
        yield Server(listening.port, tls, backends.ADMIN)
    finally:
        await listening.close()
    assert not core.failures


@pytest.mark.slow
def test_both_servers_send_the_same_requests_to_a_node(
    tmp_path: Path, real_plane: controlplane.ControlPlane
) -> None:
    if real_plane.version[:2] < (1, 36):  # the first that passes WebSockets on to a node
        pytest.skip(f"needs Kubernetes 1.36, this is {real_plane.git_version}")

    async def main() -> None:
        tls = node_context(tmp_path, real_plane.authority, node=NODE)
        async with serving_kubelet(tls) as node:
            server = Server(real_plane.port, real_plane.tls(), controlplane.ADMIN)
            theirs = await _received(server, node)
            for path in (f"{PODS}/alike?gracePeriodSeconds=0", f"/api/v1/nodes/{NODE}"):
                assert await server.send("DELETE", path, {}) == 200
        authority = make_authority(now=RealClock().now())
        tls = node_context(tmp_path, authority, node=NODE)
        async with _embedded(tmp_path, authority) as server, serving_kubelet(tls) as node:
            ours = await _received(server, node)
        assert len(theirs) == len(REQUESTS)
        assert ours == theirs

    asyncio.run(main())
