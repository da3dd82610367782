"""One machine as a fleet: its options, its addresses, and what can be done with it while it runs.

`lifecycle.py` starts and ends it.
"""

import asyncio
import socket
from pathlib import Path

import msgspec

from runyard.clock import Clock
from runyard.embedded.up import accounts
from runyard.embedded.up.boot import QUICK, Boot, GitHubCredentials, Pace
from runyard.embedded.up.database import MachineDatabase
from runyard.embedded.up.hosts import PODS, host_names, isolation_line, vm_home
from runyard.embedded.up.layout import Layout
from runyard.embedded.up.secrets import Secrets
from runyard.embedded.up.supervisor import Supervisor
from runyard.kube.client import Kube
from runyard.vm.archives import Archive
from runyard.vm.registry import DriverName, opened_before
from runyard.vm.teardown import stop_all

DEMO_DISK_MB = 64  # one job of the demo fills it


class RealGitHub(msgspec.Struct, frozen=True, kw_only=True):
    """A real GitHub and our credentials: those of an App, or a token for one repository."""

    url: str
    ca: Path | None = None
    app_id: int = 0
    key: Path | None = None
    token: Path | None = None
    repository: str = ""
    secret: str = ""  # of the App's webhook, if we know it
    pull: bool = True  # deliveries are polled: no public address is needed
    runner_group: int = 1

    def __repr__(self) -> str:
        return f"RealGitHub({self.url})"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `runyard up`."""

    data: Path
    hosts: int = 1
    listen: str = "127.0.0.1"
    port: int = 0
    joining: bool = False  # other machines may join as hosts
    demo: bool = False
    github: RealGitHub | None = None  # None: the practice GitHub
    # For a real GitHub: an unpacked actions runner for processes, its archive for VMs whose image has none.
    runner: Path | None = None
    archive: Archive | None = None
    runner_directory: str = ""  # of the actions runner in VMs; empty: the usual places
    driver: DriverName = "process"
    tart: str = "tart"  # its path
    vm_slots: int = PODS  # VMs of tart at once; processes have as many as always
    driver_given: bool = False  # it was named, not chosen
    image: str = ""  # of the first pool's VMs, if one was given; processes have images of their own
    insecure: tuple[str, ...] = ()  # `host:port` of image registries without TLS
    keep_vms: bool = False  # at the end, for the next start

    @property
    def pods(self) -> int:
        """The VM slots of each host."""
        return self.vm_slots if self.driver == "tart" else PODS

    @property
    def pace(self) -> Pace:
        """The timeouts: a demo uses shorter ones."""
        return QUICK if self.demo else Pace()


class Urls(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses of the components."""

    kube: str
    server: str
    github: str
    public: str = ""  # the server for other machines, if it listens for them
    hosts: str = ""  # where other machines join as hosts
    # Components that serve nothing but /healthz, /readyz and /metrics; the server has these beside its dashboard.
    probes: dict[str, str] = msgspec.field(default_factory=dict)

    def by_component(self) -> dict[str, str]:
        """Every address, by component."""
        served = {"kube": self.kube, "server": self.server, "github": self.github}
        outside = {"public": self.public, "hosts": self.hosts}
        return served | {name: url for name, url in outside.items() if url} | self.probes


class Machine:
    """The running fleet, for display and for the demo."""

    def __init__(
        self,
        *,
        options: Options,
        secrets: Secrets,
        urls: Urls,
        supervisor: Supervisor,
        database: MachineDatabase,
        kube: Kube,
        clock: Clock,
    ) -> None:
        self.options = options
        self.layout = Layout(options.data)
        self.secrets = secrets
        self.urls = urls
        self.supervisor = supervisor
        self.database = database
        self.kube = kube
        self.conninfo = ""
        self.labels: tuple[str, ...] = ()  # of `runs-on`, one for each pool
        self.waits_for = ""  # what the first pool is made for, if no host here runs that
        self.runner_archive: Path | None = None  # for VMs whose image has no runner
        self._clock = clock

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of the hosts."""
        return host_names(self.options.hosts)

    @property
    def isolation(self) -> str:
        """How jobs are isolated, and why not further; the hosts of one machine do not differ."""
        return isolation_line(self.layout, self.hosts[0])

    @property
    def components(self) -> tuple[str, ...]:
        """The components that use the API with a token of their own."""
        return ("server", "operator", *self.hosts)

    def boot(self, role: str, name: str, *socks: socket.socket) -> Boot:
        """The start configuration of one component."""
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
            practice=real is None,
            github=_credentials(real) if real is not None and role == "server" else None,
            driver=self.options.driver,
            tart=self.options.tart,
            vm_slots=self.options.vm_slots,
            insecure=self.options.insecure,
            runner_directory=self.options.runner_directory,
            runner_archive=str(self.runner_archive or "") if role == "agent" else "",
            disk_mb=DEMO_DISK_MB if self.options.demo else 0,
        )

    async def renew_tokens(self, *, every: bool = False) -> None:
        """Renews the tokens that are due, or all of them."""
        due = accounts.due(self.layout, self.components, now=self._clock.now())
        await accounts.renew(self.kube, self.layout, self.components if every else due)

    async def stop_vms(self, *, grace: float) -> None:
        """Ends every VM of every host."""
        await stop_vms(self.layout, clock=self._clock, grace=grace)


async def stop_vms(layout: Layout, *, clock: Clock, grace: float) -> None:
    """Ends every VM of every host that ever existed, concurrently; one that fails does not stop the others."""
    drivers = [
        driver
        for folder in sorted(layout.hosts.iterdir())
        for driver in opened_before(vm_home(layout, folder.name), clock=clock)
    ]
    outcomes = await asyncio.gather(
        *(stop_all(driver, grace=grace) for driver in drivers), return_exceptions=True
    )
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome


def _credentials(real: RealGitHub) -> GitHubCredentials:
    return GitHubCredentials(
        ca_file=str(real.ca or ""),
        app_id=real.app_id,
        key_file=str(real.key or ""),
        token_file=str(real.token or ""),
        repository=real.repository,
        secret=real.secret,
        pull=real.pull,
        runner_group=real.runner_group,
    )
