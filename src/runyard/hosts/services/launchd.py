"""Manages LaunchAgents of the logged-in user, through `launchctl`.

What is known about launchd, and what follows from it here:
- A job belongs to a domain. Ours is `gui/UID`, which exists only while the user is logged in at the screen: over SSH
  alone there is none, and macOS would start no VM either. Auto-login makes it exist after a reboot.
- `bootout` answers before the program has ended, and a `bootstrap` before that fails with code 5 or 37. So `load` waits
  until the job is gone, and tries again a few times.
- After many registrations, Background Task Management accepts another one without starting it. `kickstart -k` starts it
  all the same; `installing.py` uses it when no new process appears.
- A job that somebody has disabled is not bootstrapped; `enable` is said first.

Invariant: output of `launchctl print` is read at its first level only, because blocks below it repeat the names.
"""

import re
from pathlib import Path
from typing import Literal

from runyard.clock import Clock
from runyard.hosts.doctor.plans import macos
from runyard.hosts.doctor.plans.findings import Ended, Output
from runyard.hosts.services.commands import Answer, Commands, failed, started_at
from runyard.hosts.services.contract import AtBoot, Observed
from runyard.hosts.services.errors import CommandFailed, NoManager, ServiceError
from runyard.hosts.services.unit import PREFIX, Service, launchd_plist

_NOT_FOUND = {3, 113}  # no such process, no such service
_NO_DOMAIN = {112, 125}  # nobody is logged in at the screen
_SOON_AGAIN = {5, 36, 37}  # what was there is still ending
_GONE_WITHIN = 45.0
_TRIES = 5
_LOGIN_WINDOW = "/Library/Preferences/com.apple.loginwindow"
_FIELD = re.compile(r"^\t([a-z ]+) = (.*)$", re.MULTILINE)


class Launchd:
    """The LaunchAgents of one user."""

    kind: Literal["launchd", "systemd"] = "launchd"

    def __init__(self, commands: Commands, *, clock: Clock, home: Path, uid: int) -> None:
        self._commands = commands
        self._clock = clock
        self._agents = home / "Library" / "LaunchAgents"
        self._uid = uid
        self._domain = f"gui/{uid}"

    def handle(self, name: str) -> str:
        """The label."""
        return PREFIX + name

    def path(self, name: str) -> Path:
        """The property list; launchd reads this directory at each login."""
        return self._agents / f"{self.handle(name)}.plist"

    def render(self, service: Service) -> bytes:
        """The property list's content."""
        return launchd_plist(service)

    def commands(self, name: str) -> tuple[str, ...]:
        """A restart, and launchd's own account."""
        return (
            f"launchctl kickstart -k {self._target(name)}",
            f"launchctl print {self._target(name)}",
        )

    async def observe(self, name: str) -> Observed:
        """Reads `launchctl print`."""
        argv = ("launchctl", "print", self._target(name))
        answer = await self._commands.ask(*argv)
        self._check_domain(answer)
        if answer.code in _NOT_FOUND:
            return Observed(loaded=False)
        if answer.code != 0:
            raise failed(argv, answer)
        # The first of each name: the first level comes before the blocks.
        fields = dict(reversed(_FIELD.findall(answer.out)))
        return Observed(
            loaded=True,
            pid=_number(fields.get("pid")),
            restarts=max(0, _number(fields.get("runs")) - 1),
            last_exit=_last_exit(fields),
        )

    async def load(self, name: str) -> None:
        """Bootstraps the file; a job that is loaded is booted out first."""
        await self.enable(name)
        if (await self.observe(name)).loaded:
            await self._boot_out(name)
        argv = ("launchctl", "bootstrap", self._domain, str(self.path(name)))
        for tried in range(1, _TRIES + 1):
            answer = await self._commands.ask(*argv)
            self._check_domain(answer)
            if answer.code == 0:
                return
            if answer.code not in _SOON_AGAIN or tried == _TRIES:
                raise failed(argv, answer)
            await self._clock.sleep(float(tried))

    async def enable(self, name: str) -> None:
        """Undoes `launchctl disable`, which outlives the file."""
        await self._commands.do("launchctl", "enable", self._target(name))

    async def restart(self, name: str) -> None:
        """Ends and starts the program without registering it again."""
        await self._commands.do("launchctl", "kickstart", "-k", self._target(name), deadline=60.0)

    async def unload(self, name: str) -> None:
        """Boots it out, and waits until it is gone."""
        if (await self.observe(name)).loaded:
            await self._boot_out(name)

    async def forget(self, name: str) -> None:
        """Does nothing: launchd knows nothing of a job whose file is gone."""

    async def since(self, pid: int) -> float | None:
        """By the age that `ps` prints."""
        return await started_at(self._commands, pid, now=self._clock.now())

    async def at_boot(self, name: str) -> AtBoot:
        """Whether the job is enabled, the Mac starts without a password, and this very user is logged in by itself."""
        disabled = await self._commands.ask("launchctl", "print-disabled", self._domain)
        if re.search(rf'"{re.escape(self.handle(name))}" => (disabled|true)\b', disabled.out):
            return AtBoot(code="disabled", command=f"launchctl enable {self._target(name)}")
        status = await self._asked("fdesetup", "status")
        setting = await self._asked("defaults", "read", _LOGIN_WINDOW, "autoLoginUser")
        own = (await self._asked("id", "-un", str(self._uid))).out
        user = macos.automatic_user(setting)
        waits = macos.waits_for_password(status)
        if waits:
            return AtBoot(code="filevault", command="sudo fdesetup disable")
        if user is None or waits is None or not own:
            return AtBoot(code="unknown", command="runyard doctor")
        if user == own:
            return AtBoot(code="ready")
        return AtBoot(
            code="other-auto-login" if user else "no-auto-login",
            command='sudo sysadminctl -autologin set -userName "$USER" -password -',
        )

    async def _asked(self, *argv: str) -> Output:
        """What a program says, as the doctor's judges take it."""
        try:
            answer = await self._commands.ask(*argv)
        except ServiceError:
            return Output(source=argv[0], ended=Ended.REFUSED)
        return Output(source=argv[0], code=answer.code, out=answer.out, err=answer.err)

    async def _boot_out(self, name: str) -> None:
        argv = ("launchctl", "bootout", self._target(name))
        answer = await self._commands.ask(*argv, deadline=60.0)
        if answer.code not in {0, 36, *_NOT_FOUND}:
            raise failed(argv, answer)
        end = self._clock.monotonic() + _GONE_WITHIN
        while (await self.observe(name)).loaded:
            if self._clock.monotonic() >= end:
                raise CommandFailed(
                    f"{self.handle(name)} is still there {_GONE_WITHIN:g} s after its bootout."
                    f" Look at: launchctl print {self._target(name)}"
                )
            await self._clock.sleep(2.0)

    def _check_domain(self, answer: Answer) -> None:
        if answer.code in _NO_DOMAIN:
            raise NoManager(
                f"launchd has no session {self._domain} ({answer.words}): this user is not logged in at the screen."
                " Log in there once (screen sharing counts), set up automatic login, and repeat this"
            )

    def _target(self, name: str) -> str:
        return f"{self._domain}/{self.handle(name)}"


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else 0


def _last_exit(fields: dict[str, str]) -> str:
    signal = fields.get("last terminating signal", "")
    if signal:
        return f"signal {signal}"
    code = fields.get("last exit code", "")
    return f"code {code}" if code.lstrip("-")[:1].isdigit() else ""  # or that it never exited
