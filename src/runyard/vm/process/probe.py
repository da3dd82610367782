"""Probes how far VMs can be isolated on this machine.

Every kind of isolation is tried, best first: a VM's directory is built and a guest runs in it. The first kind is used
in which the guest could do its work, its job could not read the token (if it is another user), and user namespaces
were refused where they should be. If nothing better works the result is "none", with the reasons.
`cgroup_probe.py` probes control groups.

A trial is a directory in the home whose name begins with a dot; the home is locked during a trial, so that only what a
killed probe has left is removed.
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
from runyard.vm.process.cgroup_probe import probe_cgroups
from runyard.vm.process.folders import holding, remove
from runyard.vm.process.isolation import REGISTRY, UID_BASE, Isolation
from runyard.vm.process.limits import Limits, describe, limit_statuses, unenforced
from runyard.vm.process.users import claim, tidy

_TIMEOUT = 30.0
_TRIAL = ".probe-"
_ONLY_MARK = "runyard-guest-ran"
_replace = msgspec.structs.replace


async def probe_isolation(
    home: Path,
    *,
    want: Literal["auto", "none"] = "auto",
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
            return _described(candidate, refused, found.why)
        refused.append(f"not {candidate.detail}: {failure}")
    return _described(_with_python(Isolation(), public=False), refused, found.why)


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
    bwrap = (shutil.which("bwrap") if want == "auto" and linux else None) or ""
    plain = _with_python(base, public=False)
    boxed = _replace(plain, kind="bwrap", bwrap=bwrap)
    owned = _with_python(plain, public=True)
    words = "no sandbox: VMs run as the agent's user and can read each other's files"
    if want == "auto" and linux and not bwrap:
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
        order = sandbox.order(directory, candidate, users=users, limits=Limits())
        numbers = {"{info}": "9", sandbox.KNOBS: "8"}
        words = [sandbox.filled(word, numbers) for word in order["argv"]]
        knobs = f" 8<{sandbox.KNOBS_AT}" if order["knobs"] else ""
        argv = ["/bin/sh", "-c", f'exec "$@" 9>/dev/null{knobs}', "sh", *words]
        env = {**order["env"], "RUNYARD_TRIAL_CLOSED": "yes" if candidate.closed else ""}
        done = await proc.run(argv, timeout=_TIMEOUT, env=env, cwd="/")
        if done.code == 0 and _ONLY_MARK.encode() in done.stdout:
            return ""
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else f"the trial's guest ended with {done.code}"
    except (OSError, proc.ProcError, VmError) as error:
        return str(error)[:200]


# The guest of a trial: its folders exist, its job is another user if it should be, and cannot read the token. If user
# namespaces should be refused, it requests one.
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
