"""Builds a shim's launch order: the command that runs a guest, its environment, its limits.

Inside bwrap a guest sees: the system's programs and libraries, read-only; the files of /etc for name resolution,
certificates and the time zone; its own devices and processes; its own folders under /vm. It sees nothing else of the
host's disks. Its network is its own (`network.py`) or the host's.

Nothing here is secret: the host's users can read arguments and the order's file.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from runyard.vm.process.isolation import Isolation
from runyard.vm.process.layout import VmDirectory
from runyard.vm.process.limits import BY_USER, Limits, process_limit_by
from runyard.vm.shim.processes import MARK

PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
KNOBS = "{knobs}"  # in an argument: stands for the number of this open directory
EXEC = "{exec}"  # the same for the socket on which the guest takes commands from the host
KNOBS_AT = "/proc/sys/user"
_FIRST = Path(__file__).with_name("guest_init.py")
_FIRST_INSIDE = "/run/runyard/guest_init.py"
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# Of the directory in which Python is installed. The others may be a user's own: of ~/.local, ~/.local/share.
_PYTHON = ("bin", "lib", "lib64")
_ETC = (
    *(
        "alternatives",
        "ca-certificates",
        "group",
        "host.conf",
        "hosts",
        "ld.so.cache",
        "ld.so.conf",
    ),
    *("ld.so.conf.d", "localtime", "mime.types", "nsswitch.conf", "passwd", "pki", "protocols"),
    *("resolv.conf", "services", "ssl", "timezone"),
)


def order(
    directory: VmDirectory,
    isolation: Isolation,
    *,
    users: tuple[int, ...],
    limits: Limits,
    cgroup: str = "",
    network: dict[str, Any] | None = None,
    polling: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The shim's launch order, as written to state/order.json. With `polling` the guest has no program of its own."""
    inside = isolation.kind == "bwrap"
    root = "/vm" if inside else str(directory.path)
    boot = directory.image / "boot.sh"
    program = [f"{root}/image/boot.sh"]
    # With its own users the guest needs one user namespace, so guest_init.py forbids further ones, not bwrap.
    knobs = isolation.closed and len(users) == 2
    if not os.access(boot, os.X_OK):
        program.insert(0, "/bin/sh")
    first = {
        "argv": [] if polling else program,
        "cwd": f"{root}/work",
        "users": list(users),
        "limits": _rlimits(isolation, limits),
        "knobs": KNOBS if knobs else "",
        "exec": EXEC,
        "network": ["{here}", "{go}"] if network else [],
    }
    python = isolation.guest_python if inside else sys.executable
    argv = [python, "-I", "-S", _FIRST_INSIDE if inside else str(_FIRST), json.dumps(first)]
    return {
        "argv": [*_bwrap(directory, isolation, network), *argv] if inside else argv,
        "info": inside,
        "knobs": KNOBS_AT if knobs else "",
        "env": {
            **_environment(directory, isolation, root=root, users=users),
            **(network["env"] if network else {}),
        },
        "helper_env": {"PATH": PATH, "LC_ALL": "C", MARK: str(directory.path)},
        "network": network,
        "mark": str(directory.path),
        "users": list(users),
        "status": str(directory.status),
        "cgroup": cgroup,
        "disk_dirs": [
            str(path) for path in (directory.work, directory.tmp, directory.status, directory.run)
        ],
        "disk_bytes": limits.disk_mb << 20,
        "watch_every": limits.disk_watch_seconds,
        "polling": polling,
    }


def _environment(
    directory: VmDirectory, isolation: Isolation, *, root: str, users: tuple[int, ...]
) -> dict[str, str]:
    return {
        "PATH": PATH,
        "HOME": f"{root}/work",
        "TMPDIR": "/tmp" if isolation.kind == "bwrap" else f"{root}/tmp",  # noqa: S108 the guest's own, not the host's
        "LANG": "C.UTF-8",
        "RUNYARD_VM": directory.name,
        MARK: str(directory.path),
        "RUNYARD_VM_DIR": root,
        "RUNYARD_ENV_DIR": f"{root}/env",
        "RUNYARD_STATUS_DIR": f"{root}/status",
        "RUNYARD_RUN_DIR": f"{root}/run",
        "RUNYARD_WORK_DIR": f"{root}/work",
        "RUNYARD_PYTHON": isolation.guest_python,
        "RUNYARD_JOB_USER": "1:1" if len(users) == 2 else "",
    }


def _rlimits(isolation: Isolation, limits: Limits) -> dict[str, int]:
    found = {"CORE": 0}
    if limits.disk_mb:
        found["FSIZE"] = limits.disk_mb << 20
    if limits.open_files:
        found["NOFILE"] = limits.open_files
    if limits.pids and process_limit_by(isolation.mechanisms) == BY_USER:
        found["NPROC"] = limits.pids
    return found


def _bwrap(
    directory: VmDirectory, isolation: Isolation, network: dict[str, Any] | None
) -> list[str]:
    argv = [isolation.bwrap, "--die-with-parent", "--as-pid-1", "--info-fd", "{info}"]
    if network:  # the shim connects it while guest_init.py waits
        argv += ["--unshare-net"]
    argv += ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    argv += ["--hostname", directory.name[:63], "--cap-drop", "ALL"]
    if isolation.user_namespace:
        argv += ["--unshare-user", *(["--disable-userns"] if isolation.closed else [])]
    else:  # the init process needs them to map the guest's users, to switch to them and to signal them
        argv += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_KILL"]
    argv += ["--proc", "/proc", "--dev", "/dev", "--bind", str(directory.tmp), "/tmp"]  # noqa: S108 the guest's own, not the host's
    for path in _SYSTEM:
        if Path(path).is_symlink():
            argv += ["--symlink", str(Path(path).readlink()), path]
        elif Path(path).is_dir():
            argv += ["--ro-bind", path, path]
    argv += _passable("/etc/passwd")
    for name in _ETC:
        source = f"{directory.net}/{name}" if network and name == "resolv.conf" else f"/etc/{name}"
        argv += ["--ro-bind-try", source, f"/etc/{name}"]
    prefix = isolation.guest_prefix
    if prefix and not prefix.startswith("/usr"):
        argv += _passable(f"{prefix}/bin")
        for name in _PYTHON:
            argv += ["--ro-bind-try", f"{prefix}/{name}", f"{prefix}/{name}"]
    argv += [*_passable(_FIRST_INSIDE), *_passable("/vm/image")]
    argv += [
        "--ro-bind",
        str(_FIRST),
        _FIRST_INSIDE,
        "--ro-bind",
        str(directory.image),
        "/vm/image",
    ]
    for folder in (directory.env, directory.status, directory.run, directory.work):
        argv += ["--bind", str(folder), f"/vm/{folder.name}"]
    if network:
        argv += ["--ro-bind", str(directory.net), "/vm/net"]
    return [*argv, "--chdir", "/", "--"]


def _passable(path: str) -> list[str]:
    """The folders above a mounted path: bwrap would create them readable for root alone."""
    above = reversed(Path(path).parents[:-1])
    return [word for folder in above for word in ("--perms", "0755", "--dir", str(folder))]
