"""`tart run`: holds the VM's lock, its machine and its control socket until the guest ends or SIGINT arrives.

The lock on `config.json` lasts as long as this process, which therefore opens that file only once after taking it. The
home directory is locked from before the configuration until then, which also makes the count of running VMs exact.
"""

import os
import select
import signal
import socket
import sys

from tests.standins.tart import errors, leases, locks, machine, shares, spawning, storage
from tests.standins.tart.arguments import Command, Given
from tests.standins.tart.context import Context
from tests.standins.tart.knobs import monotonic
from tests.standins.tart.storage import Vm

_VALUES = (
    *("dir", "disk", "rosetta", "net-bridged", "root-disk-opts", "serial-path"),
    *("net-softnet-allow", "net-softnet-block", "net-softnet-expose"),
)
_FLAGS = (
    *("no-graphics", "graphics", "vnc", "vnc-experimental", "serial", "suspendable", "nested"),
    *("net-softnet", "net-host", "no-audio", "no-clipboard", "recovery", "capture-system-keys"),
    *("no-trackpad", "no-pointer", "no-keyboard"),
)
COMMAND = Command(
    "run", "name", {**dict.fromkeys(_FLAGS, "flag"), **dict.fromkeys(_VALUES, "list")}
)
_WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron")


def run(context: Context, given: Given) -> int:
    """Run a VM in the foreground."""
    vm, shared = _validate(context, given)
    context.knobs.before("run", vm.name)
    if context.knobs.take("no-space-run", vm.name) is not None:
        raise errors.no_space()
    with locks.flocked(context.home.lock()):
        _avoid_collision(context, vm)
        mac = vm.mac
        lock = locks.try_lock(vm.file("config.json"))
        if lock is None:
            raise errors.already_running(vm.name)
        _check_limit(context, vm)
    shares.check(shared)
    resumed = vm.file("state.vzvmsave")
    if os.path.exists(resumed):
        errors.say("restoring VM state from a snapshot...")
        os.unlink(resumed)
    return Foreground(context, given, vm, mac).main(shared)


def _validate(context: Context, given: Given) -> tuple[Vm, list[shares.Share]]:
    """What is checked while the arguments are parsed: its errors get a prefix and the code 1."""
    for one, other in (("vnc", "vnc-experimental"), ("graphics", "no-graphics")):
        if given.flag(one) and given.flag(other):
            raise errors.Usage(f"--{one} and --{other} are mutually exclusive")
    for options in given.options.get("root-disk-opts", []):
        _check_disk_options(options)
    shared = shares.parse(given.options.get("dir", []))
    try:
        vm = context.home.open_local(given.name("name"), context.now())
    except errors.Failure as failure:
        raise errors.other(failure.text) from None
    for disk in given.options.get("disk", []):
        path = os.path.expanduser(disk.rpartition(":")[0] if _has_options(disk) else disk)
        if not os.path.exists(path):
            raise errors.no_file(os.path.basename(path))
    return vm, shared


def _has_options(disk: str) -> bool:
    tail = disk.rpartition(":")[2]
    return ":" in disk and ("=" in tail or tail == "ro")


def _check_disk_options(options: str) -> None:
    known = {
        "sync": ("none", "fsync", "full"),
        "caching": ("automatic", "cached", "uncached"),
    }
    for option in options.split(","):
        name, mark, value = option.partition("=")
        if option != "ro" and not (mark and value in known.get(name, ())):
            raise errors.Usage(f"The value '{options}' is invalid for '--root-disk-opts'")


def _avoid_collision(context: Context, vm: Vm) -> None:
    """Give the VM a new address if a running one has it; before the lock, which this would drop."""
    if vm.pid:
        return
    others = [each for each in context.home.locals() if each.name != vm.name and each.pid]
    if vm.mac in {each.mac for each in others}:
        errors.say("There is already a running VM with the same MAC address!")
        errors.say("Resetting VM to assign a new MAC address...")
        vm.save({**vm.config(), "macAddress": storage.random_mac()})


def _check_limit(context: Context, vm: Vm) -> None:
    """At most two VMs run on a Mac, whoever runs them."""
    others = [each.name for each in context.home.locals() if each.name != vm.name and each.pid]
    if len(others) >= context.knobs.number("vm-limit", 2):
        hint = f" (other running VMs: {', '.join(others)})" if others else ""
        raise errors.Failure(f"The number of VMs exceeds the system limit{hint}")


class Foreground:
    """The loop of `run` around its machine."""

    def __init__(self, context: Context, given: Given, vm: Vm, mac: str) -> None:
        self.context = context
        self.knobs = context.knobs
        self.given = given
        self.vm = vm
        self.mac = mac
        self.started = monotonic()
        self.signals: list[int] = []
        self.leased = False
        self.chatted = 0
        self.vnc: socket.socket | None = None
        self.viewers: list[socket.socket] = []

    def main(self, shared: list[shares.Share]) -> int:
        """Start the machine and wait for its end."""
        wakeup, wake = os.pipe()
        for descriptor in (wakeup, wake):
            os.set_blocking(descriptor, False)
        self._listen()
        self.channel, theirs = socket.socketpair()
        spawning.adopt_orphans()
        child = os.fork()
        if child == 0:
            self._become_machine(shared, theirs)
        theirs.close()
        signal.set_wakeup_fd(wake)
        for number in (signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, lambda received, _: self.signals.append(received))
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._announce()
        try:
            return self._loop(child, wakeup)
        finally:
            storage.remove(self.vm.file("control.sock"))

    def _become_machine(self, shared: list[shares.Share], theirs: socket.socket) -> None:
        code = machine.CRASHED
        try:
            os.setsid()
            self.channel.close()
            self.listener.close()
            # A pipe of stdout would stay open as long as the guest: this is the machine's, not tart's.
            nothing = os.open(os.devnull, os.O_RDWR)
            console = os.open(
                self.vm.file("console.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
            )
            os.dup2(nothing, 0)
            os.dup2(nothing, 1)
            os.dup2(console, 2)
            code = machine.Machine(self.vm, self.knobs, shared, theirs).main()
        except BaseException as error:  # noqa: BLE001 - the end of a process: report and exit
            sys.excepthook(type(error), error, error.__traceback__)
        finally:
            os._exit(code)

    def _listen(self) -> None:
        os.chdir(self.vm.path)
        storage.remove("control.sock")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind("control.sock")
        self.listener.listen(64)

    def _announce(self) -> None:
        """The line about VNC; on macOS a window opens instead where nothing forbids it."""
        if not (self.given.flag("vnc") or self.given.flag("vnc-experimental")):
            return
        self.vnc = socket.create_server(("127.0.0.1", 0))
        password = "-".join(_WORDS[octet % len(_WORDS)] for octet in os.urandom(4))
        url = f"vnc://:{password}@127.0.0.1:{self.vnc.getsockname()[1]}"
        if self.given.flag("no-graphics") or "CI" in os.environ:
            errors.say(f"VNC server is running at {url}")
        else:
            errors.say(f"Opening {url}...")

    # ------------------------------------------------------------------------------- loop

    def _loop(self, child: int, wakeup: int) -> int:
        while True:
            timeout = self._timers()
            sources = [self.listener, wakeup, *([self.vnc] if self.vnc else [])]
            ready, _, _ = select.select(sources, [], [], timeout)
            if self.listener in ready:
                self._accept()
            if self.vnc is not None and self.vnc in ready:
                self._greet(self.vnc)
            if wakeup in ready:
                os.read(wakeup, 4096)
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                return self._ended(status)
            while self.signals:
                code = self._signalled(self.signals.pop(0), child)
                if code is not None:
                    return code

    def _ended(self, status: int) -> int:
        """The machine ended by itself."""
        if os.waitstatus_to_exitcode(status) == 0:
            errors.say("guest has stopped the virtual machine")
            return 0
        errors.say(
            "guest has stopped the virtual machine due to error: Internal Virtualization error."
        )
        spawning.kill_all(set())
        raise errors.other(
            "Internal Virtualization error. The virtual machine stopped unexpectedly."
        )

    def _signalled(self, number: int, child: int) -> int | None:
        if number == signal.SIGUSR2:
            errors.say("Requesting guest OS to stop...")
            self.channel.send(machine.ASK_TO_STOP)
            return None
        if number == signal.SIGUSR1:
            if not self.given.flag("suspendable"):
                raise errors.other("Invalid virtual machine configuration: it cannot be suspended.")
            errors.say("Suspending VM...")
            with open(self.vm.file("state.vzvmsave"), "wb"):
                pass
        elif self.knobs.on("run-ignores-int", self.vm.name):
            return None
        else:
            errors.say("Stopping VM...")
        self.channel.close()
        os.waitpid(child, 0)
        return 0

    def _timers(self) -> float | None:
        """Do what is due; returns the seconds until the next thing."""
        now = monotonic()
        waits = []
        if not self.leased and not self.knobs.on("no-ip", self.vm.name):
            due = self.started + self.knobs.number("ip-after", 0, self.vm.name)
            if now >= due:
                leases.grant(self.knobs, self.vm.name, self.mac, self.context.now())
                self.leased = True
            else:
                waits.append(due - now)
        every = self.knobs.number("run-prints-every", 0, self.vm.name)
        if every:
            lines = int((now - self.started) / every)
            if lines > self.chatted:
                errors.say(f"line {lines}")
                self.chatted = lines
            waits.append(self.started + (self.chatted + 1) * every - now)
        return max(0.0, min(waits)) if waits else None

    def _accept(self) -> None:
        """Hand a connection to the guest's agent, if it answers yet."""
        link, _ = self.listener.accept()
        with link:
            late = monotonic() < self.started + self.knobs.number("boot-seconds", 0, self.vm.name)
            if late or self.knobs.on("no-agent", self.vm.name):
                return
            try:
                socket.send_fds(self.channel, [machine.EXEC], [link.fileno()])
            except OSError:
                return  # the machine is ending

    def _greet(self, server: socket.socket) -> None:
        """A VNC client gets the greeting of the protocol and nothing after it."""
        viewer, _ = server.accept()
        viewer.send(b"RFB 003.008\n")
        self.viewers.append(viewer)
