"""Finds the bundle's directory in a path: a directory or an archive.

A directory is used in place and nothing is written. An archive is extracted to a private directory below the given
scratch directory, or below the system's temporary directory, and that directory is deleted when the caller is done.

The bundle is: the path itself if its name ends in `.xcresult`; else the first `*.xcresult` below it, nearest first and
then by name, so that the result is the same on every machine; else the path itself if it has an Info.plist. A
`*.xcresult` without Info.plist that contains another one is only a folder of that name; the inner one is used. Links
below the path are not followed.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runyard.xcresult.archives.extracting import extract
from runyard.xcresult.archives.limits import Limits
from runyard.xcresult.archives.meter import Check, no_check
from runyard.xcresult.archives.paths import is_bundle_name, is_old_summary
from runyard.xcresult.errors import BundleInvalid, TooLarge, UnsupportedFormat, XcresultNotFound
from runyard.xcresult.reader.budget import Budget

INFO = "Info.plist"


@contextmanager
def opened(
    path: Path,
    *,
    scratch: Path | None = None,
    limits: Limits = Limits(),  # noqa: B008  (frozen)
    check: Check = no_check,
    budget: Budget | None = None,
) -> Iterator[Path]:
    """Provide the directory of the bundle at or below `path` while the context lasts.

    `check` is called between two pieces of work; an exception that it raises ends the extraction. `budget` is that of
    the whole reading.
    """
    if path.is_dir():
        yield find_bundle(path, limits=limits, check=check)
        return
    with _private(scratch) as directory:
        extract(path, directory, limits=limits, check=check, budget=budget)
        yield find_bundle(directory, limits=limits, check=check)


def size_of(path: Path) -> int:
    """The size of an archive; 0 for a directory, or if there is nothing."""
    return path.stat().st_size if path.is_file() else 0


def find_bundle(
    root: Path,
    *,
    limits: Limits = Limits(),  # noqa: B008  (frozen)
    check: Check = no_check,
) -> Path:
    """Find the bundle at or below a directory."""
    bundle = root if is_bundle_name(root.name) else _first_below(root, limits, check)
    if bundle is not None and not _is_file(bundle / INFO):
        bundle = _first_below(bundle, limits, check) or bundle
    if bundle is None:
        if not _is_file(root / INFO):
            _refuse_old(root)
            raise XcresultNotFound(f"the input contains neither a *.xcresult nor an {INFO}")
        bundle = root
    if not (bundle / "Data").is_dir():
        _refuse_old(bundle)
    if not _is_file(bundle / INFO):
        raise BundleInvalid(
            f"the bundle has no {INFO}: it was not finished or not completely uploaded"
        )
    if (bundle / "Data").is_symlink():
        raise BundleInvalid("the bundle's Data is a link: links are not followed")
    return bundle


def _first_below(root: Path, limits: Limits, check: Check) -> Path | None:
    level, seen = [root], 0
    for _ in range(limits.path_depth):
        deeper: list[Path] = []
        for directory in level:
            check()
            names = _subdirectories(directory)
            seen += 1 + len(names)
            if seen > limits.entries:
                raise TooLarge(f"more than {limits.entries} directories to search (entries)")
            deeper.extend(directory / name for name in names)
        for directory in deeper:
            if is_bundle_name(directory.name):
                return directory
        level = deeper
        if not level:
            return None
    return None


def _subdirectories(directory: Path) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return sorted(
                entry.name
                for entry in entries
                if entry.is_dir(follow_symlinks=False) and entry.name != "__MACOSX"
            )
    except PermissionError:
        return []


def _refuse_old(bundle: Path) -> None:
    """Raise if this is a bundle of Xcode 10 or older, which has another format."""
    for directory in (bundle, *(bundle / name for name in _subdirectories(bundle)[:100])):
        with os.scandir(directory) as entries:
            if any(is_old_summary(entry.name) for entry in entries):
                raise UnsupportedFormat(
                    "a result bundle of Xcode 10 or older (TestSummaries.plist):"
                    " only those of Xcode 11 and later are read"
                )


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


@contextmanager
def _private(scratch: Path | None) -> Iterator[Path]:
    """Create a private directory and delete it with its content at the end."""
    directory = Path(tempfile.mkdtemp(prefix="runyard-xcresult-", dir=scratch))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)
