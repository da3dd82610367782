"""What a child process is told when it is started.

It travels as one line of JSON on the child's standard input, because it holds a secret (how to reach the
database) and arguments and environments can be read by others. The pipe stays open afterwards: its end
tells the child that its parent is gone.
"""

from pathlib import Path

import msgspec

from runyard.embedded.up.layout import Layout


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How patient the parts are, in seconds. The defaults are production's; a demo has no time."""

    stamped_grace: float = 300.0
    silent_grace: float = 300.0
    recover_every: float = 60.0
    sweep_every: float = 5.0
    read_every: float = 5.0
    pools_every: float = 30.0
    ghosts_every: float = 120.0
    ghost_age: float = 120.0
    audit_every: float = 60.0
    audit_settle: float = 30.0
    orphan_grace: float = 120.0
    drain_seconds: float = 300.0
    list_every: float = 5.0
    heartbeat_every: float = 30.0
    lease_every: float = 10.0
    runner_silent_after: float = 30.0
    runner_lost_after: float = 600.0
    poll_wait: float = 25.0
    offered: float = 8.0
    armed: float = 120.0
    draining: float = 900.0


QUICK = Pace(
    stamped_grace=4.0,
    silent_grace=20.0,
    recover_every=1.0,
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


class Hub(msgspec.Struct, frozen=True, kw_only=True):
    """Who the server is to a real GitHub. Key and token stay in their files."""

    ca_file: str = ""
    app_id: int = 0
    key_file: str = ""
    token_file: str = ""
    repository: str = ""
    secret: str = ""  # of the App's webhook
    pull: bool = True
    runner_group: int = 1

    def __repr__(self) -> str:
        return "Hub(…)"


class Boot(msgspec.Struct, frozen=True, kw_only=True):
    """One child's orders."""

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
    github: Hub | None = None  # a real one, instead of the practice GitHub
    runtime: str = "process"
    disk_mb: int = 0  # that one VM may write; 0: as much as is usual

    @property
    def layout(self) -> Layout:
        """Where everything lies."""
        return Layout(Path(self.root))
