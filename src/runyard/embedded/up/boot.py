"""The start configuration of a child process.

It is passed as one line of JSON on the child's standard input, because it contains a secret (the database's URL) and
other users can read arguments and environments. The pipe stays open: when it closes, the parent is gone, and the child
exits.
"""

from pathlib import Path

import msgspec

from runyard.dispatch.settings import Settings
from runyard.embedded.up.layout import Layout
from runyard.vm.registry import DriverName

_SERVER = Settings(webhook_secrets=(), seal_key=b"")


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """Timeouts and intervals of the components, in seconds. The defaults are production's; a demo uses shorter ones."""

    stamped_grace: float = _SERVER.stamped_grace
    silent_grace: float = _SERVER.silent_grace
    recover_every: float = _SERVER.recover_every
    pods_every: float = _SERVER.pods_every
    sweep_every: float = _SERVER.sweep_every
    read_every: float = _SERVER.read_every
    pools_every: float = _SERVER.pools_every
    ghosts_every: float = _SERVER.ghosts_every
    ghost_age: float = _SERVER.ghost_age
    audit_every: float = _SERVER.audit_every
    audit_settle: float = _SERVER.audit_settle
    orphan_grace: float = 120.0
    drain_seconds: float = 300.0
    list_every: float = 5.0
    heartbeat_every: float = 30.0
    lease_every: float = 10.0
    runner_silent_after: float = 30.0
    runner_lost_after: float = 600.0
    poll_wait: float = _SERVER.poll_wait_max
    offered: float = _SERVER.deadlines.offered
    armed: float = _SERVER.deadlines.armed
    draining: float = _SERVER.deadlines.draining


QUICK = Pace(
    stamped_grace=4.0,
    silent_grace=20.0,
    recover_every=1.0,
    pods_every=1.0,
    sweep_every=1.0,
    read_every=1.0,
    pools_every=1.0,
    ghosts_every=3.0,
    ghost_age=5.0,
    audit_every=3.0,
    audit_settle=2.0,
    orphan_grace=3.0,
    drain_seconds=15.0,
    list_every=0.5,
    heartbeat_every=2.0,
    lease_every=2.0,
    runner_silent_after=10.0,
    runner_lost_after=10.0,
    poll_wait=3.0,
    offered=4.0,
    armed=15.0,
    draining=10.0,
)


class GitHubCredentials(msgspec.Struct, frozen=True, kw_only=True):
    """The server's credentials at a real GitHub. Key and token stay in their files."""

    ca_file: str = ""
    app_id: int = 0
    key_file: str = ""
    token_file: str = ""
    repository: str = ""
    secret: str = ""  # of the App's webhook
    pull: bool = True
    runner_group: int = 1

    def __repr__(self) -> str:
        return "GitHubCredentials(…)"


class Boot(msgspec.Struct, frozen=True, kw_only=True):
    """One child's start configuration."""

    role: str
    name: str
    root: str
    kube_url: str
    server_url: str
    github_url: str
    database: str = ""
    sockets: tuple[tuple[str, int], ...] = ()  # address and inherited descriptor; loopback first
    pace: Pace = Pace()
    faults: bool = False  # the demo's faults may be triggered
    app_id: int = 1  # of the practice GitHub
    practice: bool = True  # the GitHub is the practice GitHub
    github: GitHubCredentials | None = None  # a real one, instead of the practice GitHub
    driver: DriverName = "process"
    tart: str = "tart"
    vm_slots: int = 2  # of tart
    insecure: tuple[str, ...] = ()
    runner_directory: str = ""  # in VMs
    runner_archive: str = ""  # for VMs whose image has no runner
    disk_mb: int = 0  # that one VM may write; 0: the default

    @property
    def layout(self) -> Layout:
        """The layout of the data directory."""
        return Layout(Path(self.root))
