"""A link between a client and the embedded API with the faults of a network and a server.

The API itself is the real core, with its versions, history, pages, bookmarks and tokens; only the link has faults.
Everything happens in virtual time.
"""

import asyncio
import random
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any

import msgspec
from tests.kube.kubesupport import refusal

from runyard.embedded.kube.access.login import authenticator
from runyard.embedded.kube.core import KubeCore
from runyard.embedded.kube.settings import Settings
from runyard.http.errors import OutcomeUnknown, TransportError
from runyard.http.loopback import Loopback
from runyard.http.messages import Request, Response, Stream
from runyard.kube.auth import AuthTransport
from runyard.kube.client import Kube
from runyard.kube.config import Source, User
from runyard.kube.credentials import StoredCredentials
from runyard.kube.errors import AlreadyExists, NotFound
from runyard.kube.kinds import CONFIG_MAPS, SERVICE_ACCOUNTS
from runyard.kube.objects import Bare
from runyard.kube.reflector import Pace, Reflector, Scope, WatchDeps
from runyard.sim.clock import VirtualClock
from runyard.telemetry.catalogue import RUNYARD_WATCH_RESTARTS_TOTAL
from runyard.telemetry.meter import Meter

NS = "default"
ADMIN = "the-administrator-of-this-test"
RESYNC, MUTE_AFTER, PAGE = 300.0, 30.0, 4
TOKEN_SECONDS = 600
# A request that hangs, the longest wait that a server may ask for, a silence, and a little more.
BOUND = 10.0 + 66.0 + 30.0 + 9.0
BOUND_AFTER_LOSS = BOUND + RESYNC * 1.1  # a lost event shows in the next list, and nowhere else
MOST_A_MINUTE = 110  # requests: a watch that lasts a second each time, and lists of four pages
MOST_AT_ONCE = 20  # requests, in the same instant of virtual time

LIST, WATCH = "list", "watch"
HANG = "hang"
Answer = Response | TransportError | str


class Link:
    """A transport with faults; without faults it works as the loopback does."""

    def __init__(self, core: KubeCore) -> None:
        self._core = core
        self._inner = Loopback(core.handle)
        self.times: list[float] = []
        self.open = 0
        self.between_pages = _nothing  # a write, without which a page does not become too old
        self.repair()

    def repair(self) -> None:
        """Remove all faults. A silent stream stays silent: a dead connection cannot be repaired."""
        self.answers: dict[str, deque[Answer]] = {LIST: deque(), WATCH: deque()}
        self.lines: deque[str] = deque()  # what becomes of the next lines of watches
        self.forgetful_pages = 0
        self.lost = False  # whether an event vanished without a trace
        self.epoch = getattr(self, "epoch", 0)

    def mute(self) -> None:
        """Make the connections of all open watches dead, without an error."""
        self.epoch += 1

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        now = asyncio.get_running_loop().time()
        self.times.append(now)
        if self.times[-MOST_AT_ONCE - 1 : -MOST_AT_ONCE] == [now]:
            # Time would never pass again: hold it here, for `check` to find.
            await asyncio.get_running_loop().create_future()
        watching = bool(request.param("watch"))
        waiting = self.answers[WATCH if watching else LIST]
        if waiting and not request.param("continue"):
            return await _say(waiting.popleft(), timeout)
        if self.forgetful_pages and request.param("continue"):
            self.forgetful_pages -= 1
            await self.between_pages()
            self._core.compact()
        answer = await self._inner.send(request, timeout=timeout)
        if not isinstance(answer, Stream):
            return answer
        self.open += 1
        return Stream(_Through(answer, self), on_close=self._closed(answer))

    def _closed(self, stream: Stream) -> Any:
        def close() -> None:
            self.open -= 1
            on_close, stream._on_close = stream._on_close, None
            if on_close is not None:
                on_close()

        return close

    def most_within(self, seconds: float) -> int:
        """The most requests in any time of that length."""
        times = self.times
        return max(
            (bisect_right(times, at + seconds) - place for place, at in enumerate(times)), default=0
        )


async def _nothing() -> None:
    """What happens between two pages."""


async def _say(answer: Answer, timeout: float) -> Response:
    if isinstance(answer, TransportError):
        raise answer
    if isinstance(answer, str):
        await asyncio.sleep(timeout)
        raise OutcomeUnknown("no answer")
    return answer


class _Through:
    """The lines of a watch, on their way through the link."""

    def __init__(self, stream: Stream, link: Link) -> None:
        self._chunks = stream.__aiter__()
        self._link = link
        self._epoch = link.epoch
        self._pieces: deque[bytes | Exception] = (
            deque()
        )  # what is raised is how the connection ends
        self._last = b""

    def __aiter__(self) -> "_Through":
        return self

    async def __anext__(self) -> bytes:
        while not self._pieces:
            chunk = await anext(self._chunks)
            if self._epoch != self._link.epoch:
                # Half-open: bytes stop, the connection stays.
                await asyncio.get_running_loop().create_future()
            for line in chunk.splitlines(keepends=True):
                self._pieces.extend(self._fate(line))
        piece = self._pieces.popleft()
        if isinstance(piece, Exception):
            raise piece
        return piece

    def _fate(self, line: bytes) -> list[bytes | Exception]:
        fate = self._link.lines.popleft() if self._link.lines else ""
        last, self._last = self._last, line
        if fate == "drop":
            self._link.lost = True
            return []
        if fate == "double":
            return [line, line]
        if fate == "cut":
            return [line[: len(line) // 2], OutcomeUnknown("cut")]
        if fate == "end":
            return [line[: len(line) // 2], StopAsyncIteration()]
        if fate == "pieces":
            return [line[at : at + 7] for at in range(0, len(line), 7)]
        if fate == "garbage":
            return [line[: len(line) // 2] + b"\x00\xff{" + line[len(line) // 2 :]]
        if fate == "late":
            return [line, last]  # as a proxy that repeats its buffer: an old line after a newer one
        return [line]


class Listener:
    """Checks that the reported changes are consistent and that no deletion goes unreported."""

    def __init__(self, existing: Callable[[], Container[str]]) -> None:
        self._existing = existing  # the uids of what is there
        self.alive: dict[str, tuple[str, str]] = {}  # uid → key and version
        self.dead: dict[str, None] = {}  # uids, none of which can come back
        self.problems: list[str] = []
        self.reported = 0

    def changed(self, key: str, old: Bare | None, new: Bare | None) -> None:
        self.reported += 1
        if old is not None and new is not None and old.metadata.uid != new.metadata.uid:
            self.problems.append(f"{key}: became another object without a reported deletion")
        elif old is not None and new is not None and not is_newer(old, new):
            self.problems.append(f"{key}: went from {old.metadata} back to {new.metadata}")
        if old is not None:
            known = self.alive.pop(old.metadata.uid, None)
            if known != (key, old.metadata.resource_version):
                self.problems.append(f"{key}: reported {old.metadata}, knew {known}")
            if new is None and old.metadata.uid in self._existing():
                self.problems.append(f"{key}: reported as deleted, and it exists")
            if new is None:
                self.dead[old.metadata.uid] = None
        if new is not None:
            if new.metadata.uid in self.alive or new.metadata.uid in self.dead:
                self.problems.append(f"{key}: created twice")
            self.alive[new.metadata.uid] = (key, new.metadata.resource_version)

    @property
    def view(self) -> dict[str, tuple[str, str]]:
        return {key: (uid, version) for uid, (key, version) in self.alive.items()}


def is_newer(old: Bare, new: Bare) -> bool:
    return int(new.metadata.resource_version) > int(old.metadata.resource_version)


class Cluster:
    """One API, one reflector of its ConfigMaps behind a faulty link, and an administrator with a working link.

    Create it inside of a virtual loop, then `start` it in a task group.
    """

    def __init__(self, folder: Path, *, history: int = 200) -> None:
        self.clock = VirtualClock()
        # A watch's buffer is short, so that a client that stops reading is cut, as real servers do.
        settings = Settings(history=history, watch_buffer=50, bookmark_every=10.0, tick=20.0)
        self.core = KubeCore(clock=self.clock, rng=random.Random(5), settings=settings)
        self.core.guard(authenticator((ADMIN,), self.core.tokens))
        self.admin = Kube(Loopback(self.core.handle), token=lambda: ADMIN)
        self.link = Link(self.core)
        self.meter = Meter()
        self.listener = Listener(self.existing)
        self.link.between_pages = self._write_elsewhere
        self.token_file = folder / "token"
        self._number = 0

    async def begin(self) -> None:
        """The client's account, its first token, and the client."""
        body = {"metadata": {"name": "client"}}
        await self.admin.create(SERVICE_ACCOUNTS, body, namespace=NS)
        await self.rotate()
        user = User(token=Source(path=str(self.token_file)))
        credentials = StoredCredentials(user, clock=self.clock)
        self.reflector: Reflector[Bare] = Reflector(
            WatchDeps(
                kube=Kube(AuthTransport(self.link, credentials, clock=self.clock)),
                clock=self.clock,
                rng=random.Random(3),
                meter=self.meter,
            ),
            CONFIG_MAPS,
            Bare,
            scope=Scope(namespace=NS),
            on_change=self._changed,
            pace=Pace(resync=RESYNC, mute_after=MUTE_AFTER, page=PAGE),
            indexes={"colour": lambda obj: (obj.metadata.labels.get("colour", ""),)},
        )

    def _changed(self, key: str, old: Bare | None, new: Bare | None) -> None:
        if self.reflector.store.get(key) is not new:
            self.listener.problems.append(f"{key}: reported before the store had it")
        self.listener.changed(key, old, new)

    async def rotate(self) -> None:
        """Write a fresh token where the client looks."""
        token = await self.admin.create_token(
            "client", namespace=NS, audience="", seconds=TOKEN_SECONDS
        )
        self.token_file.write_text(token)

    async def put(self, name: str, colour: str) -> None:
        """Create it or change it."""
        self._number += 1
        labels = {"metadata": {"labels": {"colour": colour, "n": str(self._number)}}}
        try:
            await self.admin.patch(CONFIG_MAPS, name, labels, namespace=NS)
        except NotFound:
            body = {"metadata": {"name": name, **labels["metadata"]}}
            await self.admin.create(CONFIG_MAPS, body, namespace=NS)

    async def delete(self, name: str) -> None:
        """Delete it if it is there."""
        try:
            await self.admin.delete(CONFIG_MAPS, name, namespace=NS)
        except NotFound:
            return

    async def replace(self, name: str) -> None:
        """Delete it and create another one of its name, at once."""
        await self.delete(name)
        try:
            await self.admin.create(CONFIG_MAPS, {"metadata": {"name": name}}, namespace=NS)
        except AlreadyExists:
            return

    async def _write_elsewhere(self) -> None:
        await self.put("between-the-pages", "grey")

    def existing(self) -> list[str]:
        """The uids of what the API holds."""
        return [obj["metadata"]["uid"] for obj in self.core.objects("configmaps")]

    def truth(self) -> dict[str, tuple[str, str]]:
        """What the API holds: key → uid and version."""
        metas = [obj["metadata"] for obj in self.core.objects("configmaps")]
        return {
            f"{meta['namespace']}/{meta['name']}": (meta["uid"], meta["resourceVersion"])
            for meta in metas
            if meta["namespace"] == NS
        }

    def stored(self) -> dict[str, tuple[str, str]]:
        """What the reflector holds."""
        store = self.reflector.store
        pairs = zip(store.keys(), (obj.metadata for obj in store.values()), strict=True)
        return {key: (meta.uid, meta.resource_version) for key, meta in pairs}

    def check(self) -> None:
        """Check what must hold at every moment."""
        assert self.listener.problems == []
        assert self.listener.view == self.stored()
        assert self.link.open <= 1, "a stream was left open"
        assert self.core.watcher_count("configmaps") <= 1, "the server still feeds a dead watch"
        assert self.link.most_within(60.0) <= MOST_A_MINUTE, "a storm of requests"
        assert self.link.most_within(0.0) <= MOST_AT_ONCE, "a storm of requests"

    def check_settled(self) -> None:
        """Check what must hold once the link works again and `BOUND` has passed."""
        self.check()
        assert self.stored() == self.truth()
        store = self.reflector.store
        for obj in store.values():
            assert obj in store.by_index("colour", obj.metadata.labels.get("colour", ""))
        assert not self.core.failures

    def restarts(self) -> float:
        return self.meter.total(RUNYARD_WATCH_RESTARTS_TOTAL)


def throttled(seconds: int) -> Response:
    return refusal(429, "TooManyRequests", retry_after=str(seconds))


def overloaded(seconds: int) -> Response:
    """A failure that names its time only in the Status object, as a server behind a proxy may."""
    status = {"kind": "Status", "code": 503, "details": {"retryAfterSeconds": seconds}}
    return Response(status=503, body=msgspec.json.encode(status))
