"""The client over real sockets against a server that breaks off anywhere: the store still ends at the truth."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.kube.firesupport import ADMIN, NS, Listener
from tests.kube.hostileserver import Fault, HostileServer, Hurried
from tests.kube.kubesupport import refusal

from runyard.clock import RealClock
from runyard.embedded.kube.access.login import authenticator
from runyard.embedded.kube.core import KubeCore
from runyard.embedded.kube.settings import Settings
from runyard.http.client import HttpTransport
from runyard.http.loopback import Loopback
from runyard.http.messages import Request, Response
from runyard.kube.auth import AuthTransport
from runyard.kube.client import Kube
from runyard.kube.config import Source, User
from runyard.kube.credentials import Written
from runyard.kube.kinds import CONFIG_MAPS, SERVICE_ACCOUNTS
from runyard.kube.objects import Bare
from runyard.kube.reflector import Pace, Reflector, Scope, WatchDeps
from runyard.telemetry.meter import Meter

PATIENCE = 60.0  # of the test, in real seconds; what is waited for comes in one or two
OBJECTS = 13
PAGE = 5
CHANGES = ("new created", "m1 changed", "m2 deleted", "m3 deleted", "m3 created")
MOST_REQUESTS = 40


class ShiftedClock(RealClock):
    """The server's clock, which a test may put forward."""

    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


class Scene:
    """The API, the hostile server before it, and a reflector that must go through that server."""

    def __init__(self, folder: Path) -> None:
        self.clock = ShiftedClock()
        settings = Settings(bookmark_every=0.3, gone_in_stream=False)
        self.core = KubeCore(clock=self.clock, rng=random.Random(5), settings=settings)
        self.core.guard(authenticator((ADMIN,), self.core.tokens))
        self.admin = Kube(Loopback(self.core.handle), token=lambda: ADMIN)
        self.server = HostileServer(self.core.handle)
        self.listener = Listener(self.living)
        self.token_file = folder / "token"
        self._changed = asyncio.Event()

    def changed(self, key: str, old: Bare | None, new: Bare | None) -> None:
        self.listener.changed(key, old, new)
        self._changed.set()

    async def begin(self) -> None:
        body: dict[str, Any] = {"metadata": {"name": "client"}}
        await self.admin.create(SERVICE_ACCOUNTS, body, namespace=NS)
        await self.rotate()
        for number in range(OBJECTS):
            body = {"metadata": {"name": f"m{number}"}, "data": {"text": "x" * 300}}
            await self.admin.create(CONFIG_MAPS, body, namespace=NS)

    async def rotate(self) -> None:
        token = await self.admin.create_token("client", namespace=NS, audience="", seconds=600)
        self.token_file.write_text(token)

    def reflector(self, transport: HttpTransport) -> Reflector[Bare]:
        clock = Hurried()
        credentials = Written(User(token=Source(path=str(self.token_file))), clock=clock)
        return Reflector(
            WatchDeps(
                # The real seconds in which an answer must come; loaded machines are slow, and it is tried again.
                kube=Kube(AuthTransport(transport, credentials, clock=RealClock()), timeout=2.0),
                clock=clock,
                rng=random.Random(3),
                meter=Meter(),
            ),
            CONFIG_MAPS,
            Bare,
            scope=Scope(namespace=NS),
            on_change=self.changed,
            # Listed again after a minute of this clock's: the test is over by then.
            pace=Pace(resync=3600.0, page=PAGE),
        )

    async def change_the_world(self) -> None:
        """A creation, a change, a deletion and a replacement."""
        await self.admin.create(CONFIG_MAPS, {"metadata": {"name": "new"}}, namespace=NS)
        label = {"metadata": {"labels": {"a": "b"}}}
        await self.admin.patch(CONFIG_MAPS, "m1", label, namespace=NS)
        await self.admin.delete(CONFIG_MAPS, "m2", namespace=NS)
        await self.admin.delete(CONFIG_MAPS, "m3", namespace=NS)
        await self.admin.create(CONFIG_MAPS, {"metadata": {"name": "m3"}}, namespace=NS)

    def living(self) -> list[str]:
        return [obj["metadata"]["uid"] for obj in self.core.objects("configmaps")]

    def truth(self) -> dict[str, tuple[str, str]]:
        metas = [obj["metadata"] for obj in self.core.objects("configmaps")]
        return {
            f"{NS}/{meta['name']}": (meta["uid"], meta["resourceVersion"])
            for meta in metas
            if meta["namespace"] == NS
        }

    async def agreement(self) -> None:
        while self.listener.view != self.truth():
            self._changed.clear()
            await self._changed.wait()


Act = Callable[[Scene], None]


def play(folder: Path, prepare: Act, *, during: Act = lambda scene: None) -> Scene:
    """Start with the faults that `prepare` puts up, agree, break things, change the world, agree again."""

    async def main() -> Scene:
        scene = Scene(folder)
        await scene.begin()
        prepare(scene)
        async with scene.server.listening() as url, asyncio.timeout(PATIENCE):
            transport = HttpTransport(url)
            async with asyncio.TaskGroup() as group:
                running = group.create_task(scene.reflector(transport).run())
                await scene.agreement()
                during(scene)
                await scene.change_the_world()
                await scene.agreement()
                running.cancel()
            await transport.close()
        return scene

    scene = asyncio.run(main())
    assert scene.listener.complaints == []
    assert len(scene.server.requests) <= MOST_REQUESTS
    assert scene.core.watcher_count("configmaps") == 0
    return scene


BROKEN_WATCHES = [
    "cut inside of an object",
    "ended inside of an object",
    "mute inside of an object",
    "mute before an object",
]


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("fault", BROKEN_WATCHES)
def test_a_watch_that_breaks_off_costs_no_change(fault: Fault, times: int, tmp_path: Path) -> None:
    scene = play(tmp_path, lambda scene: scene.server.watches.extend([fault] * times))
    assert scene.server.happened[:1] == [fault]
    lists = [r for r in scene.server.requests if not r.param("watch")]
    assert len(lists) == 3, "what broke off is resumed, and not listed again"


@pytest.mark.parametrize("fault", ["cut inside of the list", "mute inside of the list"])
def test_a_list_that_breaks_off_is_never_believed(fault: Fault, tmp_path: Path) -> None:
    # The second page: what the first one brought must not pass for the whole.
    scene = play(tmp_path, lambda scene: scene.server.lists.extend([None, fault]))
    assert scene.server.happened == [fault]
    assert scene.listener.told == OBJECTS + len(CHANGES)


REFUSALS = [
    pytest.param(refusal(500), id="500"),
    pytest.param(refusal(503, retry_after="2"), id="503 with a time"),
    pytest.param(refusal(429, retry_after="2"), id="429 with a time"),
    pytest.param(Response(status=502, body=b"<html>"), id="a proxy's page"),
    pytest.param(refusal(410, "Expired"), id="410"),
]


@pytest.mark.parametrize("answer", REFUSALS)
def test_refused_lists_and_watches_are_asked_for_again_in_their_time(
    answer: Response, tmp_path: Path
) -> None:
    def prepare(scene: Scene) -> None:
        scene.server.lists.extend([answer] * 3)
        scene.server.watches.extend([answer] * 3)

    scene = play(tmp_path, prepare)
    assert len(scene.server.happened) >= 4


def test_history_that_is_lost_in_an_outage_is_listed(tmp_path: Path) -> None:
    def outage(scene: Scene) -> None:
        scene.server.watches.extend([refusal(500)] * 2)
        scene.core.close_watches()

        async def compact(request: Request) -> None:
            if request.param("watch"):
                scene.core.compact()

        scene.server.before = compact

    scene = play(tmp_path, lambda scene: None, during=outage)
    assert len([r for r in scene.server.requests if not r.param("watch")]) > 3


def test_a_410_inside_of_a_running_watch_is_followed_by_a_list(tmp_path: Path) -> None:
    play(tmp_path, lambda scene: None, during=lambda scene: scene.core.expire_watches())


def test_a_page_that_expires_in_the_middle_starts_the_list_again(tmp_path: Path) -> None:
    def prepare(scene: Scene) -> None:
        asked = iter(range(10**6))

        async def forget(request: Request) -> None:
            if request.param("continue") and next(asked) == 0:
                label = {"metadata": {"labels": {"a": "b"}}}
                await scene.admin.patch(CONFIG_MAPS, "m5", label, namespace=NS)
                scene.core.compact()

        scene.server.before = forget

    scene = play(tmp_path, prepare)
    lists = [r for r in scene.server.requests if not r.param("watch")]
    assert [bool(r.param("continue")) for r in lists] == [False, True, False]
    assert [r.param("limit") for r in lists] == [str(PAGE), str(PAGE), ""]


def test_a_token_that_ends_between_two_pages_is_renewed_without_a_new_list(tmp_path: Path) -> None:
    async def main() -> Scene:
        scene = Scene(tmp_path)
        await scene.begin()
        fresh = await _later_token(scene)

        async def expire(request: Request) -> None:
            if request.param("continue") and not scene.clock.ahead:
                scene.clock.ahead = 700.0
                scene.token_file.write_text(fresh)

        scene.server.before = expire
        async with scene.server.listening() as url, asyncio.timeout(PATIENCE):
            transport = HttpTransport(url)
            async with asyncio.TaskGroup() as group:
                running = group.create_task(scene.reflector(transport).run())
                await scene.agreement()
                running.cancel()
            await transport.close()
        return scene

    scene = asyncio.run(main())
    lists = [r for r in scene.server.requests if not r.param("watch")]
    assert [bool(r.param("continue")) for r in lists] == [False, True, True, True]
    assert lists[1].header("authorization") != lists[2].header("authorization")


async def _later_token(scene: Scene) -> str:
    """A token that is still good when the first one is not."""
    return await scene.admin.create_token("client", namespace=NS, audience="", seconds=3600)


def test_a_token_that_ends_during_a_watch_stops_nothing_once_there_is_a_new_one(
    tmp_path: Path,
) -> None:
    async def main() -> Scene:
        scene = Scene(tmp_path)
        await scene.begin()
        refused = asyncio.Event()
        async with scene.server.listening() as url, asyncio.timeout(PATIENCE):
            transport = HttpTransport(url)
            async with asyncio.TaskGroup() as group:
                running = group.create_task(scene.reflector(transport).run())
                await scene.agreement()
                asked = len(scene.server.requests)
                scene.clock.ahead = 700.0
                scene.core.close_watches()  # the server lets nobody go on with a dead token

                async def count(request: Request) -> None:
                    if len(scene.server.requests) >= asked + 3:
                        refused.set()

                scene.server.before = count
                await refused.wait()  # whoever writes the token file is late
                await scene.rotate()
                await scene.change_the_world()
                await scene.agreement()
                running.cancel()
            await transport.close()
        return scene

    scene = asyncio.run(main())
    assert scene.listener.complaints == []
    assert len(scene.server.requests) <= MOST_REQUESTS


def test_connections_of_broken_watches_are_given_back(tmp_path: Path) -> None:
    """A watch that is left must not leave its connection: a fleet's server has room for so many."""

    async def main() -> None:
        scene = Scene(tmp_path)
        await scene.begin()
        faults = ["mute inside of an object", "cut inside of an object"] * 3
        scene.server.watches.extend(faults)
        async with scene.server.listening() as url, asyncio.timeout(PATIENCE):
            transport = HttpTransport(url)
            async with asyncio.TaskGroup() as group:
                running = group.create_task(scene.reflector(transport).run())
                await scene.agreement()
                while scene.server.watches:
                    await scene.change_the_world()
                    await scene.agreement()
                    for name in ("new", "m1", "m3"):
                        await scene.admin.delete(CONFIG_MAPS, name, namespace=NS)
                    for name in ("m1", "m2", "m3"):
                        body = {"metadata": {"name": name}}
                        await scene.admin.create(CONFIG_MAPS, body, namespace=NS)
                    await scene.agreement()
                while scene.server.connections > 2:  # the watch, and perhaps an idle one
                    scene.server.parted.clear()
                    await scene.server.parted.wait()
                running.cancel()
            await transport.close()
        assert scene.server.happened == faults

    asyncio.run(main())
