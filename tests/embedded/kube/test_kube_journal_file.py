"""The journal's file: atomic, locked by one process, and with a clear error when it is unusable."""

import os
import random
import resource
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.tiers import examples

from runyard.embedded.kube.storage.journal import (
    FORMAT,
    Journal,
    JournalError,
    JournalFull,
    Row,
    Snapshot,
)


def row(name: str, version: int, body: bytes | None = b"{}") -> Row:
    return Row("pods", "default", name, version, body)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kube.db"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    journal = Journal(path)
    yield journal
    journal.close()


def reopened(journal: Journal) -> Snapshot:
    """The journal as a process would load it after a kill at this moment."""
    copy = journal.path.parent / "copy.db"
    for suffix in ("", "-wal"):
        shutil.copyfile(f"{journal.path}{suffix}", f"{copy}{suffix}")
    other = Journal(copy)
    try:
        return other.load()
    finally:
        other.close()


def test_a_new_file_is_empty_and_private(journal: Journal) -> None:
    assert journal.load() == Snapshot(0, b"", ())
    for file in journal.path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_what_was_committed_is_on_disk_when_commit_returns(journal: Journal) -> None:
    journal.commit(2, [row("a", 1), row("b", 2)])
    assert reopened(journal) == Snapshot(2, b"", (row("a", 1), row("b", 2)))
    journal.commit(4, [row("a", 3, b'{"x":1}'), row("b", 4, None)])
    journal.put_signing_key(b"secret")
    assert reopened(journal) == Snapshot(4, b"secret", (row("a", 3, b'{"x":1}'),))


def test_a_commit_goes_through_to_the_disk_and_not_to_a_cache(journal: Journal) -> None:
    found = {name: journal._db.execute(f"PRAGMA {name}").fetchone()[0] for name in PRAGMAS}
    assert found == PRAGMAS


PRAGMAS = {"journal_mode": "wal", "synchronous": 2, "fullfsync": 1, "locking_mode": "exclusive"}


def test_objects_come_back_in_the_order_of_their_creation(journal: Journal) -> None:
    journal.commit(3, [row("c", 1), row("a", 2), row("b", 3)])
    journal.commit(4, [row("c", 4, b'{"changed":1}')])
    journal.commit(6, [row("a", 5, None), row("a", 6)])
    assert [item.name for item in reopened(journal).rows] == ["c", "b", "a"]


def test_a_failed_commit_stores_nothing(journal: Journal) -> None:
    journal.commit(1, [row("a", 1)])
    before = reopened(journal)
    fill_up(journal)
    with pytest.raises(JournalFull) as caught:
        journal.commit(3, [row("a", 2, b"x" * 10), row("b", 3, b"x" * 1_000_000)])
    assert "no space" in caught.value.cause and "Free some space" in caught.value.fix
    assert journal.load() == reopened(journal) == before
    journal._db.execute("PRAGMA max_page_count = 100000")
    journal.commit(2, [row("b", 2)])
    assert reopened(journal).version == 2


def fill_up(journal: Journal) -> None:
    """Makes the next allocation of a page fail."""
    (pages,) = journal._db.execute("PRAGMA page_count").fetchone()
    journal._db.execute(f"PRAGMA max_page_count = {pages}")


def test_a_failing_disk_is_not_reported_as_full(journal: Journal) -> None:
    journal.commit(1, [row("a", 1, b"x" * 500_000)])
    before = reopened(journal)
    size = Path(f"{journal.path}-wal").stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        with pytest.raises(JournalError) as caught:
            journal.commit(2, [row("b", 2)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not isinstance(caught.value, JournalFull) and "failed" in caught.value.cause
    assert reopened(journal) == before


HOLDER = """
import sys
from runyard.embedded.kube.storage.journal import Journal
journal = Journal(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


def test_a_file_is_locked_by_one_process_until_it_is_killed(path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = (sys.executable, "-c", HOLDER, str(path))
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        with pytest.raises(JournalError, match="locked by another process"):
            Journal(path, timeout=0)
        holder.kill()
        holder.wait()
    Journal(path, timeout=0).close()


def edited(path: Path, statement: str) -> None:
    Journal(path).close()
    with sqlite3.connect(path) as other:
        other.execute(statement)
    other.close()


def test_a_newer_format_is_refused_and_not_changed(path: Path) -> None:
    edited(path, f"PRAGMA user_version = {FORMAT + 1}")
    before = path.read_bytes()
    with pytest.raises(JournalError) as caught:
        Journal(path)
    assert "format 2" in caught.value.cause and "newer version" in caught.value.fix
    assert path.read_bytes() == before


def test_another_programs_database_is_refused_and_not_changed(path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE theirs (x)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(JournalError, match="not a journal"):
        Journal(path)
    assert path.read_bytes() == before


NOT_A_FILE = {
    "text": lambda path: path.write_text("not a database, but long enough to be looked at" * 9),
    "a folder": lambda path: path.mkdir(),
    "no folder": lambda path: path.parent.rmdir(),
}


@pytest.mark.parametrize("case", NOT_A_FILE)
def test_an_invalid_file_is_a_journal_error_with_a_fix(tmp_path: Path, case: str) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    NOT_A_FILE[case](folder / "kube.db")
    with pytest.raises(JournalError) as caught:
        Journal(folder / "kube.db")
    assert str(folder) in caught.value.cause and caught.value.fix


def test_an_object_ahead_of_the_counter_is_reported_as_damage(path: Path) -> None:
    journal = Journal(path)
    journal.commit(1, [row("a", 2)])
    with pytest.raises(JournalError, match="version counter"):
        journal.load()
    journal.close()


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Snapshot]:
    path = tmp_path_factory.mktemp("sample") / "kube.db"
    journal = Journal(path)
    rng = random.Random(1)
    rows = [row(f"pod-{n}", n, rng.randbytes(rng.choice((40, 900, 9000)))) for n in range(1, 30)]
    journal.commit(40, rows)
    journal.put_signing_key(b"k" * 32)
    kept = journal.load()
    journal._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    journal.close()
    return path.read_bytes(), kept


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(where=st.integers(0, 10**9), bit=st.integers(0, 7))
@example(where=4024, bit=7)  # makes SQLite quote bytes that are not UTF-8
def test_a_flipped_bit_is_detected(
    sample: tuple[bytes, Snapshot], tmp_path: Path, where: int, bit: int
) -> None:
    content, kept = bytearray(sample[0]), sample[1]
    content[where % len(content)] ^= 1 << bit
    path = tmp_path / "flipped.db"
    for leftover in tmp_path.glob("flipped.db*"):
        leftover.unlink()
    path.write_bytes(content)
    try:
        journal = Journal(path, timeout=0)
    except JournalError:
        return
    try:
        assert journal.load() == kept
    except JournalError:
        return
    finally:
        journal.close()
