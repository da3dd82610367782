"""A machine with stand-ins for launchd or systemd on its PATH, and a clock that moves only when somebody sleeps."""

import asyncio
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import msgspec
from tests.hosts.services import managers

from runyard.clock import RealClock
from runyard.hosts.services.commands import Commands
from runyard.hosts.services.contract import Manager
from runyard.hosts.services.here import manager_here
from runyard.hosts.services.unit import Service

START = 1_770_000_000.0
PLATFORMS = {"launchd": "darwin", "systemd": "linux"}


class StandInClock(RealClock):
    """Time that the stand-ins see."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._now = START
        file.write_text(str(START))

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        self.pass_by(seconds)
        await asyncio.sleep(0)

    def pass_by(self, seconds: float) -> None:
        self._now += seconds
        self._file.write_text(str(self._now))


class Computer:
    """A home directory, the stand-ins, and their state."""

    def __init__(self, root: Path, kind: str) -> None:
        self.kind = kind
        self.home = root / "home"
        self.home.mkdir()
        self.bin = root / "bin"
        self.bin.mkdir()
        self.clock = StandInClock(self.bin / "now")
        self.set(jobs={}, units={}, disabled=[], last_pid=100)
        # A `#!` line cannot name a Python whose path has a space.
        text = Path(managers.__file__).read_text()
        for name in managers.PROGRAMS:
            program, script = self.bin / name, self.bin / f"{name}.py"
            script.write_text(text)
            words = shlex.join([sys.executable, "-IS", str(script)])
            program.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
            program.chmod(0o755)
        self.environ = {"PATH": str(self.bin), "HOME": str(self.home)}
        self.platform = PLATFORMS[kind]

    def manager(self) -> Manager:
        return manager_here(
            self.environ, platform=self.platform, home=self.home, uid=501, clock=self.clock
        )

    def commands(self) -> Commands:
        return Commands(self.environ)

    @property
    def state(self) -> dict[str, Any]:
        file = self.bin / "state.json"
        return json.loads(file.read_text()) if file.exists() else {}

    def set(self, **changed: Any) -> None:
        (self.bin / "state.json").write_text(json.dumps({**self.state, **changed}))

    def calls(self) -> list[str]:
        """What was called since the last time."""
        file = self.bin / "calls"
        said = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return said

    @property
    def running(self) -> list[list[str]]:
        """The arguments of what runs now."""
        world = managers.World(self.bin)
        return [job["argv"] for job in world.jobs.values() if job["pid"]]

    def service(self, *arguments: str, **changed: Any) -> Service:
        data = self.home / "data"
        made = Service(
            name="up",
            description="a service",
            version="1.0",
            argv=("/opt/bin/runyard", *arguments),
            environment={"HOME": str(self.home)},
            directory=str(data),
            log=str(data / "logs" / "service.log"),
        )
        return msgspec.structs.replace(made, **changed)
