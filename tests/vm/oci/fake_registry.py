"""A small registry with bearer or basic authorization, which notes every request and can misbehave."""

import base64
import json
import ssl
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

import msgspec
from aiohttp import web
from tests.tart_images import MANIFEST, Image, digest_of

USER, PASSWORD = "ci", "s3cret-p4ss"
BASIC = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
TOKEN = "t0ken.of-the_server"

Override = Callable[[web.Request], Awaitable[web.StreamResponse | None]]


class Seen(msgspec.Struct, frozen=True):
    """One request."""

    method: str
    path: str
    query: dict[str, str]
    authorization: str


class FakeServer:
    """A server on loopback that notes its requests; `override` may answer instead of it."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.tls = tls
        self.seen: list[Seen] = []
        self.override: Override | None = None
        self._stack = AsyncExitStack()
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    @property
    def asked(self) -> list[str]:
        """The requests, as `METHOD last-part-of-the-path`."""
        return [f"{each.method} {each.path.rpartition('/')[2]}" for each in self.seen]

    def used(self, authorization: str) -> bool:
        return any(each.authorization == authorization for each in self.seen)

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, shutdown_timeout=0.05)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self.tls)
        await site.start()
        self.port = runner.addresses[0][1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        authorization = request.headers.get("Authorization", "")
        query = dict(request.query)
        self.seen.append(Seen(request.method, request.path, query, authorization))
        if self.override is not None:
            answer = await self.override(request)
            if answer is not None:
                return answer
        return self.answer(request)

    def answer(self, request: web.Request) -> web.StreamResponse:
        return web.Response(status=404)


class FakeRegistry(FakeServer):
    """A registry. `scheme`: "" for all callers, "basic", or "bearer" with a token server at `/token`."""

    def __init__(self, scheme: str = "", tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls)
        self.scheme = scheme
        self.realm = ""  # of another token server
        self.scope = "repository:acme/macos:pull"
        self.anonymous = False  # whether the token server serves strangers
        self.head = True
        self._manifests: dict[str, bytes] = {}

    def push(self, image: Image, namespace: str = "acme/macos", *tags: str) -> str:
        """Offer an image; returns the reference of its first tag."""
        for each in (*(tags or ("latest",)), image.digest):
            self._manifests[f"/v2/{namespace}/manifests/{each}"] = image.manifest
        return f"{self.address}/{namespace}:{(tags or ('latest',))[0]}"

    def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/token":
            return self._token(request)
        if request.headers.get("Authorization", "") not in self._accepted():
            return failure(401, "UNAUTHORIZED", {"WWW-Authenticate": self._challenge()})
        found = self._manifests.get(request.path)
        if found is None:
            return failure(404, "MANIFEST_UNKNOWN")
        if request.method == "HEAD" and not self.head:
            return web.Response(status=405)
        headers = {"Docker-Content-Digest": digest_of(found), "Content-Type": MANIFEST}
        return web.Response(body=found, headers=headers)

    def _accepted(self) -> set[str]:
        bearer = f"Bearer {TOKEN}"
        return {"": {"", BASIC, bearer}, "basic": {BASIC}, "bearer": {bearer}}[self.scheme]

    def _challenge(self) -> str:
        realm = self.realm or f"{self.url}/token"
        scope = f',scope="{self.scope}"' if self.scope else ""
        bearer = f'Bearer realm="{realm}",service="fake"{scope}'
        return bearer if self.scheme == "bearer" else 'Basic realm="fake"'

    def _token(self, request: web.Request) -> web.StreamResponse:
        authorization = request.headers.get("Authorization", "")
        if authorization == BASIC or (self.anonymous and not authorization):
            return web.json_response({"token": TOKEN, "expires_in": 60})
        return failure(401, "UNAUTHORIZED")


def failure(status: int, code: str, headers: dict[str, str] | None = None) -> web.Response:
    """An error as registries write it; the message must never be shown."""
    body = json.dumps({"errors": [{"code": code, "message": f"{PASSWORD} {TOKEN} {BASIC}"}]})
    return web.Response(status=status, text=body, headers=headers)
