"""Creates, starts, stops and deletes the VMs of one host; the effects behind `driver.py`.

Invariants:
- Each step leaves a record before it changes something, so that after a crash at any moment the same call completes it.
- Calls about one VM follow one another; calls about different VMs do not wait for each other, except for a free slot
  and for the golden VM of an image that both need.
- Before a clone, no VM of that name exists: tart would replace it without a word.
- `tart run` is only started by a shim, after a slot was found, and once: the shim's record `started` decides. The one
  exception is a run that tart has refused because too many VMs run: nothing of the VM ran then. The shim decides that
  and keeps the token; here the start is taken back.
"""

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from runyard.vm.contract import DriverFailed, ImageMissing, SlotsFull, Unreachable, VmError, VmSpec
from runyard.vm.guest.envfile import BadEnvironment
from runyard.vm.oserrors import map_os_errors
from runyard.vm.shim import control, logs
from runyard.vm.shim.directory import ShimState
from runyard.vm.shim.orders import polling_order
from runyard.vm.tart.commands import Tart
from runyard.vm.tart.directory import StoredSpec, TartDirectory
from runyard.vm.tart.errors import NotRunning
from runyard.vm.tart.golden import Goldens
from runyard.vm.tart.slots import Slots

PROGRAM = "runyard.vm.tart.guest"
UP = (ShimState.BOOTING, ShimState.RUNNING)
# Tried in this order: the agent of most images runs as a user without rights, that of some as root without sudo.
_SHUT_DOWN = (("sudo", "-n", "shutdown", "-h", "now"), ("/sbin/shutdown", "-h", "now"))


class Lifecycle:
    """What is done to VMs."""

    def __init__(self, tart: Tart, goldens: Goldens, slots: Slots, logs: Path) -> None:
        self._tart = tart
        self._clock = tart.clock
        self._goldens = goldens
        self._slots = slots
        self._logs = logs
        # One that is neither held nor waited for is forgotten.
        self._locks = weakref.WeakValueDictionary[str, asyncio.Lock]()

    def is_being_created(self, directory: TartDirectory) -> bool:
        """Whether its clone is not complete and is being made right now."""
        lock = self._locks.get(directory.name)
        return lock is not None and lock.locked() and not directory.created()

    # ── create ──────────────────────────────────────────────────────────────────────────────────

    async def create(self, directory: TartDirectory, spec: VmSpec) -> None:
        """Record it, stage its files, clone it. A failure leaves nothing, a crash leaves what `create` completes."""
        async with self._only(directory):
            if directory.created():
                return
            entries = await self._tart.list()
            if not any(entry.name == spec.image for entry in entries if not entry.local):
                raise ImageMissing(f"{spec.image} has not been pulled on this host")
            if not directory.exists():
                if any(entry.name == spec.name for entry in entries if entry.local):
                    raise DriverFailed(
                        f"a VM with the name {spec.name} exists that was not created here;"
                        f" it is left alone: rename it with `tart rename {spec.name} NEW-NAME`"
                    )
                with map_os_errors(f"{spec.name} cannot be staged"):
                    _stage(directory, spec)
            await self._clone_or_nothing(directory)

    async def _clone_or_nothing(self, directory: TartDirectory) -> None:
        try:
            await self._clone(directory, directory.spec())
        except VmError:
            with contextlib.suppress(VmError, OSError):  # what stays is ours: `delete` removes it
                await self._tart.delete(directory.name)
                directory.remove()
            raise

    async def _clone(self, directory: TartDirectory, spec: StoredSpec) -> None:
        await self._goldens.clone(spec.image, directory.name)
        await self._tart.set(directory.name, cpu=spec.cpu_milli // 1000, memory_mb=spec.memory_mb)
        with map_os_errors(f"the record of {directory.name} cannot be written"):
            directory.mark_created()

    # ── start ───────────────────────────────────────────────────────────────────────────────────

    async def start(self, directory: TartDirectory) -> None:
        """Start it once. What an earlier agent did not finish creating is completed first."""
        if not directory.exists():
            raise DriverFailed(f"{directory.name} does not exist: it has to be created first")
        await self.take_back_refused(directory)
        if _is_up(directory):
            return
        async with self._only(directory):
            if not directory.created():
                await self._clone(directory, directory.spec())
            async with control.locked(directory, self._clock) as lock:
                if lock is None or _is_up(directory):
                    return  # another agent starts it
                async with self._slots.one(directory.name):
                    with map_os_errors(f"{directory.name} cannot be started"):
                        directory.write_order(self._order(directory))
                        environ = self._tart.bare_environment
                        await control.start(
                            directory, lock, self._clock, program=PROGRAM, environ=environ
                        )
        window = self._tart.settings.start_window
        gone = await control.wait_gone(directory, self._clock, within=window)
        if gone and await self.take_back_refused(directory):
            raise SlotsFull(
                f"{directory.name} waits: tart says that too many VMs run on this host; it starts when one ends"
            )

    def _order(self, directory: TartDirectory) -> dict[str, Any]:
        spec = directory.spec()
        common = {
            "argv": self._tart.run_argv(directory.name, {}),
            "env": self._tart.public_environment(),
            "inherit": True,
            "mark": str(directory.path),
            "name": directory.name,
            "list": list(self._tart.list_argv()),
            "stop": list(self._tart.stop_argv(directory.name)),
            "end": ("INT", self._tart.settings.power_off),
        }
        if spec.polling is not None:
            exec_argv = list(self._tart.exec_argv(directory.name, (), terminal=False))
            polling = polling_order(
                directory,
                spec.polling,
                env=spec.env,
                exec_argv=exec_argv,
                pace=self._tart.settings.pace,
            )
            return {**common, "polling": polling}
        shares = {
            "env": f"{directory.env}:ro",
            "token": str(directory.token),
            "status": str(directory.status),
        }
        return {
            **common,
            "argv": self._tart.run_argv(directory.name, shares),
            "status": str(directory.status),
        }

    async def take_back_refused(self, directory: TartDirectory) -> bool:
        """Undo a start that tart has refused because too many VMs run; returns whether there was one."""
        if directory.shim_state() is not ShimState.EXITED or not directory.was_refused():
            return False
        async with control.locked(directory, self._clock) as lock:
            if lock is None or not directory.was_refused():
                return False
            with map_os_errors(f"{directory.name} cannot be prepared for another start"):
                directory.forget_start()
        return True

    # ── stop ────────────────────────────────────────────────────────────────────────────────────

    async def stop(self, directory: TartDirectory, *, grace: float) -> None:
        """Ask the guest, then its shim, which ends `tart run` with INT and at last with KILL.

        No command of tart is waited for after the grace period: one that hangs must not delay the power-off.
        """
        if directory.shim_state() is ShimState.ORPHANED:
            await self._reap(directory)
        if directory.shim_state() not in UP:
            return
        if grace > 0 and await self._shut_down(directory, grace):
            return
        await control.send(directory, control.POWER_OFF, self._clock)
        within = self._tart.settings.power_off + control.POWER_OFF_TIMEOUT
        if not await control.wait_gone(directory, self._clock, within=within):
            raise DriverFailed(f"{directory.name} did not end within {within:g} s of its power-off")

    async def _shut_down(self, directory: TartDirectory, grace: float) -> bool:
        """Ask the guest to shut down and wait; returns whether it has ended within its grace period.

        If the host polls, the shim ends a VM without a job at once.
        """
        await control.send(directory, control.SHUT_DOWN, self._clock)
        until = self._clock.monotonic() + grace
        with contextlib.suppress(TimeoutError):
            async with self._clock.timeout(grace):
                for command in _SHUT_DOWN:
                    if await self._asked(directory, command):
                        break
        left = max(0.0, until - self._clock.monotonic())
        return await control.wait_gone(directory, self._clock, within=left)

    async def _asked(self, directory: TartDirectory, command: tuple[str, ...]) -> bool:
        """Run a command in the guest as soon as its agent answers; returns whether the guest has obeyed."""
        while directory.alive():
            try:
                await self._tart.execute(directory.name, *command)
            except (Unreachable, NotRunning):  # it may still boot, or be about to
                await self._clock.sleep(self._tart.settings.ask_again)
            except (
                VmError
            ):  # no such command or no right; or its agent ended before it had answered
                return False
            else:
                return True
        return True

    # ── delete ──────────────────────────────────────────────────────────────────────────────────

    async def delete(self, directory: TartDirectory) -> None:
        """Delete the VM and all that was staged for it; its log moves."""
        async with self._only(directory):
            if not directory.exists():
                return
            if directory.shim_state() is ShimState.ORPHANED:
                await self._reap(directory)
            if directory.shim_state() in UP:
                raise DriverFailed(f"{directory.name} is running: stop it first")
            # The shim ends after it has written the exit record.
            await control.wait_gone(directory, self._clock, within=control.POWER_OFF_TIMEOUT)
            async with control.locked(directory, self._clock) as lock:
                if lock is None:
                    raise DriverFailed(f"{directory.name} is being started: stop it first")
                await self._tart.delete(directory.name)
                with map_os_errors(f"the files of {directory.name} cannot be removed"):
                    logs.keep(directory.state, self._logs / directory.name)
                    await asyncio.to_thread(directory.remove)

    async def reap(self, directory: TartDirectory, *, within: float) -> None:
        """End what is left of a VM whose shim was killed."""
        await self._reap(directory, within=within)

    async def _reap(
        self, directory: TartDirectory, *, within: float = control.POWER_OFF_TIMEOUT
    ) -> None:
        environ = self._tart.bare_environment
        await control.reap(directory, self._clock, program=PROGRAM, within=within, environ=environ)

    @contextlib.asynccontextmanager
    async def _only(self, directory: TartDirectory) -> AsyncIterator[None]:
        """Holds the VM: other calls that create, start or delete it wait."""
        lock = self._locks.setdefault(directory.name, asyncio.Lock())
        async with lock:
            yield


def _stage(directory: TartDirectory, spec: VmSpec) -> None:
    try:
        directory.stage(spec)
    except BadEnvironment as error:
        raise DriverFailed(f"{spec.name}: {error}") from error


def _is_up(directory: TartDirectory) -> bool:
    """Whether it runs; a VM that has ended never starts again."""
    state = directory.shim_state()
    if state in (ShimState.EXITED, ShimState.ORPHANED):
        raise DriverFailed(f"{directory.name} has ended and never starts again: delete it")
    return state is not ShimState.STOPPED
