"""The client of a conformance script: one API server over one transport, with a namespace for this script.

A script does not depend on the server that it runs on. It creates its objects in `api.space`, names cluster-wide
objects with `api.own`, and asserts what every Kubernetes server answers.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Self, TypeVar

import msgspec

from runyard.clock import RealClock
from runyard.http.messages import Request, Response, Stream, Transport

T = TypeVar("T")
Json = dict[str, Any]

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
ROOT_CA = "kube-root-ca.crt"  # the ConfigMap that is in every namespace
OWN = f"metadata.name!={ROOT_CA}"
TIMEOUT = 30.0  # for one answer of a server on a busy machine


class Api:
    """A client of one server, with one caller's credential."""

    def __init__(
        self, transport: Transport, *, space: str, token: str, version: tuple[int, int, int]
    ) -> None:
        self.space = space
        self.version = version
        self._transport = transport
        self._token = token

    def as_caller(self, token: str) -> "Api":
        """The same server and namespace with another token; without a token, anonymous."""
        return Api(self._transport, space=self.space, token=token, version=self.version)

    # ---- names and paths

    def own(self, name: str) -> str:
        """A name for something that lives in no namespace.

        Nodes that do not exist need one too: a real server's garbage collector remembers the names of missing
        Nodes, and removes at any moment what is bound to one that it has missed for 40 s.
        """
        return f"{self.space}-{name}"

    def path(self, plural: str, name: str = "", sub: str = "", *, group: str = "") -> str:
        """The path of a collection, an object or a subresource in this script's namespace."""
        base = f"/apis/{group}" if group else "/api/v1"
        steps = [f"{base}/namespaces/{self.space}/{plural}", name, sub]
        return "/".join(step for step in steps if step)

    def pods(self, name: str = "", sub: str = "") -> str:
        return self.path("pods", name, sub)

    def maps(self, name: str = "") -> str:
        return self.path("configmaps", name)

    # ---- requests

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        kind: str = "application/json",
        accept: str = "application/json",
        agent: str = "script",
        headers: tuple[tuple[str, str], ...] = (),
        pairs: tuple[tuple[str, str], ...] = (),  # query parameters that are repeated
        **query: Any,
    ) -> Response | Stream:
        raw = (
            body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
        )
        given = [("accept", accept), ("user-agent", f"{agent}/1.0"), *headers]
        if raw:
            given.append(("content-type", kind))
        if self._token:
            given.append(("authorization", f"Bearer {self._token}"))
        request = Request(
            method=method,
            path=path,
            query=(*pairs, *((key, str(value)) for key, value in query.items())),
            headers=tuple(given),
            body=raw,
        )
        return await self._transport.send(request, timeout=TIMEOUT)

    async def call(self, method: str, path: str, body: Any = None, **options: Any) -> Response:
        answer = await self.send(method, path, body, **options)
        if isinstance(answer, Stream):  # an error response to a watch
            parts = [part async for part in answer]
            await answer.aclose()
            answer = Response(status=answer.status, headers=answer.headers, body=b"".join(parts))
        return answer

    async def ok(self, method: str, path: str, body: Any = None, **options: Any) -> Json:
        answer = await self.call(method, path, body, **options)
        assert answer.status in (200, 201), (method, path, answer.status, answer.body)
        value: Json = answer.json()
        return value

    async def get(self, path: str, **options: Any) -> Json:
        return await self.ok("GET", path, **options)

    async def create(self, path: str, body: Json, **options: Any) -> Json:
        answer = await self.call("POST", path, body, **options)
        assert answer.status == 201, (path, answer.status, answer.body)
        value: Json = answer.json()
        return value

    async def patch(self, path: str, body: Any, kind: str = MERGE, **options: Any) -> Json:
        return await self.ok("PATCH", path, body, kind=kind, **options)

    async def apply(self, path: str, body: Json, manager: str, **options: Any) -> Json:
        return await self.ok("PATCH", path, body, kind=APPLY, fieldManager=manager, **options)

    async def refused(
        self, method: str, path: str, body: Any = None, **options: Any
    ) -> tuple[int, str]:
        """The code and the reason of a refusal, which must be a proper Status."""
        answer = await self.call(method, path, body, **options)
        return answer.status, (await status_of(answer)).get("reason", "")

    async def why(self, method: str, path: str, body: Any = None, **options: Any) -> Json:
        """The whole Status of a refusal."""
        return await status_of(await self.call(method, path, body, **options))

    async def names(self, path: str, **query: Any) -> list[str]:
        """The names in a list, in the server's order, without the default objects of a namespace."""
        listed = await self.get(path, **query)
        found = [item["metadata"]["name"] for item in listed["items"]]
        return [name for name in found if name != ROOT_CA]

    async def watch(self, path: str, **options: Any) -> "Watch":
        stream = await self.send("GET", path, watch="true", **options)
        assert isinstance(stream, Stream), stream
        assert stream.status == 200, [chunk async for chunk in stream]
        return Watch(stream)

    async def eventually(
        self, check: Callable[[], Awaitable[T | None]], *, seconds: float = 30
    ) -> T:
        """Calls `check` until it returns something; returns that."""
        clock = RealClock()
        async with asyncio.timeout(seconds):
            while (found := await check()) is None or found is False:
                await clock.sleep(0.05)
        return found

    async def gone(self, path: str, *, seconds: float = 30) -> None:
        """Waits until the object at that path is gone."""

        async def check() -> bool | None:
            return (await self.call("GET", path)).status == 404 or None

        await self.eventually(check, seconds=seconds)


class Watch:
    """One open watch; close it, or use it as a context."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._chunks = stream.__aiter__()
        self._rest = b""
        self._events: list[Json] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stream.aclose()

    async def next(self, *, seconds: float = 20) -> Json:
        """The next event; bookmarks too."""
        async with asyncio.timeout(seconds):
            while not self._events:
                self._take(await self._chunks.__anext__())
        return self._events.pop(0)

    async def take(self, count: int) -> list[tuple[str, str]]:
        """The next events that are no bookmarks, as type and name."""
        given: list[tuple[str, str]] = []
        while len(given) < count:
            event = await self.next()
            if event["type"] != "BOOKMARK":
                given.append((event["type"], event["object"]["metadata"].get("name", "")))
        return given

    async def rest(self, *, seconds: float = 30) -> list[Json]:
        """Everything until the server ends the stream."""
        async with asyncio.timeout(seconds):
            async for chunk in self._chunks:
                self._take(chunk)
        found, self._events = self._events, []
        return found

    def _take(self, chunk: bytes) -> None:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        self._events += [msgspec.json.decode(line) for line in lines if line]


async def status_of(answer: Response) -> Json:
    assert answer.status >= 400, (answer.status, answer.body[:2000])
    status: Json = answer.json()
    assert (status["kind"], status["apiVersion"]) == ("Status", "v1"), status
    assert status["status"] == "Failure" and status["code"] == answer.status, status
    return status


def causes(status: Json) -> list[tuple[str, str]]:
    """The reasons and the fields that a refusal names, each once, sorted."""
    named = status.get("details", {}).get("causes", ())
    return sorted({(cause.get("reason", ""), cause.get("field", "")) for cause in named})


# ---- sample objects

IDLE = {"schedulerName": "nobody"}  # a Pod that no scheduler touches


def pod(name: str = "p", *, meta: Json | None = None, **spec: Any) -> Json:
    """A Pod with one container that no scheduler places, unless `spec` overrides that."""
    container = {"name": "runner", "image": "vm:1"}
    body = {"containers": [container], **IDLE, **spec}
    named = {"name": name} if name else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**named, **(meta or {})},
        "spec": body,
    }


def config(name: str = "c", data: Json | None = None, **meta: Any) -> Json:
    """A ConfigMap, the simplest object."""
    body: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **meta}}
    return body if data is None else {**body, "data": data}


def node(name: str, *, ready: str = "True", pods: str = "2", **more: Any) -> Json:
    """A Node whose status is Ready."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": more.get("labels", {})},
        "spec": more.get("spec", {}),
        "status": {
            "capacity": {"pods": pods, "cpu": "16", "memory": "32Gi"},
            "allocatable": {"pods": pods, "cpu": "16", "memory": "32Gi"},
            "conditions": [{"type": "Ready", "status": ready, "reason": "Test"}],
        },
    }
