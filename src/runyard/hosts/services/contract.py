"""What a service manager can do for us: the same few actions for launchd and systemd.

`installing.py` decides the order, proves that the program stays, and goes back to what was there; a manager only runs
commands. All actions are idempotent: they say nothing if there is nothing to do.
"""

from pathlib import Path
from typing import Literal, Protocol

import msgspec

from runyard.hosts.services.unit import Service

BootCode = Literal[
    "ready", "disabled", "filevault", "no-auto-login", "other-auto-login", "no-linger", "unknown"
]


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """What the service manager says about a service."""

    loaded: bool  # the manager keeps it running
    pid: int = 0  # 0: it does not run
    restarts: int = 0  # since it was loaded
    last_exit: str = ""  # as the manager reports it; empty if it has not ended since it was loaded


class AtBoot(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the service starts after a reboot without anybody's help, and the command that makes it so."""

    code: BootCode
    command: str = ""


class Manager(Protocol):
    """launchd's or systemd's manager of one user."""

    kind: Literal["launchd", "systemd"]

    def handle(self, name: str) -> str:
        """The manager's own name of a service."""
        ...

    def path(self, name: str) -> Path:
        """The file that describes the service."""
        ...

    def render(self, service: Service) -> bytes:
        """The content of that file."""
        ...

    def commands(self, name: str) -> tuple[str, ...]:
        """What its user can type about it: a restart, and the manager's own account of it."""
        ...

    async def observe(self, name: str) -> Observed:
        """Reads its state; raises `NoManager` without a session."""
        ...

    async def load(self, name: str) -> None:
        """Reads the file and starts the service, replacing what was loaded; enables it at boot."""
        ...

    async def enable(self, name: str) -> None:
        """Makes it start at boot."""
        ...

    async def restart(self, name: str) -> None:
        """Forces a new start of what is loaded."""
        ...

    async def unload(self, name: str) -> None:
        """Stops it and takes it from what starts at boot."""
        ...

    async def forget(self, name: str) -> None:
        """Drops what is known about it, once its file is gone."""
        ...

    async def since(self, pid: int) -> float | None:
        """When that process started, in seconds since the epoch; None if that cannot be told."""
        ...

    async def at_boot(self, name: str) -> AtBoot:
        """Whether it starts after a reboot."""
        ...
