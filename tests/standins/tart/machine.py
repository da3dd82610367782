"""The virtual machine of the stand-in: a process whose descendants are the guest.

`run` forks it and keeps one end of a socket pair. Over it come connections for the guest's agent; its end is the power
switch: however `run` ends, the machine kills every process of the guest and ends too.

The guest's disk is `disk.img`, unpacked once to `guest-disk/`, which is also the guest's HOME and working directory:

- a tar archive: its files; `boot` is run, if there is one;
- a text that begins with `#!`: it is `boot`;
- anything else: a guest without a program, which idles until it is powered off.

`boot` is the first process of the guest: its end powers the guest off, as does `shutdown -h now` from anywhere in it
(`guest/bin` is first on its PATH). Then `run` ends with 0.
"""

import os
import select
import signal
import socket
import tarfile

from tests.standins.tart import agent, shares, spawning, storage
from tests.standins.tart.knobs import Knobs, monotonic
from tests.standins.tart.storage import Vm

BIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "guest", "bin")
CRASHED = 70
EXEC, ASK_TO_STOP = b"x", b"s"


class Machine:
    """One powered-on VM."""

    def __init__(
        self, vm: Vm, knobs: Knobs, shared: list[shares.Share], channel: socket.socket
    ) -> None:
        self.vm = vm
        self.knobs = knobs
        self.shared = shared
        self.channel = channel
        self.disk = vm.file(storage.GUEST_DISK)
        self.known: set[int] = set()
        self.boot = 0
        self.deadline: float | None = None  # of a shutdown
        self.wakeup, self._wake = os.pipe()
        self.readonly = False

    # ---------------------------------------------------------------------------- starting

    def main(self) -> int:
        """Run until the guest powers off or the switch is turned; returns the exit code of the process."""
        spawning.adopt_orphans()
        spawning.fresh_signals()
        for descriptor in (self.wakeup, self._wake):
            os.set_blocking(descriptor, False)
        self.shutdown_asked = False
        signal.set_wakeup_fd(self._wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGUSR1, self._ask_for_shutdown)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.readonly = shares.mount(self.shared, self.vm.file("shares"))
        self._unpack()
        self._start_boot()
        self._record()
        try:
            return self._loop()
        finally:
            spawning.kill_all(self.known)
            self._report()

    def _unpack(self) -> None:
        if os.path.isdir(self.disk):
            return
        fresh = f"{self.disk}.new"
        storage.remove(fresh)
        os.makedirs(fresh)
        image = self.vm.file("disk.img")
        with open(image, "rb") as file:
            script = file.read(2) == b"#!"
        if script:
            boot = os.path.join(fresh, "boot")
            with open(image, "rb") as file, open(boot, "wb") as program:
                program.write(file.read().rstrip(b"\0"))
            os.chmod(boot, 0o755)
        elif tarfile.is_tarfile(image):
            with tarfile.open(image) as archive:
                archive.extractall(fresh, filter="tar")
        os.rename(fresh, self.disk)

    def environment(self) -> dict[str, str]:
        """What every process of the guest gets."""
        return {
            "HOME": self.disk,
            "USER": "admin",
            "LOGNAME": "admin",
            "SHELL": "/bin/sh",
            "LANG": "en_US.UTF-8",
            "PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "STANDIN_VM": self.vm.name,
            "STANDIN_MACHINE": str(os.getpid()),
            "STANDIN_SHARES": self.vm.file("shares"),
            "STANDIN_READONLY": "enforced" if self.readonly else "",
        }

    def _start_boot(self) -> None:
        program = os.path.join(self.disk, "boot")
        if not os.path.exists(program):
            return
        os.chmod(program, 0o755)
        nothing = os.open(os.devnull, os.O_RDONLY)
        console = os.open(
            self.vm.file("console.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
        )
        self.boot = spawning.spawn(
            [program], self.environment(), cwd=self.disk, files=(nothing, console, console)
        )
        os.close(nothing)
        os.close(console)
        self.known.add(self.boot)

    def _record(self) -> None:
        """Write the pids of this machine, for tests that kill one of them."""
        path = self.vm.file("machine.pids")
        with open(f"{path}.new", "w", encoding="ascii") as file:
            file.write(f"run={os.getppid()}\nmachine={os.getpid()}\nboot={self.boot}\n")
        os.rename(f"{path}.new", path)

    # ----------------------------------------------------------------------------- running

    def _loop(self) -> int:
        started = monotonic()
        off = self.knobs.number("power-off-after", 0, self.vm.name)
        crash = self.knobs.number("crash-after", 0, self.vm.name)
        while True:
            now = monotonic()
            if crash and now >= started + crash:
                return CRASHED
            if off and now >= started + off:
                return 0
            if self.deadline is not None and now >= self.deadline:
                return 0
            if self.shutdown_asked and self.deadline is None:
                self._shut_down(now)
            times = [started + each for each in (off, crash) if each]
            times += [self.deadline] if self.deadline is not None else []
            timeout = max(0.0, min(times) - now) if times else None
            ready, _, _ = select.select([self.channel, self.wakeup], [], [], timeout)
            if self.wakeup in ready:
                self._drain()
                if self._reap():
                    return 0
            if self.channel in ready and not self._message():
                return 0

    def _drain(self) -> None:
        try:
            os.read(self.wakeup, 4096)
        except BlockingIOError:
            return

    def _reap(self) -> bool:
        """Whether the first process of the guest has ended."""
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return False
            self.known.discard(pid)
            if pid == self.boot:
                return True

    def _ask_for_shutdown(self, *_: object) -> None:
        self.shutdown_asked = True

    def _shut_down(self, now: float) -> None:
        """As `shutdown -h now`: SIGTERM to the guest's programs, a moment later the power goes."""
        self.deadline = now + self.knobs.number("shutdown-seconds", 0.1, self.vm.name)
        spawning.signal_all(signal.SIGTERM, self.known)

    def _message(self) -> bool:
        """One message of `run`; False when the power is off."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self.channel, 1, 1)
        except OSError:
            return False
        if data == EXEC and descriptors:
            self._serve(descriptors[0])
        elif data == ASK_TO_STOP:
            # A macOS guest shows a dialog that no user sees.
            self.shutdown_asked = self.vm.config()["os"] == "linux"
            os.write(self._wake, b"s")
        return bool(data)

    def _serve(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        environment = self.environment()
        session = os.fork()
        if session == 0:
            code = 1
            try:
                self.channel.close()
                spawning.die_with_parent()
                spawning.fresh_signals()
                code = agent.serve(socket.socket(fileno=descriptor), environment, self.disk)
            finally:
                os._exit(code)
        os.close(descriptor)
        self.known.add(session)

    def _report(self) -> None:
        """Leave the exit code that the knob names in the status share, as a runner's script does."""
        code = self.knobs.text("guest-exit-code", self.vm.name)
        status = next((share.path for share in self.shared if share.name == "status"), None)
        if code is not None and status is not None:
            with open(os.path.join(status, "runner-rc"), "w", encoding="ascii") as file:
                file.write(f"{code}\n")
