"""What a harness of the contract suite has to offer, and what the harnesses share."""

import asyncio
import contextlib
import os
import select
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from runyard.clock import Clock
from runyard.vm.contract import HostPolling, VmDriver, VmSpec
from runyard.vm.shim.orders import Pace

Poller = Literal["host", "guest", "tart-kubelet"]
GUEST = "GUEST"  # the variable that sets the behaviour of a harness's guest
NAME = "pod-1-uid-1"
FLOOD = 100_000_000  # bytes


PACE = Pace(pause=0.01, timeout=5.0, boot=30.0)


class Capability(Enum):
    """What a case needs of a driver or its harness, where not every one has it."""

    SERVICE = "a guest that serves a port"
    TERMINAL_SIZE = "a terminal that reports a change of its size"
    POLLING = "a guest that runs a program which asks a server for a job"


class Command(Enum):
    """A command in a guest, by what it does."""

    ECHO = "prints its input and ends with 7"
    FLOOD = "prints FLOOD bytes"
    SIZE = "prints the size of its terminal, and again at each change"
    STAY = "prints a line and stays"
    ERRORS = "prints out to its output and err to its errors"
    MISSING = "does not exist"


SHELL: dict[Command, tuple[str, ...]] = {
    Command.ECHO: ("sh", "-c", "cat; exit 7"),
    Command.FLOOD: ("head", "-c", str(FLOOD), "/dev/zero"),
    Command.SIZE: (
        *("sh", "-c"),
        'trap "stty size" WINCH; stty size; while read -r line; do echo "read $line"; done',
    ),
    Command.STAY: ("sh", "-c", "echo $$; exec sleep 3600"),
    Command.ERRORS: ("sh", "-c", "echo out; echo err >&2"),
    Command.MISSING: ("no-such-program",),
}


class DriverHarness(Protocol):
    """A driver with what the suite needs to use it."""

    clock: Clock
    driver: VmDriver
    image: str
    missing_image: str
    tag: str  # the image without its digest
    lacks: Mapping[Capability, str]
    commands: Mapping[Command, tuple[str, ...]]
    disk_steps: tuple[str, ...]  # the steps that need disk space

    def reopened(self) -> VmDriver:
        """A new driver on the same state, as after a restart of the agent."""
        ...

    async def listening(self, name: str) -> None:
        """Return when the guest handles or ignores TERM, or has ended."""
        ...

    def add_foreign(self, name: str) -> object:
        """Make a VM of that name that the driver did not create; returns what must not change."""
        ...

    def foreign(self, name: str) -> object:
        """What has become of it."""
        ...

    async def kill_all(self, name: str) -> None:
        """Kill every process of a VM at once, its shim included."""
        ...

    def stopped(self, name: str) -> contextlib.AbstractContextManager[None]:
        """A VM whose processes do not react, not even to be asked for their end."""
        ...

    def write_log(self, name: str) -> bytes:
        """Have the VM print something to its console; returns what."""
        ...

    def offer_image(self) -> None:
        """Make sure that the image is in its registry, and not on this host."""
        ...

    def interruptible_pull(self) -> Awaitable[None]:
        """A pull of the image that is cancelled when a part of its bytes has arrived."""
        ...

    def full_disk(self, step: str, *, free: int = 0) -> contextlib.AbstractContextManager[None]:
        """Leave so many bytes, too few for this step."""
        ...

    def runs(self, name: str) -> int:
        """How often the guest was started."""
        ...

    def polled(self, runner: str, url: str, *, who: Poller, token: str) -> VmSpec:
        """A VM of an image with this runner, for which `who` polls without long pauses.

        If the guest polls, the image has the packaged scripts. One of `tart-kubelet` has others, which copy the token
        and remove nothing.
        """
        ...

    def tokens(self, name: str, token: str) -> list[str]:
        """The files of a VM that hold the token."""
        ...


def polled_spec(image: str, url: str, who: Poller, token: str) -> VmSpec:
    return VmSpec(
        name=NAME,
        image=image,
        cpu_milli=4000,
        memory_mb=8192,
        env=(
            ("TUIST_RUNNER_DISPATCH_URL", url),
            ("RUNYARD_POLL_PAUSE", "0.01"),
            ("RESULT", "42"),
        ),
        token=token,
        polling=HostPolling(url=url) if who == "host" else None,
    )


def files_with(folder: Path, text: str) -> list[str]:
    """The files below a folder that hold this text."""
    found = []
    for path in sorted(folder.rglob("*")):
        with contextlib.suppress(OSError):  # a pipe, or a file that has just been removed
            if path.is_file() and not path.is_symlink() and text.encode() in path.read_bytes():
                found.append(path.name)
    return found


Scenario = Callable[[DriverHarness], Coroutine[Any, Any, None]]


class Lacking:
    """The parts of a harness that only some have: each use of one is declared by a capability first."""

    lacks: ClassVar[Mapping[Capability, str]] = {}
    commands: ClassVar[Mapping[Command, tuple[str, ...]]] = SHELL
    disk_steps: ClassVar[tuple[str, ...]] = ("pull", "create", "start")

    def polled(self, runner: str, url: str, *, who: Poller, token: str) -> VmSpec:
        raise NotImplementedError

    def tokens(self, name: str, token: str) -> list[str]:
        raise NotImplementedError


# A boot script as images for `tart-kubelet` have it: it takes the token and removes nothing.
COPIES = """#!/bin/sh
cp "$RUNYARD_ENV_DIR/sa_token" "$RUNYARD_WORK_DIR/mine" || exit 1
echo "the token is copied" >&2
while [ ! -e "$RUNYARD_WORK_DIR/runner/go" ]; do sleep 0.02; done
echo 42 >"$RUNYARD_STATUS_DIR/runner-rc"
"""
# What a macOS image does at boot, with the folders of the stand-in's guest.
GUEST_BOOT = f"""#!/bin/sh
export RUNYARD_ENV_DIR="$STANDIN_SHARES/env" RUNYARD_TOKEN_DIR="$STANDIN_SHARES/token"
export RUNYARD_STATUS_DIR="$STANDIN_SHARES/status" RUNYARD_RUN_DIR="$HOME/run"
export RUNYARD_WORK_DIR="$HOME/work" RUNYARD_PYTHON="{sys.executable}"
exec "$HOME/boot.sh"
"""
LOG_LINE = b"the last words\n"


async def cancelled_half_way(driver: VmDriver, image: str, part: Callable[[], bool]) -> bool:
    """Pull, and cancel when `part` says that some bytes have arrived; false if it was over before that was seen."""
    seen = asyncio.Event()  # a new percentage, or the end
    async with asyncio.TaskGroup() as tasks:
        pull = tasks.create_task(driver.pull(image, progress=lambda _: seen.set()))
        pull.add_done_callback(lambda _: seen.set())
        await seen.wait()
        while not part() and not pull.done():
            await asyncio.sleep(0)
        return pull.cancel()


def family(pid: int) -> list[int]:
    """A process with all its descendants. Each is stopped first, so that none starts another one meanwhile."""
    found = [pid]
    for each in found:
        stop_and_wait(each)
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{each}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found


def stop_and_wait(pid: int) -> None:
    """Stop a process, and return when it has stopped or ended."""
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGSTOP)
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "TtZX":
            select.select([], [], [], 0.001)


def kill_each(*pids: int) -> None:
    assert len(pids) > 1, "a VM is more than its shim"
    for pid in filter(None, pids):  # an image without a program has no process for it
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def filled(folder: Path, free: int) -> Iterator[None]:
    """A file system with so many free bytes."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        with contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        file.truncate(max(0, os.fstat(file.fileno()).st_size - free))
    try:
        yield
    finally:
        filler.unlink()
