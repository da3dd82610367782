"""Numbers the effects of an agent or a shim, and kills a process at a chosen one.

An effect is what another process, or the next agent, can see: a file that is opened for writing, renamed or removed, a
directory, a process, a request. They are not listed by hand: an audit hook of Python reports each, so that a new call
in the code is a new effect automatically. Names hold no uid and no number of a process.

    folder/   order.json    the life of which Pod it is, and where to kill which process
              journal       one line of JSON for each effect
              fired         the order was carried out: once for each order, also after a restart
              agent.pid shim.pid    the newest process of each kind
              leaks         arguments of started programs that contain a secret

A process is killed *before* the effect happens. A kill after an effect is a kill before the next one.

Imported by the shim, so it imports nothing but the standard library.
"""

import contextlib
import json
import os
import re
import select
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

AGENT, SHIM, REAPER = "agent", "shim", "reaper"
VICTIMS = (AGENT, SHIM, "run", "guest")
SECRET = re.compile(r"eyJ[A-Za-z0-9_-]{16,}\.|c2VjcmV0LWppdC1vZi1hLWpvYg")
JIT = "c2VjcmV0LWppdC1vZi1hLWpvYg"

_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_POD = re.compile(r"job-\d+(-uid)?")
_IMAGE = re.compile(r"(?<=runyard-golden-)[0-9a-f]{16}|(?<=@sha256:)[0-9a-f]{64}")
_PHASE = re.compile(rb'"phase":"(\w+)"')
_DRAFT = re.compile(r"\.\d+$|(?<=\.new-)\d+(?=-)|(?<=\.gone-)\d+(?=-)")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_GONE = 2.0  # seconds for the kernel to end what was killed
_QUIET = ("/lock", "shim.log", "console.log", ".pyc")


class Effects:
    """The effects of this process."""

    def __init__(self, role: str, folder: str, root: str) -> None:
        self.role, self.folder, self.root = role, folder, root
        self.inside = threading.local()  # a thread that counts an effect; its own are none
        self.order: dict[str, Any] = {}
        self.changed = 0
        self.seen: dict[str, int] = {}
        self.pid = 0

    # ── from an audit event to an effect ────────────────────────────────────────────────────────

    def hear(self, event: str, args: tuple[Any, ...]) -> None:
        """The audit hook."""
        if event.startswith(("open", "os.", "subprocess.")) and not self._busy:
            with self.unheard():
                name = self._name(event, args)
                if name:
                    self._reached(name)

    def reached(self, name: str) -> None:
        """Count an effect that no audit event reports."""
        with self.unheard():
            self._reached(name)

    @contextlib.contextmanager
    def unheard(self) -> Iterator[None]:
        """What this thread does meanwhile is no effect."""
        self.inside.now = True
        try:
            yield
        finally:
            self.inside.now = False

    @property
    def _busy(self) -> bool:
        return getattr(self.inside, "now", False)

    def _name(self, event: str, args: tuple[Any, ...]) -> str:
        if event == "open":
            path = self._path(args[0])
            writes = isinstance(args[2], int) and args[2] & _WRITES
            return f"write {path}" if path and writes else ""
        if event == "os.rename":
            path = self._path(args[1])
            return f"rename {path}{_phase(args[0], path)}" if path else ""
        if event in ("os.remove", "os.rmdir", "os.mkdir"):
            path = self._path(args[0], args[-1], there=event != "os.mkdir")
            return f"{event[3:]} {path}" if path else ""
        if event in ("os.fork", "os.kill", "os.killpg"):
            return event[3:]
        return (
            self._program([os.fsdecode(each) for each in args[1]])
            if event == "subprocess.Popen"
            else ""
        )

    def _path(self, path: Any, folder: Any = -1, *, there: bool | None = None) -> str:
        """The path below the host's folder; empty for one outside, for logs and locks, and where nothing changes."""
        if isinstance(path, int):
            return ""
        text = os.fsdecode(path)
        if isinstance(folder, int) and folder >= 0 and not text.startswith("/"):
            text = f"{os.readlink(f'/proc/self/fd/{folder}')}/{text}"
        if not text.startswith(f"{self.root}/") or text.startswith(self.folder):
            return ""
        if there is not None and there is not os.path.lexists(text):
            return ""
        short = plain(text[len(self.root) + 1 :])
        return "" if short.endswith(_QUIET) else re.sub(r"(/\.gone-[^/]+)/.*", r"\1/*", short)

    def _program(self, argv: list[str]) -> str:
        leaks = [word for word in argv if SECRET.search(word)]
        if leaks:
            with open(f"{self.folder}/leaks", "a", encoding="utf-8") as file:
                file.write(f"{self.role} starts {argv[0]} with {leaks}\n")
        if argv[0].endswith("/tart"):
            verb = "exec" if argv[1] == "exec" else plain(" ".join(argv[1:3]))
            return f"start tart {verb}{' in POD' if verb == 'exec' else ''}"
        if self.role == AGENT and len(argv) > 7 and "-c" in argv:
            return f"start shim in POD to {argv[argv.index('-c') + 3]}"
        return "start poller in POD" if self.role == SHIM else f"start {os.path.basename(argv[0])}"

    # ── an effect ───────────────────────────────────────────────────────────────────────────────

    def _reached(self, name: str) -> None:
        """Record an effect that is about to happen, and kill what was ordered."""
        self._take_order()
        if not self.order:
            return
        if self.role != AGENT and self.pid != os.getpid():
            self.pid = os.getpid()
            put(f"{self.folder}/shim.pid", str(self.pid))
        number = self.seen[name] = self.seen.get(name, 0) + 1
        line = {"life": self.order["life"], "role": self.role, "name": name, "nth": number}
        if self.order.get("discover"):
            line["victims"] = [each for each in VICTIMS if self._victim(each)]
        self._write(line)
        wanted = (self.order.get("role"), self.order.get("name"), self.order.get("nth"))
        if wanted == (self.role, name, number):
            self.fire()

    def fire(self) -> None:
        """Kill the ordered process, once."""
        victim = self._victim(self.order["victim"])
        try:
            os.close(os.open(f"{self.folder}/fired-{self.order['life']}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        self._write({"life": self.order["life"], "killed": self.order["victim"], "pid": victim})
        if victim:
            kill(victim)

    def _take_order(self) -> None:
        path = f"{self.folder}/order.json"
        changed = os.stat(path).st_mtime_ns
        if changed != self.changed:
            self.changed = changed
            with open(path, "rb") as file:
                order = json.load(file)
            if order.get("life") != self.order.get("life"):
                self.seen = {}
            self.order = order

    def _victim(self, victim: str) -> int:
        """Its process, 0 if there is none."""
        if (victim == AGENT) is (self.role == AGENT) and victim in (AGENT, SHIM):
            return os.getpid()
        if victim == AGENT:
            return _alive(_number(f"{self.folder}/agent.pid"))
        if victim == SHIM:
            return _alive(_number(f"{self.folder}/shim.pid"))
        return machine(self.root, self.order["pod"]).get(victim, 0)

    def _write(self, line: dict[str, Any]) -> None:
        handle = os.open(f"{self.folder}/journal", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(handle, f"{json.dumps(line)}\n".encode())
        os.close(handle)


def install(role: str, folder: str) -> Effects:
    """Count the effects of this process below the folder's parent from now on."""
    effects = Effects(role, folder, os.path.dirname(folder))
    put(f"{folder}/{AGENT if role == AGENT else SHIM}.pid", str(os.getpid()))
    sys.addaudithook(effects.hear)
    return effects


def switched_off(folder: str) -> tuple[str, ...]:
    """The guards that the order switches off."""
    with open(f"{folder}/order.json", "rb") as file:
        return tuple(json.load(file).get("off", ()))


def machine(root: str, pod: str) -> dict[str, int]:
    """The processes `run` and `guest` of a Pod's VM, as far as they live."""
    found: dict[str, int] = {}
    folder = f"{root}/tart-home/vms"
    with contextlib.suppress(OSError):
        for vm in [each for each in os.listdir(folder) if each.startswith(f"{pod}-")]:
            with open(f"{folder}/{vm}/machine.pids", encoding="ascii") as file:
                pids = dict(line.split("=") for line in file.read().split())
            for victim, key in (("run", "run"), ("guest", "machine")):
                if _alive(int(pids[key]), vm):
                    found[victim] = int(pids[key])
    return found


def kill(pid: int) -> None:
    """Kill a process and return when it has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    for _ in range(int(_GONE / 0.005)):
        if not _alive(pid):
            return
        select.select([], [], [], 0.005)


def plain(text: str) -> str:
    """A name without uids and numbers of processes."""
    text = _IMAGE.sub("IMAGE", _POD.sub("POD", _UID.sub("uid", text)))
    return _DRAFT.sub(lambda found: re.sub(r"\d+", "PID", found[0]), text)


def _phase(path: Any, name: str) -> str:
    """What a record of the agent says: its writes differ by that only."""
    if not name.startswith("agent/records/"):
        return ""
    with open(path, "rb") as file:
        found = _PHASE.search(file.read())
    return f" {found[1].decode()}" if found else ""


def put(path: str, text: str) -> None:
    """Write a small file whole."""
    with open(f"{path}.new{os.getpid()}", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(f"{path}.new{os.getpid()}", path)


def _number(path: str) -> int:
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


def _alive(pid: int, word: str = "") -> int:
    """The process, if it has not ended and its arguments contain the word; else 0."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            ended = file.read().rpartition(b")")[2].split()[0] in (b"Z", b"X")
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            named = word.encode() in file.read()
    except OSError:
        return 0
    return pid if pid and named and not ended else 0
