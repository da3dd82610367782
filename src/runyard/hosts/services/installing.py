"""Installs, removes and describes a service, the same way on launchd and systemd.

`runyard up --install` and everything else that must run after a reboot use `install`:

1. The file is the same and the program runs: nothing is done, so repeating an install never restarts anything.
   With `restart` the program is started anew all the same: files that it reads at its start have changed.
2. Otherwise the file is written whole and loaded. A process that was not there before must appear within `APPEARS`
   seconds and be the same one `STAYS` seconds later; if not, one start is forced, because macOS sometimes accepts a
   registration without acting on it.
3. If it does not stay, what was there before comes back (the file and the running program, or neither), and the error
   carries what the program said.

Invariants:
- A failed install leaves the service as it was before, also if a command of the manager failed in between.
- Data is never removed. Uninstalling twice is no error.
- The log belongs to its user alone: it is created with mode 0600 before the manager could create it.
"""

import os
from pathlib import Path
from typing import Literal

import msgspec

from runyard.clock import Clock
from runyard.files import write_whole
from runyard.hosts.services.contract import AtBoot, Manager, Observed
from runyard.hosts.services.errors import DidNotStay, NoManager, NotWritable, ServiceError
from runyard.hosts.services.unit import Service
from runyard.text import harmless

APPEARS = 20.0  # seconds for a new process
STAYS = 5.0  # seconds after which it must be the same
PUBLIC = 0o644
_PAUSE = 4.0  # the longest, between two looks at it
_TAIL_BYTES, _TAIL_LINES = 8192, 12

Change = Literal["unchanged", "installed", "replaced", "started", "restarted"]


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """What an install did; `started`: the file was right, but nothing ran; `restarted`: both, and it was asked for."""

    change: Change
    name: str  # the manager's own
    path: str
    pid: int
    log: str


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """A service as its manager sees it."""

    manager: str
    name: str  # the manager's own
    path: str
    installed: bool
    loaded: bool
    pid: int
    since: float | None
    restarts: int
    last_exit: str
    at_boot: AtBoot


async def install(
    service: Service,
    manager: Manager,
    *,
    clock: Clock,
    appears: float = APPEARS,
    stays: float = STAYS,
    restart: bool = False,
) -> Installed:
    """Installs, updates or starts the service; raises `ServiceError`, and then nothing has changed."""
    path, content = manager.path(service.name), manager.render(service)
    previous, before = _read(path), await manager.observe(service.name)
    if previous == content and before.loaded and before.pid and not restart:
        await manager.enable(service.name)
        return _installed("unchanged", service, manager, before.pid)
    _prepare(service, path)
    log = Path(service.log)
    said_before = log.stat().st_size
    try:
        _write(path, content)
        await manager.load(service.name)
        pid = await _proven(service, manager, clock, old=before.pid, appears=appears, stays=stays)
    except ServiceError as error:
        said = _tail(log, said_before)  # before what comes back writes to it, too
        back = await _go_back(service, manager, previous, before)
        failure = type(error)(f"{error}. {back}. Its log: {log}")
        failure.said = said
        raise failure from error
    return _installed(_change(previous, content, before), service, manager, pid)


async def uninstall(name: str, manager: Manager) -> bool:
    """Stops the service and removes its file; whether there was anything to do."""
    path = manager.path(name)
    found = await _observed(name, manager)
    if not found.loaded and not path.exists():
        return False
    await manager.unload(name)
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise NotWritable(
            f"the service was stopped, but {path} cannot be removed ({error.strerror}), so it starts again at the next"
            f" login. Make {path.parent} writable for this user, without sudo, and repeat this"
        ) from error
    await manager.forget(name)
    return True


async def status(name: str, manager: Manager) -> Status:
    """Describes the service."""
    path = manager.path(name)
    found = await _observed(name, manager)
    return Status(
        manager=manager.kind,
        name=manager.handle(name),
        path=str(path),
        installed=path.exists(),
        loaded=found.loaded,
        pid=found.pid,
        since=await manager.since(found.pid) if found.pid else None,
        restarts=found.restarts,
        last_exit=found.last_exit,
        at_boot=await manager.at_boot(name) if path.exists() else AtBoot(code="unknown"),
    )


async def _observed(name: str, manager: Manager) -> Observed:
    """What the manager says; without one nothing runs, which is no error if nothing is installed either."""
    try:
        return await manager.observe(name)
    except NoManager:
        if manager.path(name).exists():
            raise
        return Observed(loaded=False)


def _change(previous: bytes | None, content: bytes, before: Observed) -> Change:
    if previous is None:
        return "installed"
    if previous != content:
        return "replaced"
    return "restarted" if before.pid else "started"


def _installed(change: Change, service: Service, manager: Manager, pid: int) -> Installed:
    name = service.name
    return Installed(
        change=change,
        name=manager.handle(name),
        path=str(manager.path(name)),
        pid=pid,
        log=service.log,
    )


def _prepare(service: Service, path: Path) -> None:
    """Creates the directories, and the log as a private file."""
    log = Path(service.log)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        Path(service.directory).mkdir(parents=True, exist_ok=True, mode=0o700)
        log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(log, flags, 0o600))
    except OSError as error:
        raise _not_writable(error) from error


def _write(path: Path, content: bytes) -> None:
    try:
        write_whole(path, content, mode=PUBLIC)
    except OSError as error:
        raise _not_writable(error) from error


def _not_writable(error: OSError) -> NotWritable:
    return NotWritable(
        f"{error.filename} cannot be written ({error.strerror}). Make it writable for this user, without sudo"
    )


async def _proven(
    service: Service, manager: Manager, clock: Clock, *, old: int, appears: float, stays: float
) -> int:
    """The new process, once it has stayed; one start is forced if the first one does not lead to it."""
    pid = await _new_and_staying(service, manager, clock, old, appears, stays)
    if not pid:
        await manager.restart(service.name)
        pid = await _new_and_staying(service, manager, clock, old, appears, stays)
    if pid:
        return pid
    found = await manager.observe(service.name)
    ended = f" (it ended with {found.last_exit})" if found.last_exit else ""
    raise DidNotStay(
        f"{service.argv[0]} did not stay alive as {manager.handle(service.name)}{ended}"
    )


async def _new_and_staying(
    service: Service, manager: Manager, clock: Clock, old: int, appears: float, stays: float
) -> int:
    end, pause = clock.monotonic() + appears, 1.0
    while (pid := (await manager.observe(service.name)).pid) in (0, old):
        if clock.monotonic() >= end:
            return 0
        await clock.sleep(pause)
        pause = min(2 * pause, _PAUSE)
    await clock.sleep(stays)
    return pid if (await manager.observe(service.name)).pid == pid else 0


async def _go_back(
    service: Service, manager: Manager, previous: bytes | None, before: Observed
) -> str:
    """Restores what was there before; says so, or why it could not."""
    path, name = manager.path(service.name), service.name
    try:
        if previous is None:
            await uninstall(name, manager)
            return "It was removed again"
        _write(path, previous)
        if before.loaded:
            await manager.load(name)
        else:
            await manager.unload(name)
        return "The previous version is back"
    except ServiceError as error:
        return f"And what was there before could not be restored ({error}): repeat this, or --uninstall"


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _not_writable(error) from error


def _tail(log: Path, after: int) -> tuple[str, ...]:
    """The last lines that the log got since then."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            start = after if after <= size else 0  # it was cut meanwhile
            file.seek(max(start, size - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ()
    return tuple(harmless(line) for line in lines[-_TAIL_LINES:])
