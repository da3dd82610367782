"""Find out how far VMs can be kept apart on this machine.

It believes nothing that it has not tried: it builds a VM's directory, runs a guest in it in each way that it knows,
best first, and takes the first in which the guest could do its work and its job, if it is another user, could not read
the token. Where nothing better works the answer is "none", with the reasons.
"""

import asyncio
import contextlib
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Literal

import msgspec

from runyard import proc
from runyard.vm.contract import VmError
from runyard.vm.process import sandbox, staging
from runyard.vm.process.isolation import REGISTRY, UID_BASE, Isolation, Limits
from runyard.vm.process.users import claim

_PATIENCE = 30.0
_ONLY_MARK = "runyard-guest-ran"
_but = msgspec.structs.replace


async def probe_isolation(
    home: Path,
    *,
    want: Literal["auto", "none"] = "auto",
    uid_base: int = UID_BASE,
    registry: str = REGISTRY,
    cgroup: Path | None = None,
) -> Isolation:
    """The best way to keep VMs apart that works here, for VMs under `home`; `cgroup` was delegated to us."""
    home.mkdir(parents=True, exist_ok=True)
    group, controllers = await asyncio.to_thread(_probe_cgroup, cgroup)
    refused: list[str] = []
    for candidate in _candidates(want, Isolation(uid_base=uid_base, registry=registry)):
        candidate = _but(candidate, cgroup=group, controllers=controllers)
        trouble = await _trial(home, candidate)
        if not trouble:
            why = f" ({'; '.join(refused)})" if refused else ""
            return _but(
                candidate, detail=candidate.detail + why, limits=_limits_in_words(candidate)
            )
        refused.append(f"not {candidate.detail}: {trouble}")
    return _with_python(Isolation(detail="; ".join(refused)), public=False)


def _candidates(want: str, base: Isolation) -> list[Isolation]:
    """Every way that could work here, best first."""
    root, linux = os.geteuid() == 0, sys.platform == "linux"
    bwrap = (shutil.which("bwrap") if want == "auto" and linux else None) or ""
    plain = _with_python(base, public=False)
    boxed = _but(plain, kind="bwrap", bwrap=bwrap)
    owned = _with_python(plain, public=True)
    words = "no sandbox: VMs run as we do and can see each other's files"
    if want == "auto" and linux and not bwrap:
        words += " (install bubblewrap for more)"
    pair = "with users of its own for each VM's poller and job"
    ways = [
        (bool(bwrap) and root, _but(boxed, users="pair", detail=f"bwrap, {pair}")),
        (bool(bwrap), _but(boxed, user_namespace=True, detail="bwrap, all VMs as one user")),
        (root and linux, _but(owned, users="pair", detail=f"no sandbox, but {pair}")),
        (
            root,
            _but(owned, users="one", detail="no sandbox, but with a user of its own for each VM"),
        ),
        (True, _but(plain, detail=words)),
    ]
    return [candidate for possible, candidate in ways if possible]


async def _trial(home: Path, candidate: Isolation) -> str:
    """Run a guest that checks its own surroundings; empty if all was well, else what was wrong."""
    path = Path(tempfile.mkdtemp(prefix=".probe-", dir=home))
    try:
        users = claim(candidate, path)
        place = staging.skeleton(path / "vm", env=(), token="secret")
        place.image.mkdir()
        (place.image / "boot.sh").write_text(_GUEST, encoding="utf-8")
        (place.image / "boot.sh").chmod(0o755)
        become = Path(__file__).parent.parent / "guest" / "become.py"
        shutil.copyfile(become, place.image / "become.py")
        path.chmod(0o711)
        await staging.give(place, users)
        order = sandbox.order(place, candidate, users=users, limits=Limits())
        words = [word.replace("{info}", "9") for word in order["argv"]]
        argv = ["/bin/sh", "-c", 'exec "$@" 9>/dev/null', "sh", *words]
        done = await proc.run(argv, timeout=_PATIENCE, env=order["env"], cwd="/")
        if done.code == 0 and _ONLY_MARK.encode() in done.stdout:
            return ""
        said = done.stderr.decode(errors="replace").strip().splitlines()
        return said[-1][:200] if said else f"it ended with {done.code}"
    except (OSError, proc.ProcError, VmError) as error:
        return str(error)[:200]
    finally:
        await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)


# The guest of a trial: its folders are there, its job is another user if it should be, and sees no token.
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
echo {_ONLY_MARK}
"""


def _with_python(isolation: Isolation, *, public: bool) -> Isolation:
    """With a Python for guests, and where it lies. `public`: one that any user of this host can run."""
    own = Path(getattr(sys, "_base_executable", "") or sys.executable).resolve()
    python, prefix = "", ""
    if not public or _for_all(own):
        python, prefix = str(own), str(Path(sys.base_prefix).resolve())
    else:
        for other in (Path("/usr/bin/python3"), Path("/usr/local/bin/python3")):
            if other.exists() and _for_all(other.resolve()):
                python, prefix = str(other), "/usr"
                break
    return _but(isolation, guest_python=python, guest_prefix=prefix)


def _for_all(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return all(part.stat().st_mode & 0o001 for part in (path, *path.parents))
    return False


def _probe_cgroup(given: Path | None) -> tuple[str, tuple[str, ...]]:
    """A control group (version 2) in which we may make others and put processes, and what can be limited there."""
    own = _own_cgroup() if given is None else given
    if own is None:
        return "", ()
    trial = own / f"runyard-probe-{os.getpid()}"
    try:
        trial.mkdir()
    except OSError:
        return "", ()
    try:
        os.close(os.open(trial / "cgroup.kill", os.O_WRONLY))
        os.close(os.open(trial / "cgroup.procs", os.O_WRONLY))
        words = (trial / "cgroup.controllers").read_text(encoding="ascii").split()
        return str(own), tuple(word for word in ("memory", "pids") if word in words)
    except OSError:
        return "", ()
    finally:
        with contextlib.suppress(OSError):
            trial.rmdir()


def _own_cgroup() -> Path | None:
    with contextlib.suppress(OSError):
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
        points = [line.split()[4] for line in mounts if " - cgroup2 " in line]
        groups = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
        inside = [line[3:] for line in groups if line.startswith("0::")]
        if points and inside:
            return Path(points[0] + inside[0].rstrip("/"))
    return None


def _limits_in_words(isolation: Isolation) -> str:
    held = ["size of a file", "open files", "disk (watched)"]
    if isolation.counts_processes:
        held.append("processes")
    if "memory" in isolation.controllers:
        held.append("memory")
    missing = [name for name in ("processes", "memory") if name not in held]
    words = "held: " + ", ".join(held)
    return words + (f"; not held: {', '.join(missing)}" if missing else "")
