"""Runs mypy for one platform, with a cache that a fresh clone finds in the user's cache directory.

    typecheck.py linux

mypy compares the hash of every source with what its cache was made from and checks anew what differs, so a cache of
another checkout is correct for this one, only less complete. A checkout without a cache takes a copy of the shared one;
a run that found no error puts its own in the shared one's place, whole, by a rename. The name holds the versions of
mypy and Python: another version starts from nothing.
"""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

# The tests run on Linux; what ships is checked for both.
FILES = {"linux": ("src", "tools", "tests", "benches"), "darwin": ("src", "tools")}


def shared(target: str) -> Path:
    """Where the checkouts of this user share the cache for a platform."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    made_by = f"mypy-{version('mypy')}-python-{platform.python_version()}"
    return Path(base) / "runyard" / "mypy" / made_by / target


def take(kept: Path, local: Path) -> None:
    """Begin with a copy of the shared cache; one that another process replaces meanwhile is done without."""
    if local.exists() or not kept.is_dir():
        return
    try:
        shutil.copytree(kept, local)
    except (OSError, shutil.Error):
        shutil.rmtree(local, ignore_errors=True)


def keep(local: Path, kept: Path) -> None:
    """Put a copy of this checkout's cache in the shared one's place; a failure costs only time, later."""
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent, ignore_cleanup_errors=True) as folder:
            fresh, old = Path(folder) / "fresh", Path(folder) / "old"
            shutil.copytree(local, fresh)
            if kept.exists():
                kept.rename(old)
            fresh.rename(kept)
    except (OSError, shutil.Error) as error:
        print(f"the type checker's cache was not kept in {kept}: {error}", file=sys.stderr)


def main(target: str) -> int:
    """Check the types for a platform; returns mypy's status."""
    local = Path(".mypy_cache") / target
    fresh = not local.exists()
    take(shared(target), local)
    argv = [
        sys.executable,
        "-m",
        "mypy",
        "--platform",
        target,
        "--cache-dir",
        str(local),
        *FILES[target],
    ]
    status = subprocess.run(argv, check=False).returncode
    if status == 0 and fresh:
        keep(local, shared(target))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
