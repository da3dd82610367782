"""Reads a bundle from its store, or from Apple's cache if the store was removed.

`read_bundle` takes the directory of a bundle; `read` takes anything that contains one (a parent directory, a ZIP, an
Apple Archive, a tar) and leaves no files.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from runyard.xcresult.archives.limits import Limits
from runyard.xcresult.bundle import parallel
from runyard.xcresult.bundle.directory import Directory
from runyard.xcresult.bundle.opening import opened, size_of
from runyard.xcresult.cache.reading import read_cache
from runyard.xcresult.reader.budget import Budget
from runyard.xcresult.reader.deferred import LocalReaders, Readers
from runyard.xcresult.reader.graph import Graph
from runyard.xcresult.reader.model import Result, Wanted
from runyard.xcresult.reader.result import StoreStripped, read_result

DATABASE = "database.sqlite3"


def read_bundle(
    directory: Path,
    *,
    wanted: Wanted = Wanted(),  # noqa: B008  (frozen)
    limits: Limits = Limits(),  # noqa: B008  (frozen)
    processes: int = 1,
    budget: Budget | None = None,
) -> Result:
    """Read the bundle in this directory; a large one with several `processes`, if requested.

    `budget` is what is left for the reading after the extraction; each process has its own.
    """
    objects = Directory(directory, limits=limits, budget=budget)
    info = objects.info()
    try:
        with _without_cycle_collector(), _readers(objects, count=processes) as readers:
            return read_result(
                objects,
                info,
                wanted=wanted,
                depth=limits.depth,
                budget=limits.decoded_bytes,
                spending=objects.budget,
                readers=readers,
            )
    except StoreStripped:
        if not _has_cache(directory):
            raise
        return read_cache(
            directory / DATABASE,
            format=f"{info.major}.{info.minor}",
            wanted=wanted,
            present=objects.has,
            budget=objects.budget,
        )


def read(
    path: Path | str,
    *,
    wanted: Wanted = Wanted(),  # noqa: B008  (frozen)
    limits: Limits = Limits(),  # noqa: B008  (frozen)
    processes: int = 1,
    scratch: Path | None = None,
) -> Result:
    """Read the bundle in a file or a directory; an archive is extracted below `scratch`."""
    budget = limits.budget(uploaded=size_of(Path(path)))
    with opened(Path(path), scratch=scratch, limits=limits, budget=budget) as directory:
        return read_bundle(
            directory, wanted=wanted, limits=limits, processes=processes, budget=budget
        )


@contextmanager
def _readers(objects: Directory, *, count: int) -> Iterator[Callable[[Graph], Readers]]:
    """This process, or several for a large bundle."""
    if count <= 1 or not parallel.is_large(objects):
        yield LocalReaders
        return
    with parallel.processes(objects.path, limits=objects.limits, count=count) as pool:
        yield lambda graph: parallel.PoolReaders(graph, pool)


@contextmanager
def _without_cycle_collector() -> Iterator[None]:
    """Disable the cycle collector, which saves a fifth of the time: reading makes millions of objects and no cycle."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _has_cache(directory: Path) -> bool:
    database = directory / DATABASE
    return database.is_file() and not database.is_symlink()
