"""A clock, scripted transports and sample objects for the tests of this package."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import msgspec

from runyard.clock import RealClock
from runyard.http.messages import Request, Response, Stream, json_response


class VirtualClock(RealClock):
    """The running loop's time; unlike the simulator's own clock it can be made before the loop runs."""

    def now(self) -> float:
        return 1_800_000_000.0 + self.monotonic()


Action = bytes | float | BaseException | Callable[[], Awaitable[None]]
Answer = Response | BaseException


class Script:
    """A transport. Lists and watches follow their scripts, then the last list and a silent watch."""

    def __init__(self, lists: list[Answer], watches: list[Answer | list[Action]]) -> None:
        self.lists = lists
        self.watches = watches
        self.requests: list[Request] = []
        self.times: list[float] = []
        self.slowness = 0.0  # seconds before an answer that is no stream
        self.opened = 0
        self.closed = 0

    @property
    def watched(self) -> list[str]:
        """The versions that watches began from."""
        return [r.param("resourceVersion") for r in self.requests if r.param("watch")]

    @property
    def listed(self) -> int:
        return sum(1 for request in self.requests if not request.param("watch"))

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        self.requests.append(request)
        self.times.append(asyncio.get_running_loop().time())
        if not request.param("watch"):
            return _answer(self.lists.pop(0) if len(self.lists) > 1 else self.lists[0])
        script = self.watches.pop(0) if self.watches else [1e9]
        if not isinstance(script, list):
            await asyncio.sleep(self.slowness)
            return _answer(script)
        self.opened += 1
        return Stream(_play(script), on_close=self._close)

    def _close(self) -> None:
        self.closed += 1


def _answer(answer: Answer) -> Response:
    if isinstance(answer, BaseException):
        raise answer
    return answer


async def _play(script: list[Action]) -> AsyncIterator[bytes]:
    for action in script:
        if isinstance(action, bytes):
            yield action
        elif isinstance(action, BaseException):
            raise action
        elif isinstance(action, int | float):
            await asyncio.sleep(action)
        else:
            await action()


class Recorded:
    """A transport that answers from a function and records the requests."""

    def __init__(self, answer: Callable[[Request], Response | Stream]) -> None:
        self._answer = answer
        self.requests: list[Request] = []

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        self.requests.append(request)
        return self._answer(request)


def pod(name: str, version: int | str, **labels: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": {**meta, "labels": labels}}


def event(kind: str, obj: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"type": kind, "object": obj}) + b"\n"


def bookmark(version: int | str) -> bytes:
    """As a real server sends it: a Pod of nothing but nulls."""
    meta = {"resourceVersion": str(version), "creationTimestamp": None}
    return event("BOOKMARK", {"metadata": meta, "spec": {"containers": None}, "status": {}})


def gone_line() -> bytes:
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    return event("ERROR", status)


def listing(version: int | str, *items: dict[str, Any], token: str = "") -> Response:
    meta = {"resourceVersion": str(version), **({"continue": token} if token else {})}
    return json_response(200, {"metadata": meta, "items": list(items)})


def refusal(status: int, reason: str = "", **headers: str) -> Response:
    pairs = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return json_response(status, {"kind": "Status", "code": status, "reason": reason}, pairs)


async def drive(task: Coroutine[Any, Any, None], seconds: float) -> None:
    """Run an endless task for some seconds."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await task


def dice() -> random.Random:
    return random.Random(7)
