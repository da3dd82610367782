"""Decides which user runs the server, with which copy of the programs, and in which directory.

Postgres refuses to run as root. For a normal user there is nothing to decide. For root:

1. `nobody` can reach the data directory and the programs: run as nobody.
2. Something lies below a private directory (a home with mode 0700, a virtual environment in it): run in
   a user namespace that maps us to nobody. The server has no capability and its files stay ours; but as their
   owner it can still open what root owns, so the first way is the better one. It is tried before it is used,
   because some kernels and containers refuse it.
3. Refused: the cluster and a copy of the programs go below the system's temporary directory, run as
   nobody, and `notice` says so, because such a directory may be emptied at a reboot.
"""

import hashlib
import os
import pwd
import stat
import sys
import tempfile
from pathlib import Path

import msgspec

from runyard.embedded.postgres import process
from runyard.embedded.postgres.binaries import Binaries, copy_to
from runyard.embedded.postgres.errors import EmbeddedPostgresError
from runyard.embedded.postgres.process import Identity

_WITH_NAMESPACES = ("linux",)  # a tuple, so that the types are checked on every platform
_PROBE_TIMEOUT = 20.0


class Placement(msgspec.Struct, frozen=True):
    """`home` holds the cluster and the socket; `notice` is for the user, empty when nothing is unusual."""

    identity: Identity
    binaries: Binaries
    home: Path
    notice: str = ""


def choose(binaries: Binaries, data_dir: Path, *, namespaces: bool = True) -> Placement:
    """Chooses user and directory; `namespaces=False` acts as if the kernel refused user namespaces."""
    nobody = _nobody()
    inside = Identity(kind="namespace", uid=nobody.uid, gid=nobody.gid)
    if os.geteuid() != 0:
        direct = Identity(kind="direct", uid=os.geteuid(), gid=os.getegid())
        # initdb requires a name for its user; a container's arbitrary uid has none.
        fits = _has_name(direct.uid) or not (namespaces and namespace_works(binaries, inside))
        return Placement(identity=direct if fits else inside, binaries=binaries, home=data_dir)
    data_open, programs_open = reachable(data_dir, nobody), reachable(binaries.bin, nobody)
    if data_open and programs_open:
        return Placement(identity=nobody, binaries=binaries, home=data_dir)
    if namespaces and namespace_works(binaries, inside):
        return Placement(identity=inside, binaries=binaries, home=data_dir)
    shared = _shared_directory(nobody)
    usable = binaries if programs_open else copy_to(binaries, shared)
    if data_open:
        return Placement(identity=nobody, binaries=usable, home=data_dir)
    home = shared / hashlib.sha256(str(data_dir).encode()).hexdigest()[:16]
    notice = (
        f"the database lives in {home}, not in {data_dir}: an unprivileged user cannot reach that "
        "directory and this kernel refuses user namespaces. The system may empty its temporary "
        "directory at a reboot; choose a data directory outside private homes to keep the data"
    )
    return Placement(identity=nobody, binaries=usable, home=home, notice=notice)


def reachable(path: Path, identity: Identity) -> bool:
    """Whether that user may pass through every existing directory down to `path`."""
    return all(
        _may_enter(place.stat(), identity) for place in (path, *path.parents) if place.is_dir()
    )


def namespace_works(binaries: Binaries, inside: Identity) -> bool:
    """Starts a program in a user namespace to find out whether that is allowed."""
    if not sys.platform.startswith(_WITH_NAMESPACES):
        return False
    argv = [binaries.program("postgres"), "--version"]
    return process.run(argv, identity=inside, cwd=Path("/"), timeout=_PROBE_TIMEOUT).returncode == 0


def _may_enter(info: os.stat_result, identity: Identity) -> bool:
    if info.st_uid == identity.uid:
        return bool(info.st_mode & stat.S_IXUSR)
    if info.st_gid == identity.gid:
        return bool(info.st_mode & stat.S_IXGRP)
    return bool(info.st_mode & stat.S_IXOTH)


def _shared_directory(nobody: Identity) -> Path:
    """A directory of ours below a temporary directory that every user can reach.

    Its name is predictable, so another user may have created it first: only we may be able to write to it.
    """
    for base in (Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")):  # noqa: S108 checked below
        if base.is_dir() and reachable(base, nobody):
            break
    else:
        raise EmbeddedPostgresError("no temporary directory that an unprivileged user can reach")
    shared = base / "runyard-postgres"
    try:
        shared.mkdir(mode=0o755)
        shared.chmod(0o755)
    except FileExistsError:
        info = shared.lstat()
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o022:
            raise EmbeddedPostgresError(
                f"{shared} is not a directory that only we may write; remove it"
            ) from None
    return shared


def _nobody() -> Identity:
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        return Identity(kind="drop", uid=65534, gid=65534)
    return Identity(kind="drop", uid=entry.pw_uid, gid=entry.pw_gid)


def _has_name(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True
