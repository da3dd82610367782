"""A real systemd user manager of our own, where the machine was not booted with systemd.

It runs in namespaces of its own for mounts and control groups, so it takes a leaf of this machine's control groups
(version 2) for the root, and finds a `/run/systemd/system`. A `systemctl` on a PATH of our own enters them, because the
real one looks for that directory, too. Everything in it is killed with its control group.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.embedded.up.upsupport import until

SYSTEMD = Path("/usr/lib/systemd/systemd")
INSIDE = """
set -e
echo $$ > "$1/cgroup.procs"
exec unshare --mount --cgroup sh -c '
set -e
mount --make-rprivate /
umount -l /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system
exec "$1" --user --unit=basic.target --log-target=console --log-level=notice
' sh "$2"
"""


def missing() -> str:
    """What this machine lacks for it; empty if nothing."""
    if os.geteuid() != 0:
        return "root, to make namespaces"
    if not SYSTEMD.exists() or shutil.which("systemctl") is None:
        return "systemd"
    if _unified() is None:
        return "a writable control group of version 2"
    return ""


def _unified() -> Path | None:
    for folder in (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")):
        if (folder / "cgroup.procs").exists() and os.access(folder, os.W_OK):
            return folder
    return None


@contextlib.contextmanager
def user_manager() -> Iterator[dict[str, str]]:
    """Run it; gives the environment with which `systemctl --user` reaches it."""
    above = _unified()
    assert above is not None
    with tempfile.TemporaryDirectory(prefix="ry-sd-") as name:
        root, group = Path(name), above / f"runyard-test-{os.getpid()}"
        runtime = root / "run"
        runtime.mkdir(mode=0o700)
        (root / "home").mkdir()
        environ = {
            "HOME": str(root / "home"),
            "PATH": os.environ["PATH"],
            "XDG_RUNTIME_DIR": str(runtime),
        }
        group.mkdir()
        argv = ["sh", "-c", INSIDE, "sh", str(group), str(SYSTEMD)]
        log = (root / "log").open("w")
        process = subprocess.Popen(
            argv, env=environ, stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
        try:
            _systemctl(root / "bin", process.pid)
            environ = {**environ, "PATH": f"{root / 'bin'}:{environ['PATH']}"}
            until(lambda: _running(environ), within=20, what=f"systemd, see {root / 'log'}")
            yield environ
        finally:
            _kill(group)
            process.wait()
            log.close()
            _remove(group)


def _systemctl(folder: Path, pid: int) -> None:
    folder.mkdir()
    program = folder / "systemctl"
    real = shutil.which("systemctl")
    program.write_text(f'#!/bin/sh\nexec nsenter --mount --target {pid} -- {real} "$@"\n')
    program.chmod(0o755)


def _running(environ: dict[str, str]) -> bool:
    argv = ["sh", "-c", "systemctl --user is-system-running"]
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)
    return done.stdout.strip() in {"running", "degraded"}


def _kill(group: Path) -> None:
    (group / "cgroup.kill").write_text("1")
    until(lambda: "populated 0" in (group / "cgroup.events").read_text(), what="its end")


def _remove(group: Path) -> None:
    for folder, _, _ in sorted(os.walk(group), reverse=True):
        Path(folder).rmdir()
