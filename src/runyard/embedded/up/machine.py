"""One machine as a fleet: what a person may choose, where things are, and what can be done with it while it runs.

How it starts and how it ends, `life.py` tells.
"""

import asyncio
import socket
from pathlib import Path

import msgspec

from runyard.clock import Clock
from runyard.embedded.up import accounts
from runyard.embedded.up.boot import QUICK, Boot, Hub, Pace
from runyard.embedded.up.database import MachineDatabase
from runyard.embedded.up.hosts import host_names, vm_home
from runyard.embedded.up.layout import Layout
from runyard.embedded.up.secrets import Secrets
from runyard.embedded.up.supervisor import Supervisor
from runyard.kube.client import Kube
from runyard.vm.process.driver import ProcessDriver
from runyard.wire import names

DEMO_DISK_MB = 64  # one of its jobs fills it


class RealGitHub(msgspec.Struct, frozen=True, kw_only=True):
    """A GitHub that is not ours, and who we are to it: an App, or the holder of a token for one repository."""

    url: str
    ca: Path | None = None
    app_id: int = 0
    key: Path | None = None
    token: Path | None = None
    repository: str = ""
    secret: str = ""  # of the App's webhook, if we know it
    pull: bool = True  # deliveries are fetched: no public address is needed
    runner_group: int = 1

    def __repr__(self) -> str:
        return f"RealGitHub({self.url})"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a person may choose."""

    data: Path
    hosts: int = 1
    listen: str = "127.0.0.1"
    port: int = 0
    demo: bool = False
    github: RealGitHub | None = None  # None: the practice GitHub
    runner: Path | None = None  # an unpacked actions runner, for a real GitHub
    runtime: str = names.NODE_RUNTIME_PROCESS

    @property
    def pace(self) -> Pace:
        """A demo has no time for production's patience."""
        return QUICK if self.demo else Pace()


class Urls(msgspec.Struct, frozen=True, kw_only=True):
    """Where things are."""

    kube: str
    server: str
    github: str
    public: str = ""  # the server for others, if it is to be reached by them
    # Parts that serve nothing but /healthz, /readyz and /metrics; the server has these beside its dashboard.
    probes: dict[str, str] = msgspec.field(default_factory=dict)

    def by_part(self) -> dict[str, str]:
        """Every address under the name of who serves it."""
        served = {"kube": self.kube, "server": self.server, "github": self.github}
        return served | ({"public": self.public} if self.public else {}) | self.probes


class Machine:
    """The running fleet, for whoever looks on or plays with it."""

    def __init__(
        self,
        *,
        options: Options,
        layout: Layout,
        secrets: Secrets,
        urls: Urls,
        supervisor: Supervisor,
        database: MachineDatabase,
        kube: Kube,
        clock: Clock,
    ) -> None:
        self.options = options
        self.layout = layout
        self.secrets = secrets
        self.urls = urls
        self.supervisor = supervisor
        self.database = database
        self.kube = kube
        self.conninfo = ""
        self._clock = clock

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of the hosts."""
        return host_names(self.options.hosts)

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts that speak to the API with a token of their own."""
        return ("server", "operator", *self.hosts)

    def boot(self, role: str, name: str, *socks: socket.socket) -> Boot:
        """The orders of one part."""
        real = self.options.github
        return Boot(
            role=role,
            name=name,
            root=str(self.layout.root),
            kube_url=self.urls.kube,
            server_url=self.urls.server,
            github_url=self.urls.github,
            database=self.conninfo if role == "server" else "",
            sockets=tuple((sock.getsockname()[0], sock.fileno()) for sock in socks),
            pace=self.options.pace,
            faults=self.options.demo,
            github=_said(real) if real is not None and role == "server" else None,
            runtime=self.options.runtime,
            disk_mb=DEMO_DISK_MB if self.options.demo else 0,
        )

    async def renew_tokens(self, *, every: bool = False) -> None:
        """Fresh credentials for every part whose own will not last; or for every part."""
        due = accounts.due(self.layout, self.parts, now=self._clock.now())
        await accounts.renew(self.kube, self.layout, self.parts if every else due)

    async def stop_vms(self, *, grace: float) -> None:
        """End every VM of every host that there ever was, side by side; one that cannot be ended keeps no other."""
        drivers = [
            ProcessDriver(
                vm_home(self.layout, folder.name),
                image_source=self.layout.images,
                clock=self._clock,
            )
            for folder in sorted(self.layout.hosts.iterdir())
            if folder.is_dir()
        ]
        outcomes = await asyncio.gather(
            *(driver.stop_all(grace=grace) for driver in drivers), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome


def _said(real: RealGitHub) -> Hub:
    return Hub(
        ca_file=str(real.ca or ""),
        app_id=real.app_id,
        key_file=str(real.key or ""),
        token_file=str(real.token or ""),
        repository=real.repository,
        secret=real.secret,
        pull=real.pull,
        runner_group=real.runner_group,
    )
