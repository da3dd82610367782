"""Chooses and opens the driver of a host: by name, or the best one that works here.

Everything outside `vm` gets its driver here and knows only the contract; a new driver is added by an entry in
`_DRIVERS`. `auto` takes tart where it is installed and works, else processes, and says why.

Invariants:
- A host's directory holds the state of each driver apart, so that VMs of one driver are still found, and can be
  stopped, after the host was started with another one (`opened_before`).
- A driver that was named is opened or the error says what is missing; only `auto` chooses another one.
"""

import contextlib
import os
import platform
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from runyard.clock import Clock
from runyard.files import remove_drafts, write_whole
from runyard.vm.contract import VmDriver, VmError
from runyard.vm.relays import Relay
from runyard.wire import names
from runyard.wire.reasons import Code, Reason

if TYPE_CHECKING:
    from runyard.vm.tart.driver import TartDriver

DriverName = Literal["tart", "process"]
Choice = Literal["auto", "tart", "process"]
Isolation = Literal["auto", "host-network", "none"]
# The label `tuist.dev/runtime` of the Nodes with each driver.
RUNTIMES: dict[DriverName, str] = {
    "tart": names.NODE_RUNTIME_TART,
    "process": names.NODE_RUNTIME_PROCESS,
}
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class Chosen(Code):
    """Why a host has its driver."""

    DRIVER_NAMED = "driver-named", "it was named"
    TART_WORKS = "tart-works", "tart {version} works here"
    TART_UNUSABLE = "tart-unusable", "{problem}"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The driver to open, and what it gets. Options of other drivers are not used."""

    home: Path  # of this host's VMs, images and logs
    driver: Choice = "auto"
    # of tart
    tart: str = "tart"  # its path, or its name on PATH
    slots: int = 2  # VMs at once; Apple's licence and macOS allow two
    insecure: tuple[str, ...] = ()  # `host:port` of registries without TLS
    # of processes
    images: Path | None = None  # images are copied from here
    disk_mb: int = 20_480  # that one VM may write
    isolation: Isolation = "auto"
    relays: tuple[
        Relay, ...
    ] = ()  # servers of this machine that guests with their own network may use


class Traits(msgspec.Struct, frozen=True, kw_only=True):
    """What a host's Node says about its driver."""

    os: str
    arch: str
    runtime: str
    labels: tuple[tuple[str, str], ...] = ()


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """An open driver."""

    driver: VmDriver
    name: DriverName
    why: Reason
    traits: Traits
    detail: str = ""  # how VMs are isolated, where that differs between machines


async def choose(driver: Choice, *, tart: str = "tart", clock: Clock) -> tuple[DriverName, Reason]:
    """The driver that `auto` means on this machine; a driver that was named is itself."""
    if driver != "auto":
        return driver, Chosen.DRIVER_NAMED.because()
    try:
        version = await _tart_version(tart, clock)
    except VmError as error:
        return "process", Chosen.TART_UNUSABLE.because(problem=str(error))
    return "tart", Chosen.TART_WORKS.because(version=version)


async def check_named(driver: Choice, *, tart: str = "tart", clock: Clock) -> None:
    """Raises `VmError` with what is missing, if this driver was named and its program does not work."""
    if driver == "tart":
        await _tart_version(tart, clock)


async def _tart_version(binary: str, clock: Clock) -> str:
    from runyard.vm.tart.commands import Tart  # noqa: PLC0415 drivers that are not used are not imported
    from runyard.vm.tart.settings import Settings  # noqa: PLC0415 as above

    return await Tart(Settings(binary=binary), clock, os.environ).version()


async def open_driver(wanted: Wanted, *, clock: Clock) -> Opened:
    """Open the driver; raises `VmError` with what is missing and how to get it."""
    name, why = await choose(wanted.driver, tart=wanted.tart, clock=clock)
    return await _DRIVERS[name](wanted, clock, why)


def opened_before(home: Path, *, clock: Clock) -> tuple[VmDriver, ...]:
    """The drivers that have state in this directory, for listing and stopping their VMs; nothing is probed."""
    from runyard.vm.process.driver import ProcessDriver  # noqa: PLC0415 as above

    found: list[VmDriver] = []
    if (home / "vms").is_dir():
        found.append(ProcessDriver(home, image_source=home / "images", clock=clock))
    with contextlib.suppress(OSError):
        binary = (_tart_home(home) / "binary").read_text(encoding="utf-8").strip()
        found.append(_tart_driver(Wanted(home=home, tart=binary), clock))
    return tuple(found)


def left_outside(homes: tuple[Path, ...]) -> tuple[str, ...]:
    """What VMs have left outside their directories and no VM owns any more, each as a path."""
    from runyard.vm.process.leftovers import leftovers  # noqa: PLC0415 as above

    return leftovers(homes)


def image_directory(images: Path, reference: str) -> Path:
    """Where an image of the process driver is, below the directory that images are copied from."""
    from runyard.vm.process.layout import quoted  # noqa: PLC0415 as above

    return images / quoted(reference)


def _tart_home(home: Path) -> Path:
    return home / "tart"


async def _open_tart(wanted: Wanted, clock: Clock, why: Reason) -> Opened:
    driver = _tart_driver(wanted, clock)
    await driver.tart.version()
    # Where VMs are found again when only the directory is known (`opened_before`).
    _tart_home(wanted.home).mkdir(parents=True, exist_ok=True, mode=0o700)
    remove_drafts(_tart_home(wanted.home))
    binary = shutil.which(wanted.tart) or wanted.tart
    write_whole(_tart_home(wanted.home) / "binary", f"{binary}\n")
    # Guests are macOS on Apple silicon, whatever runs the stand-in of tart in tests.
    traits = Traits(os="darwin", arch="arm64", runtime=RUNTIMES["tart"])
    return Opened(driver=driver, name="tart", why=why, traits=traits)


def _tart_driver(wanted: Wanted, clock: Clock) -> "TartDriver":
    from runyard.vm.oci import registry, sources  # noqa: PLC0415 as above
    from runyard.vm.tart.driver import TartDriver  # noqa: PLC0415 as above
    from runyard.vm.tart.settings import Settings  # noqa: PLC0415 as above

    insecure = frozenset(wanted.insecure)
    credentials = sources.usual(os.environ, Path.home(), clock)
    return TartDriver(
        _tart_home(wanted.home),
        registry=registry.Registry(credentials, clock, registry.Settings(insecure=insecure)),
        clock=clock,
        settings=Settings(binary=wanted.tart, insecure=insecure, slots=wanted.slots),
        environ=os.environ,
    )


async def _open_process(wanted: Wanted, clock: Clock, why: Reason) -> Opened:
    from runyard.vm.process.driver import ProcessDriver  # noqa: PLC0415 as above
    from runyard.vm.process.limits import Limits  # noqa: PLC0415 as above
    from runyard.vm.process.probe import probe_isolation  # noqa: PLC0415 as above

    isolation = await probe_isolation(wanted.home, want=wanted.isolation)
    driver = ProcessDriver(
        wanted.home,
        image_source=wanted.images or wanted.home / "source",
        clock=clock,
        limits=Limits(disk_mb=wanted.disk_mb),
        isolation=isolation,
        relays=wanted.relays,
    )
    machine = platform.machine()
    traits = Traits(
        os="darwin" if sys.platform == "darwin" else "linux",
        arch=_ARCHITECTURES.get(machine, machine),
        runtime=RUNTIMES["process"],
        labels=(
            (names.NODE_ISOLATION, isolation.kind),
            (names.NODE_JOB_NETWORK, isolation.network),
        ),
    )
    return Opened(driver=driver, name="process", why=why, traits=traits, detail=isolation.line)


_Open = Callable[[Wanted, Clock, Reason], Awaitable[Opened]]
_DRIVERS: dict[DriverName, _Open] = {"tart": _open_tart, "process": _open_process}
