"""Records which stores this machine has used, so that a store that was lost is not replaced by an empty one.

Each component creates its store if there is none, which is right at the first start only. Later it would hide a loss:
a fleet without its pools, without its jobs, or without its limits. So a start refuses to continue without a store that
an earlier start has used.

A file of SQLite may have a size and no content: while a machine runs, all of it can be in the log beside it, which
belongs to the file also in a backup.

Invariants:
- A store is recorded only after a start with it has succeeded; an interrupted first start can be repeated.
- The check changes no file. A damaged store is reported by the component that opens it.
"""

import shutil
import sqlite3
import tempfile
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import msgspec

from runyard.embedded.up.layout import BadDirectory, Layout, read_json
from runyard.files import write_whole

KUBE, GITHUB, POSTGRES = "kube.db", "github.db", "postgres"
_LOST = {
    KUBE: "pools that you created must be created again",
    GITHUB: "practice jobs and their logs are lost",
    POSTGRES: "jobs, tenants, their limits and test results are lost",
}


def in_use(*, practice: bool, database: bool) -> tuple[str, ...]:
    """The stores of this start: the practice GitHub and the embedded database are optional."""
    return (KUBE, *((GITHUB,) if practice else ()), *((POSTGRES,) if database else ()))


def check(layout: Layout, names: Iterable[str]) -> None:
    """Refuses a start without the content of one of these stores, if it was used before."""
    used = known(layout)
    for name in names:
        path = layout.root / name
        state = _state(path)
        if name in used and state:
            raise BadDirectory(
                f"{path} is {state}, but this machine has used it. Restore it from a backup, or remove"
                f' "{name}" from {layout.stores} to start with an empty one: {_LOST[name]}'
            )


def record(layout: Layout, names: Iterable[str]) -> None:
    """Records that these stores are used."""
    used = known(layout)
    if layout.stores.exists() and used.issuperset(names):
        return
    write_whole(layout.stores, msgspec.json.encode(sorted({*used, *names})))


def known(layout: Layout) -> frozenset[str]:
    """The stores that were used; of a directory without the record, what its other files show."""
    fix = "Restore it from a backup, or remove it: missing stores are then created"
    found = read_json(layout.stores, fix=fix)
    if found is None:  # the kubeconfig is written once the API is ready
        return frozenset((KUBE,) if layout.kubeconfig.exists() else ())
    try:
        return frozenset(msgspec.convert(found, list[str]))
    except msgspec.ValidationError:
        raise BadDirectory(f"{layout.stores} is damaged: it contains no list. {fix}") from None


def _state(path: Path) -> str:
    """What is wrong with a store: an empty text if it has content."""
    try:
        content = any(path.iterdir()) if path.is_dir() else path.stat().st_size > 0
    except FileNotFoundError:
        return "missing"
    if not content:
        return "empty"
    if path.is_file() and _has_no_tables(path):
        return f"empty without its content in {_log(path).name}, which belongs to it"
    return ""


def _has_no_tables(path: Path) -> bool:
    """Whether an SQLite file has no tables, together with its log."""
    path = path.resolve()  # the log is beside the file, not beside a link to it
    try:
        if _tables(path, "immutable=1"):  # the file alone
            return False
        # Opening a file with its log may change both. A file without tables is small, and so is its log.
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            copy = Path(shutil.copy(path, folder))
            if _log(path).exists():
                shutil.copy(_log(path), folder)
            return not _tables(copy.resolve(), "mode=rw")
    except (sqlite3.Error, OSError):  # the component that opens it says what is wrong
        return False


def _tables(path: Path, how: str) -> int:
    with closing(sqlite3.connect(f"{path.as_uri()}?{how}", uri=True)) as opened:
        (count,) = opened.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        return int(count)


def _log(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")
