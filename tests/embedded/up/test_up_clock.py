"""The clock jumps, or the machine sleeps for a day: credentials are renewed, and no component is locked out.

The API is the real one behind a real socket with TLS; its clock, and the machine's, is the one that jumps.
"""

import asyncio
import random
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from runyard.clock import RealClock
from runyard.db.owner import Owner
from runyard.embedded.up import accounts
from runyard.embedded.up.boot import Boot
from runyard.embedded.up.context import Context
from runyard.embedded.up.database import GivenDatabase, MachineDatabase
from runyard.embedded.up.layout import Layout
from runyard.embedded.up.lifecycle import _renew
from runyard.embedded.up.machine import Machine, Options, Urls
from runyard.embedded.up.restarts import RestartRecord
from runyard.embedded.up.roles import kube as role
from runyard.embedded.up.secrets import load_or_make
from runyard.embedded.up.supervisor import Supervisor
from runyard.embedded.up.trust import kube_transport
from runyard.http.messages import Transport
from runyard.http.tls import ensure_authority
from runyard.kube.client import Kube
from runyard.kube.errors import Forbidden, Unauthorized
from runyard.kube.kinds import NODES
from runyard.telemetry.log import get_logger

DAY = 86400.0


class JumpingClock(RealClock):
    """A clock whose wall time can jump and whose sleeps end when the test releases them."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self.checks: asyncio.Queue[float] = asyncio.Queue()
        self.go_on = asyncio.Semaphore(0)

    def now(self) -> float:
        return super().now() + self.ahead

    async def sleep(self, seconds: float) -> None:
        if seconds < accounts.CHECK_EVERY:  # the API's own loops
            await super().sleep(seconds)
            return
        self.checks.put_nowait(seconds)
        await self.go_on.acquire()


class RunningApi:
    def __init__(self, machine: Machine, clock: JumpingClock, transport: Transport) -> None:
        self.machine = machine
        self.clock = clock
        self._transport = transport

    def token(self, component: str) -> str:
        return self.machine.layout.token(component).read_text()

    async def is_accepted(self, component: str) -> bool:
        """Whether the API accepts the component's present credential."""
        token = self.token(component)
        try:
            await Kube(self._transport, token=lambda: token).list(NODES)
        except Unauthorized:
            return False
        except Forbidden:
            return True  # authenticated, but not authorized
        return True


def play(
    folder: Path, scenario: Callable[[RunningApi], Awaitable[None]], *, ahead: float = 0.0
) -> None:
    async def main() -> None:
        clock = JumpingClock()
        clock.ahead = ahead
        layout = Layout(folder / "data")
        layout.prepare()
        secrets = load_or_make(layout, random.SystemRandom())
        with socket.create_server(("127.0.0.1", 0)) as listening:
            url = f"https://127.0.0.1:{listening.getsockname()[1]}"
            ready = asyncio.Event()
            boot = Boot(
                role="kube",
                name="kube",
                root=str(layout.root),
                kube_url=url,
                server_url="",
                github_url="",
                sockets=(("127.0.0.1", listening.detach()),),
            )
            context = Context(boot=boot, clock=clock, rng=random.SystemRandom(), ready=ready.set)
            transport = kube_transport(layout, url, now=clock.now())
            restarts = RestartRecord(layout.restarts, clock=clock, log=get_logger("test"))
            machine = Machine(
                options=Options(data=layout.root),
                secrets=secrets,
                urls=Urls(kube=url, server="", github=""),
                supervisor=Supervisor(
                    clock=clock,
                    log=get_logger("test"),
                    lock=-1,
                    spawn=lambda work, name: None,
                ),
                database=MachineDatabase(
                    layout,
                    clock=clock,
                    log=get_logger("test"),
                    given=GivenDatabase(url="", owner=Owner("x", "y")),
                    restarts=restarts,
                ),
                kube=Kube(transport, token=lambda: secrets.admin_token),
                clock=clock,
            )
            try:
                async with asyncio.timeout(60), asyncio.TaskGroup() as group:
                    serving = group.create_task(role.run(context))
                    await ready.wait()
                    await accounts.grant(machine.kube, machine.components)
                    await machine.renew_tokens(every=True)
                    await scenario(RunningApi(machine, clock, transport))
                    serving.cancel()
            finally:
                await transport.close()

    asyncio.run(main())


@pytest.mark.parametrize("jump", [1.1 * DAY, 30 * DAY], ids=["a day", "a month"])
def test_after_a_sleep_every_component_is_accepted_again(tmp_path: Path, jump: float) -> None:
    async def scenario(api: RunningApi) -> None:
        log = get_logger("test")
        async with asyncio.TaskGroup() as group:
            renewing = group.create_task(_renew(api.machine, clock=api.clock, log=log))
            before = {component: api.token(component) for component in api.machine.components}
            await api.clock.checks.get()  # it waits for its first check
            api.clock.ahead += jump
            assert not await api.is_accepted("server"), "the token should have ended meanwhile"
            api.clock.go_on.release()
            await api.clock.checks.get()  # and has checked
            for component in api.machine.components:
                assert api.token(component) != before[component]
                assert await api.is_accepted(component), component
            renewing.cancel()

    play(tmp_path, scenario)


def test_tokens_that_are_valid_for_long_are_not_renewed(tmp_path: Path) -> None:
    async def scenario(api: RunningApi) -> None:
        before = api.token("operator")
        api.clock.ahead += 0.4 * DAY
        await api.machine.renew_tokens()
        assert api.token("operator") == before
        api.clock.ahead += 0.2 * DAY
        await api.machine.renew_tokens()
        assert api.token("operator") != before
        assert await api.is_accepted("operator")

    play(tmp_path, scenario)


def test_a_clock_that_was_set_back_locks_no_component_out(tmp_path: Path) -> None:
    """Certificates and tokens were made while the clock was a day ahead; then it was corrected."""

    async def scenario(api: RunningApi) -> None:
        api.clock.ahead = 0.0
        assert await api.is_accepted("operator")
        await api.machine.renew_tokens()
        assert await api.is_accepted("host-1")

    play(tmp_path, scenario, ahead=DAY)


def test_a_start_with_a_corrected_clock_keeps_the_authority(tmp_path: Path) -> None:
    made = ensure_authority(tmp_path, now=2e9)
    for now in (2e9 - DAY, 2e9 + DAY):
        assert ensure_authority(tmp_path, now=now) == made
    renewed = ensure_authority(tmp_path, now=2e9 - 30 * DAY)
    assert renewed.key == made.key, "who trusted it still does"
