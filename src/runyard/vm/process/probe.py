"""Probes how far VMs can be isolated on this machine.

Every kind of isolation is tried, best first: a VM's directory is built and a guest runs in it. The first kind is used
in which the guest could do its work, its job could not read the token (if it is another user), and user namespaces
were refused where they should be. If nothing better works the result is "none", with the reasons.
In a sandbox a network of its own is tried after that: the guest must have a way out and must not reach a socket of
this machine. If that fails, or if this machine's way out or name servers are IPv6 only, VMs use the host's network,
and the description says why: it is decided here for all VMs, never for one. `cgroup_probe.py` probes control groups.

A trial's guest is run by a shim, as a VM's is.

A trial is a directory in the home whose name begins with a dot; the home is locked during a trial, so that only what a
killed probe has left is removed.
"""

import asyncio
import contextlib
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from runyard import proc
from runyard.vm.contract import VmError
from runyard.vm.process import sandbox, staging
from runyard.vm.process.cgroup_probe import probe_cgroups
from runyard.vm.process.folders import holding, remove
from runyard.vm.process.isolation import REGISTRY, UID_BASE, Isolation
from runyard.vm.process.layout import VmDirectory
from runyard.vm.process.limits import Limits, describe, limit_statuses, unenforced
from runyard.vm.process.networks import network_order, own_samples, why_not_own
from runyard.vm.process.users import claim, tidy
from runyard.vm.shim import control

_TIMEOUT = 30.0
_SHIM = "runyard.vm.process.shim"
_TRIAL = ".probe-"
_ONLY_MARK = "runyard-guest-ran"
_LEAKED = "a connection of the guest reached this machine's loopback"
_SAMPLES = 16  # of this machine's addresses; a machine may have thousands
_replace = msgspec.structs.replace
Wanted = Literal["auto", "host-network", "none"]


async def probe_isolation(
    home: Path,
    *,
    want: Wanted = "auto",
    uid_base: int = UID_BASE,
    registry: str = REGISTRY,
    cgroup: Path | None = None,
) -> Isolation:
    """The best isolation that works for VMs under `home`; `cgroup` was delegated to us."""
    home.mkdir(parents=True, exist_ok=True)
    found = await asyncio.to_thread(probe_cgroups, cgroup)
    refused: list[str] = []
    for candidate in _candidates(want, Isolation(uid_base=uid_base, registry=registry)):
        candidate = _replace(candidate, cgroup=found.group, controllers=found.controllers)
        failure = await _trial(home, candidate)
        if not failure:
            candidate = await _with_network(home, candidate, want)
            return _described(candidate, refused, found.why)
        refused.append(f"not {candidate.detail}: {failure}")
    return _described(_with_python(Isolation(), public=False), refused, found.why)


async def _with_network(home: Path, isolation: Isolation, want: Wanted) -> Isolation:
    """Adds a network of its own where it works, and says so; else says why not."""
    if isolation.kind != "bwrap":
        return isolation
    slirp = shutil.which("slirp4netns") or ""
    if want == "host-network":
        why = "as configured"
    elif not slirp:
        why = _without_slirp()
    else:
        own = _replace(isolation, network="own", slirp=slirp)
        why = why_not_own() or await _trial(home, own)
        if not why:
            return _replace(own, detail=f"{own.detail}, a network of its own for each VM")
    return _replace(isolation, detail=f"{isolation.detail}, the host's network ({why})")


def _without_slirp() -> str:
    why = "install slirp4netns, so that jobs cannot reach this machine's servers"
    return f"{why}; pasta alone is not used" if shutil.which("pasta") else why


def _described(isolation: Isolation, refused: list[str], why: str) -> Isolation:
    """Adds the descriptions: what it is, why it is not more, and which limits are enforced."""
    statuses = limit_statuses(isolation.mechanisms)
    reasons = f" ({'; '.join(refused)})" if refused else ""
    short = describe(unenforced(statuses)) or "all limits enforced"
    detail = f"{isolation.detail}{reasons}; {short}"
    return _replace(isolation, detail=detail, limits=describe(statuses, why))


async def sweep_trials(home: Path) -> None:
    """Removes what a killed probe has left, unless a probe is running there."""
    left = sorted(home.glob(f"{_TRIAL}*"))
    if left:
        with holding(home) as held:
            for path in left if held else ():
                with contextlib.suppress(VmError):
                    await remove(path)


def _candidates(want: str, base: Isolation) -> list[Isolation]:
    """Every kind of isolation that could work here, best first."""
    root, linux = os.geteuid() == 0, sys.platform == "linux"
    bwrap = (shutil.which("bwrap") if want != "none" and linux else None) or ""
    plain = _with_python(base, public=False)
    boxed = _replace(plain, kind="bwrap", bwrap=bwrap)
    owned = _with_python(plain, public=True)
    words = "no sandbox: VMs run as the agent's user and can read each other's files"
    if want != "none" and linux and not bwrap:
        words += " (install bubblewrap for isolation)"
    pair = "with users of its own for each VM's poller and job"
    paired = _replace(boxed, users="pair", detail=f"bwrap, {pair}")
    alike = _replace(boxed, user_namespace=True, detail="bwrap, all VMs as one user")
    ways = [
        (bool(bwrap) and root, _closed(paired)),
        (bool(bwrap) and root, paired),
        (bool(bwrap), _closed(alike)),
        (bool(bwrap), alike),
        (root and linux, _replace(owned, users="pair", detail=f"no sandbox, but {pair}")),
        (
            root,
            _replace(
                owned, users="one", detail="no sandbox, but with a user of its own for each VM"
            ),
        ),
        (True, _replace(plain, detail=words)),
    ]
    return [candidate for possible, candidate in ways if possible]


def _closed(isolation: Isolation) -> Isolation:
    """The same, without user namespaces inside the guest."""
    return _replace(isolation, closed=True, detail=f"{isolation.detail}, no user namespaces inside")


async def _trial(home: Path, candidate: Isolation) -> str:
    """Runs a guest that checks its isolation; returns what was wrong, empty if nothing."""
    with holding(home, shared=True):
        path = Path(tempfile.mkdtemp(prefix=_TRIAL, dir=home))
        try:
            return await _try_in(path, candidate)
        finally:
            await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)
            tidy(candidate.registry)


async def _try_in(path: Path, candidate: Isolation) -> str:
    try:
        users = claim(candidate, path)
        directory = staging.skeleton(path / "vm", env=(), token="secret")
        directory.image.mkdir()
        (directory.image / "boot.sh").write_text(_GUEST, encoding="utf-8")
        (directory.image / "boot.sh").chmod(0o755)
        become = Path(__file__).parent.parent / "guest" / "become.py"
        shutil.copyfile(become, directory.image / "become.py")
        path.chmod(0o711)
        await staging.set_owners(directory, users)
        with _listening(candidate) as listeners:
            order = _order(directory, candidate, users, listeners)
            directory.write_order(order)
            await control.try_guest(directory, within=_TIMEOUT, program=_SHIM)
            # Only the guest connects to this port of loopback; others could to an address of this machine.
            leaked = any(map(_is_reached, listeners[:1]))
        return _failure(directory) or (_LEAKED if leaked else "")
    except (OSError, proc.ProcError, VmError) as error:
        return str(error)[:200]


@contextlib.contextmanager
def _listening(candidate: Isolation) -> Iterator[list[socket.socket]]:
    """Sockets of this machine that a guest with a network of its own must not reach; the first is on loopback."""
    with contextlib.ExitStack() as stack:
        found: list[socket.socket] = []
        if candidate.network == "own":
            found.append(stack.enter_context(socket.create_server(("127.0.0.1", 0))))
            for address in own_samples()[:_SAMPLES]:
                with contextlib.suppress(OSError):  # it is gone, or a table's that is not used
                    found.append(stack.enter_context(socket.create_server((address, 0))))
        yield found


def _order(
    directory: VmDirectory,
    candidate: Isolation,
    users: tuple[int, ...],
    listeners: Sequence[socket.socket],
) -> dict[str, Any]:
    network = network_order(directory, candidate, users=users)
    order = sandbox.order(
        directory, candidate, users=users, limits=Limits(disk_mb=0), network=network
    )
    order["env"]["RUNYARD_TRIAL_CLOSED"] = "yes" if candidate.closed else ""
    targets = [":".join(map(str, each.getsockname())) for each in listeners]
    order["env"]["RUNYARD_TRIAL_TARGETS"] = " ".join(targets)
    return order


def _is_reached(listener: socket.socket) -> bool:
    """Whether a connection arrived, even one whose guest got no reply."""
    listener.setblocking(False)
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def _failure(directory: VmDirectory) -> str:
    """What was wrong with a trial whose guest has ended; empty if nothing."""
    ended = directory.ended()
    text = ""
    with contextlib.suppress(FileNotFoundError):  # of a guest that wrote nothing
        text = (directory.state / "console.log").read_text(encoding="utf-8", errors="replace")
    lines = text.strip().splitlines()
    if ended is not None and ended.exit_code == 0 and _ONLY_MARK in lines:
        return ""
    if lines:
        return lines[-1][:200]
    return ended.exit_reason[:200] if ended else "the trial's shim was killed"


# The guest of a trial: its folders exist, its job is another user if it should be, and cannot read the token. If user
# namespaces should be refused, it requests one. With a network of its own it has a way out, to which the host's own
# sockets do not belong: neither on loopback nor at its addresses nor at the gateway's. Of a connection to loopback that
# is bound to the way out no reply comes back: the trial looks whether it arrived. The gateway's response shows that it
# was handled.
_GUEST = f"""#!/bin/sh
set -e
echo 0 >"$RUNYARD_STATUS_DIR/runner-rc"
test -r "$RUNYARD_ENV_DIR/sa_token"
cd "$RUNYARD_WORK_DIR"
awk 'BEGIN {{ exit 0 }}'
if [ -n "$RUNYARD_JOB_USER" ]; then
    test -n "$RUNYARD_PYTHON" || {{ echo "no Python that the job's user can run" >&2; exit 1; }}
    "$RUNYARD_PYTHON" -I -S "$RUNYARD_VM_DIR/image/become.py" "$RUNYARD_JOB_USER" /bin/sh -c '
        : >"$RUNYARD_WORK_DIR/made" && ! cat "$RUNYARD_ENV_DIR/sa_token" 2>/dev/null'
elif [ -n "$RUNYARD_PYTHON" ]; then
    "$RUNYARD_PYTHON" -I -S -c pass
fi
if [ -n "$RUNYARD_TRIAL_CLOSED" ]; then
    "$RUNYARD_PYTHON" -I -S -c '
import ctypes, sys
sys.exit(ctypes.CDLL(None).unshare(0x10000000) == 0)' || {{ echo "a user namespace was granted inside" >&2; exit 1; }}
fi
if [ -n "$RUNYARD_TRIAL_TARGETS" ]; then
    "$RUNYARD_PYTHON" -I -S - $RUNYARD_TRIAL_TARGETS <<'END'
import socket, struct, sys
with open("/proc/net/route") as file:
    routes = [line.split() for line in file.readlines()[1:]]
gates = [socket.inet_ntoa(struct.pack("<L", int(each[2], 16))) for each in routes if each[1] == "00000000"]
if not gates:
    sys.exit("the network has no way out")
targets = [(address, int(port)) for address, port in (each.split(":") for each in sys.argv[1:])]
port = targets[0][1]
bound = socket.socket()
bound.setblocking(False)
try:
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"tap0")
    bound.connect(("127.0.0.1", port))
except OSError:
    pass
for target in (*targets, *((gate, port) for gate in gates)):
    with socket.socket() as link:
        link.settimeout(5)
        try:
            link.connect(target)
        except OSError:
            continue
    sys.exit(f"this machine was reached at {{target[0]}}")
END
fi
echo {_ONLY_MARK}
"""


def _with_python(isolation: Isolation, *, public: bool) -> Isolation:
    """Adds a Python for guests and its prefix. `public`: one that any user of this host can run."""
    own = Path(getattr(sys, "_base_executable", "") or sys.executable).resolve()
    python, prefix = "", ""
    if not public or _for_all(own):
        python, prefix = str(own), str(Path(sys.base_prefix).resolve())
    else:
        for other in (Path("/usr/bin/python3"), Path("/usr/local/bin/python3")):
            if other.exists() and _for_all(other.resolve()):
                python, prefix = str(other), "/usr"
                break
    return _replace(isolation, guest_python=python, guest_prefix=prefix)


def _for_all(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return all(part.stat().st_mode & 0o001 for part in (path, *path.parents))
    return False
