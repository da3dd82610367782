"""Chooses the service manager of this machine: launchd on macOS, the user's systemd on Linux."""

from collections.abc import Mapping
from pathlib import Path

from runyard.clock import Clock
from runyard.hosts.services.commands import Commands
from runyard.hosts.services.contract import Manager
from runyard.hosts.services.errors import NoManager
from runyard.hosts.services.launchd import Launchd
from runyard.hosts.services.systemd import Systemd, units_directory, with_runtime_directory


def manager_here(
    environ: Mapping[str, str], *, platform: str, home: Path, uid: int, clock: Clock
) -> Manager:
    """The manager of this user's services; raises `NoManager` where there is none."""
    if platform == "darwin":
        if uid == 0:
            raise NoManager(
                "a service of root has no GUI session, and macOS starts no VM without one."
                " Run this as the user who is logged in at the screen, without sudo"
            )
        return Launchd(Commands(environ), clock=clock, home=home, uid=uid)
    if platform.startswith("linux"):
        commands = Commands(with_runtime_directory(environ, uid))
        return Systemd(commands, clock=clock, units=units_directory(environ, home), uid=uid)
    raise NoManager(f"there is no service manager for {platform}: launchd and systemd are known")
