"""Provides the real result bundles, if they are available: each is unzipped once.

They are beside the repository (`../shared/fixtures/xcresult`). A test that needs a missing bundle is skipped;
general behaviour is tested with generated bundles.
"""

import atexit
import json
import shutil
import tempfile
import zipfile
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT.parent / "shared" / "fixtures" / "xcresult"

Figures = dict[str, object]


def names() -> list[str]:
    """The names of all available bundles."""
    return sorted(path.name.removesuffix(".xcresult.zip") for path in HOME.glob("*.xcresult.zip"))


def parameters() -> list[object]:
    """Parameters for parametrize: every available bundle, or one skipped parameter."""
    found = names()
    absent = pytest.param("none", marks=pytest.mark.skip(reason="no real result bundles here"))
    return list(found) if found else [absent]


@cache
def _scratch() -> Path:
    scratch = Path(tempfile.mkdtemp(prefix="runyard-bundles-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    return scratch


@cache
def bundle(name: str) -> Path:
    """The bundle's directory. It is shared by all tests of the process: copy it to change it."""
    archive = HOME / f"{name}.xcresult.zip"
    if not archive.is_file():
        pytest.skip(f"the bundle {name} is not here")
    target = _scratch() / name
    with zipfile.ZipFile(archive) as file:
        file.extractall(target)
    (found,) = target.glob("*.xcresult")
    return found


def archive(name: str) -> Path:
    """The ZIP file of the bundle."""
    path = HOME / f"{name}.xcresult.zip"
    if not path.is_file():
        pytest.skip(f"the bundle {name} is not here")
    return path


def expected(path: str) -> Path:
    """Read the expected output of another tool for a bundle."""
    found = HOME / "expected" / path
    if not found.is_file():
        pytest.skip(f"{path} is not here")
    return found


@cache
def figures() -> dict[str, Figures]:
    """The expected figures by bundle; empty where there are none."""
    path = HOME / "figures.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


DESCRIBES = frozenset(
    {
        "repo",
        "commit",
        "path",
        "licence",
        "xcode",
        "database",
        "pruned",
        "zip_bytes",
        "expected",
        "confirmed_by",
    }
)
"""Keys of the expected figures that describe the origin of a bundle."""


def reader_figures(figures: Figures) -> Figures:
    """Return the figures without those that a reader cannot compute."""
    return {key: value for key, value in figures.items() if key not in DESCRIBES}
