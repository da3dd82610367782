"""Runs tart: one function for each of its commands that the driver needs.

A tart that hangs is ended with all its processes and, if the command is idempotent, tried again with growing pauses.
`run`, `pull` and interactive `exec` last long and are started elsewhere; here are their arguments.

Invariants:
- `TART_NO_AUTO_PRUNE` is set for every command: tart's own pruning deletes images behind the driver's back.
- No argument is a secret. Credentials for registries are in the environment that the agent got, and reach `pull` and
  `clone` only. All else of it reaches every tart; what is written to the file of an order are a few known variables.
- Every failure is an error of `vm.contract`.
"""

from collections.abc import Mapping
from pathlib import Path

from runyard import proc
from runyard.clock import Clock
from runyard.procgroup import ProgramMissing, ProgramRefused
from runyard.vm.contract import DriverFailed, Hung
from runyard.vm.tart import errors
from runyard.vm.tart.listing import Entry, parse_list
from runyard.vm.tart.settings import Settings

_LIMIT = 8 << 20  # bytes of output: a host has hundreds of VMs at most
_KEPT = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "TMPDIR", "USER")
_CREDENTIALS = ("TART_REGISTRY_USERNAME", "TART_REGISTRY_PASSWORD")
_OF_REGISTRIES = ("pull", "clone")  # commands that may ask a registry


class Tart:
    """The tart program of this host."""

    def __init__(self, settings: Settings, clock: Clock, environ: Mapping[str, str]) -> None:
        self.settings = settings
        self.clock = clock
        self.environment = {**environ, "TART_NO_AUTO_PRUNE": "1"}
        home = str(settings.home or "") or self.environment.get("TART_HOME")
        if home:  # a shim has another working directory
            self.environment["TART_HOME"] = str(Path(home).absolute())

    @property
    def home(self) -> Path:
        """Where tart keeps VMs and images."""
        default = Path(self.environment.get("HOME", "/")) / ".tart"
        return Path(self.environment.get("TART_HOME") or default)

    @property
    def bare_environment(self) -> dict[str, str]:
        """The environment of commands that ask no registry."""
        return {name: value for name, value in self.environment.items() if name not in _CREDENTIALS}

    def public_environment(self) -> dict[str, str]:
        """What the file of an order has of the environment of `run`: nothing in it is a secret."""
        return {
            name: value
            for name, value in self.environment.items()
            if name in _KEPT or (name.startswith("TART_") and name not in _CREDENTIALS)
        }

    # ── what there is ───────────────────────────────────────────────────────────────────────────

    async def version(self) -> str:
        """The version of tart."""
        done = await self._retried("--version", "", timeout=self.settings.deadlines.version)
        return done.decode(errors="replace").strip()

    async def list(self) -> tuple[Entry, ...]:
        """Every VM and image of this host."""
        argv = self.list_argv()[1:]
        return parse_list(await self._retried(*argv, timeout=self.settings.deadlines.list))

    async def get(self, name: str) -> None:
        """Succeeds if this VM exists and is complete; raises `DoesNotExist` or `Incomplete`."""
        argv = ("get", name, "--format", "json")
        await self._retried(*argv, timeout=self.settings.deadlines.get)

    async def ip(self, name: str, *, resolver: str) -> str:
        """The address of a running VM; `Unreachable` if it has none yet."""
        argv = ("ip", name, "--wait", "0", "--resolver", resolver)
        return (await self._once(*argv, timeout=self.settings.deadlines.ip)).decode().strip()

    async def execute(self, name: str, *argv: str) -> bytes:
        """Run a short command in a guest; returns what it printed."""
        return await self._once("exec", name, *argv, timeout=self.settings.deadlines.exec)

    # ── what changes something ──────────────────────────────────────────────────────────────────

    async def clone(self, source: str, name: str) -> None:
        """Copy a VM or an image. The caller has made sure that no VM has this name: tart would replace it."""
        argv = ("clone", *self.insecure(source), source, name)
        await self._once(*argv, timeout=self.settings.deadlines.clone)

    async def set(self, name: str, *, cpu: int, memory_mb: int) -> None:
        """Give it an identity of its own, and its size; 0: the image's."""
        sizes = [("--cpu", cpu), ("--memory", memory_mb)]
        words = [word for flag, number in sizes if number for word in (flag, str(number))]
        argv = ("set", name, "--random-mac", "--random-serial", *words)
        await self._retried(*argv, timeout=self.settings.deadlines.set)

    async def delete(self, name: str) -> None:
        """Delete a VM or an image; absent is success."""
        try:
            await self._retried("delete", name, timeout=self.settings.deadlines.delete)
        except errors.DoesNotExist:
            return

    # ── what others start ───────────────────────────────────────────────────────────────────────

    def run_argv(self, name: str, shares: Mapping[str, str]) -> tuple[str, ...]:
        """The command that runs a VM in the foreground; `shares`: names and host paths, `:ro` included."""
        words = [word for share, path in shares.items() for word in ("--dir", f"{share}:{path}")]
        return (self.settings.binary, "run", name, "--no-graphics", *words)

    def list_argv(self) -> tuple[str, ...]:
        """The command that lists every VM and image."""
        return (self.settings.binary, "list", "--format", "json")

    def stop_argv(self, name: str) -> tuple[str, ...]:
        """The command that powers a VM off, also one that others run: with INT, and with KILL after some seconds."""
        return (self.settings.binary, "stop", name, "--timeout", "5")

    def pull_argv(self, image: str, *, insecure: bool = False) -> tuple[str, ...]:
        """The command that pulls an image; `insecure`: its registry was found to speak plain HTTP."""
        flags = ("--insecure",) if insecure else self.insecure(image)
        return (self.settings.binary, "pull", *flags, image)

    def exec_argv(self, name: str, argv: tuple[str, ...], *, terminal: bool) -> tuple[str, ...]:
        """The command that passes input and output of a command in a guest."""
        flags = ("-i", "-t") if terminal else ("-i",)
        return (self.settings.binary, "exec", *flags, name, *argv)

    def insecure(self, image: str) -> tuple[str, ...]:
        """The flag for registries that speak plain HTTP."""
        host, slash, _ = image.partition("/")
        return ("--insecure",) if slash and host in self.settings.insecure else ()

    # ── one attempt, or several ─────────────────────────────────────────────────────────────────

    async def _retried(self, *argv: str, timeout: float) -> bytes:
        """For commands that may be repeated: a hanging one is ended and tried again."""
        pause = self.settings.backoff
        for _ in range(self.settings.attempts - 1):
            try:
                return await self._once(*argv, timeout=timeout)
            except Hung:
                await self.clock.sleep(pause)
                pause *= 2
        return await self._once(*argv, timeout=timeout)

    async def _once(self, *argv: str, timeout: float) -> bytes:
        words = tuple(word for word in argv if word)
        what = " ".join([word for word in words if word != "--insecure"][:2])
        try:
            done = await proc.run(
                (self.settings.binary, *words),
                timeout=timeout,
                env=self.environment if words[0] in _OF_REGISTRIES else self.bare_environment,
                limit=_LIMIT,
                clock=self.clock,
            )
        except proc.DeadlineExceeded as error:
            raise Hung(
                f"tart {what} did not end within {timeout:g} s and was ended; if that repeats, restart this Mac"
            ) from error
        except (ProgramMissing, ProgramRefused) as error:
            raise DriverFailed(
                f"{error}; `brew install cirruslabs/cli/tart` installs it"
            ) from error
        if done.code != 0:
            raise errors.failure(what, done.code, done.stderr.decode(errors="replace"))
        return done.stdout
