"""Inspections: what is read from the file system and no program prints.

They only read. A slow disk may block them, so the runner calls each in a thread with a deadline.
"""

import contextlib
import fcntl
import grp
import os
import re
import stat
import struct
import sys
from collections.abc import Callable
from pathlib import Path

from runyard.hosts.doctor.plans.findings import (
    Facts,
    Folder,
    Kvm,
    LoginPassword,
    OwnVms,
    TartHome,
)

KCPASSWORD = Path("/etc/kcpassword")
_KEY = bytes.fromhex("7d895223d2bcddea")  # of a fixed, public obfuscation; as long as the mark
_SEALED = b"<sealed>"
_CGROUPS = Path("/sys/fs/cgroup")
_KVM = Path("/dev/kvm")
_BLOCK = 512


def nearest(path: Path) -> Path:
    """The path, or the nearest directory above it that exists."""
    for each in (path, *path.parents):
        if each.exists():
            return each
    return Path("/")


def data_directory(facts: Facts) -> Folder:
    """Who owns the data directory, and who may enter it."""
    root = Path(facts.data)
    exists = root.is_dir()
    place = root if exists else nearest(root)
    found = place.stat()
    return Folder(
        exists=exists,
        path=str(root.resolve()),
        owner=found.st_uid,
        mode=found.st_mode & 0o7777,
        writable=os.access(place, os.W_OK | os.X_OK),
        used=exists and os.access(root, os.R_OK) and any(root.iterdir()),
    )


def login_password(_: Facts) -> LoginPassword:
    """Whether the password of automatic login is stored, and for root whether macOS has rejected it.

    Only the mark of a rejected one is compared; no more of the file is read than its length.
    """
    if not KCPASSWORD.exists():
        return LoginPassword(exists=False)
    try:
        with KCPASSWORD.open("rb") as file:
            start = file.read(len(_SEALED))
    except PermissionError:
        return LoginPassword(exists=True)
    plain = bytes(byte ^ key for byte, key in zip(start, _KEY, strict=False))
    return LoginPassword(exists=True, sealed=plain == _SEALED)


def tart_home(facts: Facts) -> TartHome:
    """The VMs that run and the images that are there.

    tart holds a lock on the configuration of a VM that runs. An image is a directory named by its digest, to which
    the directories of tags link.
    """
    home = Path(facts.tart_home)
    running = [
        each.parent.name for each in sorted(home.glob("vms/*/config.json")) if is_locked(each)
    ]
    images = [
        (_reference(each.parent.relative_to(home / "cache" / "OCIs")), _bytes_of(each.parent))
        for each in sorted((home / "cache" / "OCIs").rglob("config.json"))
        if not each.parent.is_symlink()
    ]
    return TartHome(running=tuple(running), images=tuple(images))


def own_vms(facts: Facts) -> OwnVms:
    """The VMs of tart that `runyard up` or the agent has made here, by the records of their driver.

    A record exists before its VM does, and until it is deleted. One that cannot be read is an error: without it a job's
    VM would count as somebody else's.
    """
    homes = [Path(each) / "vm" for each in facts.agents]
    homes += [each / "vm" for each in _entries(Path(facts.data) / "hosts")]
    names = [
        each.name
        for home in homes
        for each in _entries(home / "tart" / "vms")
        if not each.name.startswith(".") and _is_there(each / "spec.json")
    ]
    return OwnVms(names=tuple(names))


def _entries(folder: Path) -> list[Path]:
    """What is in a directory; nothing if there is none."""
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_there(path: Path) -> bool:
    """Whether there is such a file; raises OSError where that cannot be seen."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def is_locked(path: Path) -> bool:
    """Whether another process holds a write lock on the file; taking none itself."""
    layout = "qqihh" if sys.platform == "darwin" else "hhqqi"
    whole = {"qqihh": (0, 0, 0, fcntl.F_WRLCK, 0), "hhqqi": (fcntl.F_WRLCK, 0, 0, 0, 0)}[layout]
    with contextlib.suppress(OSError), path.open("rb") as file:
        answer = struct.unpack(
            layout, fcntl.fcntl(file.fileno(), fcntl.F_GETLK, struct.pack(layout, *whole))
        )
        return bool(answer[layout.index("i") if layout == "qqihh" else -1])
    return False


def _reference(place: Path) -> str:
    *parts, digest = place.parts
    return f"{'/'.join(parts).replace('%3A', ':')}@{digest}"


def _bytes_of(folder: Path) -> int:
    return sum(each.stat().st_blocks * _BLOCK for each in folder.iterdir() if each.is_file())


def cgroup_delegated(_: Facts) -> bool | None:
    """Whether this user may divide the control group of this process; None if it has none of version 2."""
    found = re.search(
        r"^0::(/.*)$", Path("/proc/self/cgroup").read_text(encoding="utf-8"), re.MULTILINE
    )
    if found is None:
        return None
    own = _CGROUPS / found[1].lstrip("/")
    return os.access(own, os.W_OK) and os.access(own / "cgroup.procs", os.W_OK)


def kvm(_: Facts) -> Kvm:
    """Whether this user may use /dev/kvm, and which group may; `FileNotFoundError` if there is none."""
    found = _KVM.stat()
    group = ""
    if found.st_gid and found.st_mode & stat.S_IRGRP and found.st_mode & stat.S_IWGRP:
        with contextlib.suppress(KeyError):
            group = grp.getgrgid(found.st_gid).gr_name
    return Kvm(usable=os.access(_KVM, os.R_OK | os.W_OK), group=group)


INSPECTIONS: dict[str, Callable[[Facts], object]] = {
    "data-directory": data_directory,
    "login-password": login_password,
    "tart-home": tart_home,
    "own-vms": own_vms,
    "cgroup-delegated": cgroup_delegated,
    "kvm": kvm,
}
