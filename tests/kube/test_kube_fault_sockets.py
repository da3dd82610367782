"""Over real sockets, with a server that breaks off anywhere, the store still equals the API at the end."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.kube.faultsupport import ADMIN, NS, Listener
from tests.kube.hostileserver import FastClock, Fault, HostileServer
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
from runyard.kube.credentials import StoredCredentials
from runyard.kube.kinds import CONFIG_MAPS, SERVICE_ACCOUNTS
from runyard.kube.objects import Bare
from runyard.kube.reflector import Pace, Reflector, Scope, WatchDeps
from runyard.telemetry.meter import Meter

PATIENCE = 60.0  # of the test, in real seconds; the awaited event takes one or two
OBJECTS = 13
PAGE = 5
CHANGES = ("new created", "m1 changed", "m2 deleted", "m3 deleted", "m3 created")
MOST_REQUESTS = 40


class ShiftedClock(RealClock):
    """The server's clock, which a test may put forward."""

    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


class Setup:
    """The API, the hostile server in front of it, and a reflector that connects through that server."""

    def __init__(self, folder: Path) -> None:
        self.clock = ShiftedClock()
        settings = Settings(bookmark_every=0.3, gone_in_stream=False)
        self.core = KubeCore(clock=self.clock, rng=random.Random(5), settings=settings)
        self.core.guard(authenticator((ADMIN,), self.core.tokens))
        self.admin = Kube(Loopback(self.core.handle), token=lambda: ADMIN)
        self.server = HostileServer(self.core.handle)
        self.listener = Listener(self.existing)
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
        clock = FastClock()
        credentials = StoredCredentials(User(token=Source(path=str(self.token_file))), clock=clock)
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

    async def change_objects(self) -> None:
        """A creation, a change, a deletion and a replacement."""
        await self.admin.create(CONFIG_MAPS, {"metadata": {"name": "new"}}, namespace=NS)
        label = {"metadata": {"labels": {"a": "b"}}}
        await self.admin.patch(CONFIG_MAPS, "m1", label, namespace=NS)
        await self.admin.delete(CONFIG_MAPS, "m2", namespace=NS)
        await self.admin.delete(CONFIG_MAPS, "m3", namespace=NS)
        await self.admin.create(CONFIG_MAPS, {"metadata": {"name": "m3"}}, namespace=NS)

    def existing(self) -> list[str]:
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


Act = Callable[[Setup], None]


def play(folder: Path, prepare: Act, *, during: Act = lambda setup: None) -> Setup:
    """Start with the faults of `prepare`, reach agreement, add faults, change objects, reach agreement again."""

    async def main() -> Setup:
        setup = Setup(folder)
        await setup.begin()
        prepare(setup)
        async with setup.server.listening() as url, asyncio.timeout(PATIENCE):
            transport = HttpTransport(url)
            async with asyncio.TaskGroup() as group:
                running = group.create_task(setup.reflector(transport).run())
                await setup.agreement()
                during(setup)
                await setup.change_objects()
                await setup.agreement()
                running.cancel()
            await transport.close()
        return setup

    setup = asyncio.run(main())
    assert setup.listener.problems == []
    assert len(setup.server.requests) <= MOST_REQUESTS
    assert setup.core.watcher_count("configmaps") == 0
    return setup


BROKEN_WATCHES = [
    "cut inside of an object",
    "ended inside of an object",
    "mute inside of an object",
    "mute before an object",
]


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("fault", BROKEN_WATCHES)
def test_a_watch_that_breaks_off_loses_no_change(fault: Fault, times: int, tmp_path: Path) -> None:
    setup = play(tmp_path, lambda setup: setup.server.watches.extend([fault] * times))
    assert setup.server.happened[:1] == [fault]
    lists = [r for r in setup.server.requests if not r.param("watch")]
    assert len(lists) == 3, "what broke off is resumed, and not listed again"


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["cut inside of the list", "mute inside of the list"])
def test_an_incomplete_list_is_never_applied(fault: Fault, tmp_path: Path) -> None:
    # The second page: what the first one brought must not pass for the whole.
    setup = play(tmp_path, lambda setup: setup.server.lists.extend([None, fault]))
    assert setup.server.happened == [fault]
    assert setup.listener.reported == OBJECTS + len(CHANGES)


REFUSALS = [
    pytest.param(refusal(500), id="500"),
    pytest.param(refusal(503, retry_after="2"), id="503 with a time"),
    pytest.param(refusal(429, retry_after="2"), id="429 with a time"),
    pytest.param(Response(status=502, body=b"<html>"), id="a proxy's page"),
    pytest.param(refusal(410, "Expired"), id="410"),
]


@pytest.mark.parametrize("answer", REFUSALS)
def test_refused_lists_and_watches_are_retried_after_the_retry_after(
    answer: Response, tmp_path: Path
) -> None:
    def prepare(setup: Setup) -> None:
        setup.server.lists.extend([answer] * 3)
        setup.server.watches.extend([answer] * 3)

    setup = play(tmp_path, prepare)
    assert len(setup.server.happened) >= 4


def test_history_that_is_lost_in_an_outage_is_listed(tmp_path: Path) -> None:
    def outage(setup: Setup) -> None:
        setup.server.watches.extend([refusal(500)] * 2)
        setup.core.close_watches()

        async def compact(request: Request) -> None:
            if request.param("watch"):
                setup.core.compact()

        setup.server.before = compact

    setup = play(tmp_path, lambda setup: None, during=outage)
    assert len([r for r in setup.server.requests if not r.param("watch")]) > 3


def test_a_410_inside_of_a_running_watch_is_followed_by_a_list(tmp_path: Path) -> None:
    play(tmp_path, lambda setup: None, during=lambda setup: setup.core.expire_watches())


def test_a_page_that_expires_in_the_middle_starts_the_list_again(tmp_path: Path) -> None:
    def prepare(setup: Setup) -> None:
        asked = iter(range(10**6))

        async def forget(request: Request) -> None:
            if request.param("continue") and next(asked) == 0:
                label = {"metadata": {"labels": {"a": "b"}}}
                await setup.admin.patch(CONFIG_MAPS, "m5", label, namespace=NS)
                setup.core.compact()

        setup.server.before = forget

    setup = play(tmp_path, prepare)
    lists = [r for r in setup.server.requests if not r.param("watch")]
    assert [bool(r.param("continue")) for r in lists] == [False, True, False]
    assert [r.param("limit") for r in lists] == [str(PAGE), str(PAGE), ""]


def test_a_token_that_ends_between_two_pages_is_renewed_without_a_new_list(tmp_path: Path) -> None:
    async def main() -> Setup:
        setup = Setup(tmp_path)
        await setup.begin()
        fresh = await _later_token(setup)

        async def expire(request: Request) -> None:
            if request.param("continue") and not setup.clock.ahead:
                setup.clock.ahead = 700.0
                setup.token_file.write_text(fresh)

        setup.server.before = expire
        async with setup.server.listening() as url, asyncio.timeout(PATIENCE):
            transport = HttpTransport(url)
            async with asyncio.TaskGroup() as group:
                running = group.create_task(setup.reflector(transport).run())
                await setup.agreement()
                running.cancel()
            await transport.close()
        return setup

    setup = asyncio.run(main())
    lists = [r for r in setup.server.requests if not r.param("watch")]
    assert [bool(r.param("continue")) for r in lists] == [False, True, True, True]
    assert lists[1].header("authorization") != lists[2].header("authorization")


async def _later_token(setup: Setup) -> str:
    """A token that is still good when the first one is not."""
    return await setup.admin.create_token("client", namespace=NS, audience="", seconds=3600)


def test_a_watch_continues_with_a_new_token_after_the_old_one_expired(
    tmp_path: Path,
) -> None:
    async def main() -> Setup:
        setup = Setup(tmp_path)
        await setup.begin()
        refused = asyncio.Event()
        async with setup.server.listening() as url, asyncio.timeout(PATIENCE):
            transport = HttpTransport(url)
            async with asyncio.TaskGroup() as group:
                running = group.create_task(setup.reflector(transport).run())
                await setup.agreement()
                asked = len(setup.server.requests)
                setup.clock.ahead = 700.0
                setup.core.close_watches()  # the server ends watches with an expired token

                async def count(request: Request) -> None:
                    if len(setup.server.requests) >= asked + 3:
                        refused.set()

                setup.server.before = count
                await refused.wait()  # the token file is written late
                await setup.rotate()
                await setup.change_objects()
                await setup.agreement()
                running.cancel()
            await transport.close()
        return setup

    setup = asyncio.run(main())
    assert setup.listener.problems == []
    assert len(setup.server.requests) <= MOST_REQUESTS


@pytest.mark.slow
def test_connections_of_broken_watches_are_closed(tmp_path: Path) -> None:
    """A watch that was abandoned must free its connection: a server accepts a limited number."""

    async def main() -> None:
        setup = Setup(tmp_path)
        await setup.begin()
        faults = ["mute inside of an object", "cut inside of an object"] * 3
        setup.server.watches.extend(faults)
        async with setup.server.listening() as url, asyncio.timeout(PATIENCE):
            transport = HttpTransport(url)
            async with asyncio.TaskGroup() as group:
                running = group.create_task(setup.reflector(transport).run())
                await setup.agreement()
                while setup.server.watches:
                    await setup.change_objects()
                    await setup.agreement()
                    for name in ("new", "m1", "m3"):
                        await setup.admin.delete(CONFIG_MAPS, name, namespace=NS)
                    for name in ("m1", "m2", "m3"):
                        body = {"metadata": {"name": name}}
                        await setup.admin.create(CONFIG_MAPS, body, namespace=NS)
                    await setup.agreement()
                while setup.server.connections > 2:  # the watch, and perhaps an idle one
                    setup.server.parted.clear()
                    await setup.server.parted.wait()
                running.cancel()
            await transport.close()
        assert setup.server.happened == faults

    asyncio.run(main())
