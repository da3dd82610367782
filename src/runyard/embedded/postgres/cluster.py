"""Creates a new database cluster quickly: `initdb` once, then copies of its result.

`initdb` takes most of a second; a copy takes a tenth. The first cluster of each server release is stored as a
template in a cache directory. Every reader of the cache can read the template's password, so the supervisor changes
it in every new cluster before the cluster is used.

Invariants: a cluster or a template appears under its name complete or not at all (rename at the end);
a broken or unwritable cache costs time and nothing else.
"""

import os
import secrets
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from runyard.embedded.postgres import process
from runyard.embedded.postgres.errors import EmbeddedPostgresError
from runyard.embedded.postgres.placement import Placement
from runyard.files import write_whole

USER = "runyard"
_INITDB_TIMEOUT = 120.0


def default_cache(environ: Mapping[str, str]) -> Path:
    """The user's cache home, after the XDG rule."""
    base = environ.get("XDG_CACHE_HOME", "")
    root = Path(base) if base.startswith("/") else Path.home() / ".cache"
    return root / "runyard" / "postgres"


def create(placement: Placement, *, cache: Path, durable: bool) -> str:
    """Creates `home/cluster`, owned by the server's user; returns its first password."""
    partial = placement.home / "cluster.partial"
    shutil.rmtree(partial, ignore_errors=True)
    kind = "durable" if durable else "fast"
    template = cache / f"{placement.binaries.version}-{kind}-checksums"
    password = _from_template(template, partial)
    if password is None:
        password = _initdb(placement, partial, durable=durable)
        _store_template(partial, password, template)
    own(partial, placement.identity)
    if durable:
        _sync(placement, partial)
    partial.rename(placement.home / "cluster")
    return password


def own(folder: Path, identity: process.Identity) -> None:
    """Changes the owner of a tree to the server's user; checks the top only, because all of it has one owner."""
    owner, group = identity.owner
    if os.geteuid() != 0 or folder.stat().st_uid == owner:
        return
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.lchown(os.path.join(root, name), owner, group)  # noqa: PTH118 faster for a thousand files
    os.lchown(folder, owner, group)


def _from_template(template: Path, partial: Path) -> str | None:
    """Copies the template; None if there is no complete one."""
    try:
        password = (template / "password").read_text(encoding="utf-8")
        _copy(template / "cluster", partial)
    except OSError:
        shutil.rmtree(partial, ignore_errors=True)
        return None
    return password


def _initdb(placement: Placement, partial: Path, *, durable: bool) -> str:
    """Runs `initdb` as the server's user; the password goes through a file, never a command line."""
    password = secrets.token_urlsafe(24)
    partial.mkdir(mode=0o700)
    secret = placement.home / "initdb.password"
    try:
        write_whole(secret, password)
        if os.geteuid() == 0:
            for path in (partial, secret):
                os.chown(path, *placement.identity.owner)
        argv = [placement.binaries.program("initdb"), "-D", str(partial), f"--username={USER}"]
        argv += ["--encoding=UTF8", "--locale=C", "--auth=scram-sha-256", "--no-sync"]
        argv += ["--data-checksums"]  # so that a damaged page is an error, and not wrong data
        argv += [f"--pwfile={secret}", *([] if durable else ["--wal-segsize=1"])]
        ended = process.run(argv, identity=placement.identity, cwd=partial, timeout=_INITDB_TIMEOUT)
    finally:
        secret.unlink(missing_ok=True)
    if ended.returncode != 0:
        raise EmbeddedPostgresError(
            f"initdb failed with code {ended.returncode} for {partial.parent}:\n"
            f"{(ended.stdout + ended.stderr)[-2000:]}"
        )
    return password


def _store_template(partial: Path, password: str, template: Path) -> None:
    """Stores a copy in the cache, if that is possible; a half-written template is never visible."""
    making = template.with_name(f"{template.name}.{os.getpid()}.partial")
    try:
        making.mkdir(parents=True, mode=0o700)
        _copy(partial, making / "cluster")
        write_whole(making / "password", password)
        making.rename(template)
    except OSError:  # read-only home, or another process was faster
        shutil.rmtree(making, ignore_errors=True)


def _copy(source: Path, target: Path) -> None:
    """Copies a tree; the system's `cp` is twice as fast as Python."""
    if not source.is_dir():
        raise FileNotFoundError(source)
    program = shutil.which("cp")
    if program is None:
        shutil.copytree(source, target, symlinks=True)
        return
    ended = subprocess.run(
        [program, "-R", str(source), str(target)], capture_output=True, check=False
    )
    if ended.returncode != 0:
        raise OSError(f"copy failed: {ended.stderr.decode(errors='replace')[-500:]}")


def _sync(placement: Placement, partial: Path) -> None:
    """Syncs the cluster once, because it was written without syncing."""
    argv = [placement.binaries.program("initdb"), "--sync-only", "-D", str(partial)]
    ended = process.run(argv, identity=placement.identity, cwd=partial, timeout=_INITDB_TIMEOUT)
    if ended.returncode != 0:
        raise EmbeddedPostgresError(f"initdb --sync-only failed:\n{ended.stderr[-2000:]}")
