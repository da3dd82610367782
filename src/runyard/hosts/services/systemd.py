"""Manages units of the user's systemd, through `systemctl --user`.

- The user's manager listens below `XDG_RUNTIME_DIR`; where a shell has lost that variable (`su`, `sudo`, cron), the
  usual place is used if it exists.
- It runs while the user is logged in, and always if the user *lingers*: without lingering nothing starts after a
  reboot, and a logout stops everything. `loginctl enable-linger` is the user's decision: it is said and not done.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from runyard.clock import Clock
from runyard.hosts.services.commands import Answer, Commands, failed, started_at
from runyard.hosts.services.contract import AtBoot, Observed
from runyard.hosts.services.errors import NoManager
from runyard.hosts.services.unit import Service, systemd_unit, unit_name

_PROPERTIES = "ActiveState,MainPID,NRestarts,ExecMainCode,ExecMainStatus"
_STOPPED = {"inactive", "failed", None}
_CHANGING = 60.0  # seconds for a stop or a start


class Systemd:
    """The units of one user."""

    kind: Literal["launchd", "systemd"] = "systemd"

    def __init__(self, commands: Commands, *, clock: Clock, units: Path, uid: int) -> None:
        self._commands = commands
        self._clock = clock
        self._units = units
        self._uid = uid

    def handle(self, name: str) -> str:
        """The name of the unit."""
        return unit_name(name)

    def path(self, name: str) -> Path:
        """The unit's file."""
        return self._units / self.handle(name)

    def render(self, service: Service) -> bytes:
        """The unit's content."""
        return systemd_unit(service)

    def commands(self, name: str) -> tuple[str, ...]:
        """A restart, and systemd's own account."""
        unit = self.handle(name)
        return (f"systemctl --user restart {unit}", f"systemctl --user status {unit}")

    async def observe(self, name: str) -> Observed:
        """Reads `systemctl show`."""
        answer = await self._systemctl("show", self.handle(name), f"--property={_PROPERTIES}")
        fields = dict(line.partition("=")[::2] for line in answer.out.splitlines())
        return Observed(
            loaded=fields.get("ActiveState") not in _STOPPED,
            pid=_number(fields.get("MainPID")),
            restarts=_number(fields.get("NRestarts")),
            last_exit=_last_exit(fields),
        )

    async def load(self, name: str) -> None:
        """Reads the file, enables the unit at boot, and starts it anew."""
        await self._systemctl("daemon-reload")
        await self.enable(name)
        await self.restart(name)

    async def enable(self, name: str) -> None:
        """Makes the unit start at boot."""
        await self._systemctl("enable", self.handle(name))

    async def restart(self, name: str) -> None:
        """Stops and starts the unit; fails at once if its program cannot be started at all."""
        await self._systemctl("restart", self.handle(name), deadline=_CHANGING)

    async def unload(self, name: str) -> None:
        """Stops the unit and takes it from what starts at boot, also if its file is gone."""
        if (await self.observe(name)).loaded:
            await self._systemctl("stop", self.handle(name), deadline=_CHANGING)
        if self.path(name).exists():
            await self._systemctl("disable", self.handle(name))

    async def forget(self, name: str) -> None:
        """Makes systemd see that the file is gone, and drops the unit's failures."""
        await self._systemctl("daemon-reload")
        # It fails for a unit without failures, which nobody needs to know.
        await self._commands.ask("systemctl", "--user", "reset-failed", self.handle(name))

    async def since(self, pid: int) -> float | None:
        """By the age that `ps` prints."""
        return await started_at(self._commands, pid, now=self._clock.now())

    async def at_boot(self, name: str) -> AtBoot:
        """Whether the unit is enabled, and the user's manager starts without a login."""
        state = await self._commands.ask("systemctl", "--user", "is-enabled", self.handle(name))
        if state.out != "enabled":
            return AtBoot(code="disabled", command=f"systemctl --user enable {self.handle(name)}")
        argv = ("loginctl", "show-user", str(self._uid), "--property=Linger")
        try:
            linger = await self._commands.ask(*argv)
        except NoManager:  # a systemd without logind
            return AtBoot(code="unknown")
        if linger.out == "Linger=yes":
            return AtBoot(code="ready")
        return AtBoot(code="no-linger", command='sudo loginctl enable-linger "$USER"')

    async def _systemctl(self, *words: str, deadline: float | None = None) -> Answer:
        argv = ("systemctl", "--user", *words)
        answer = await self._commands.ask(*argv, deadline=deadline)
        if answer.code != 0:
            await self._check_manager(answer)
            raise failed(argv, answer)
        return answer

    async def _check_manager(self, answer: Answer) -> None:
        """Raises `NoManager` if the command failed because nobody answers it: systemctl has no code for that."""
        state = await self._commands.ask("systemctl", "--user", "is-system-running")
        if state.out in {"", "offline"}:
            raise NoManager(
                f"systemd's manager of this user does not answer ({answer.words})."
                ' Run: sudo loginctl enable-linger "$USER"; then log in again, not through su or sudo, and repeat this'
            )


def units_directory(environ: Mapping[str, str], home: Path) -> Path:
    """Where systemd reads a user's own units."""
    given = environ.get("XDG_CONFIG_HOME", "")
    return (Path(given) if given.startswith("/") else home / ".config") / "systemd" / "user"


def with_runtime_directory(environ: Mapping[str, str], uid: int) -> dict[str, str]:
    """The environment, with `XDG_RUNTIME_DIR` where a shell has lost it."""
    usual = f"/run/user/{uid}"
    if environ.get("XDG_RUNTIME_DIR") or not Path(usual).is_dir():
        return dict(environ)
    return {**environ, "XDG_RUNTIME_DIR": usual}


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else 0


def _last_exit(fields: Mapping[str, str]) -> str:
    status = fields.get("ExecMainStatus", "0")
    match fields.get("ExecMainCode"):
        case "1":
            return f"code {status}"
        case "2" | "3":
            return f"signal {status}"
        case _:
            return ""
