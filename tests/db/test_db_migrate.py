"""The history of the schema cannot be applied twice, out of order, in halves, or after a change."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from runyard.db import libraries, migrate
from runyard.db.contract import Unavailable
from runyard.db.migrate import MigrationError


def write(folder: Path, **files: str) -> Path:
    for name, sql in files.items():
        (folder / f"{name.removeprefix('m')}.sql").write_text(sql, encoding="utf-8")
    return folder


def relations(url: str) -> list[str]:
    with psycopg.connect(url) as link:
        rows = link.execute(
            "SELECT relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace"
            " WHERE nspname = 'public' AND relkind = 'r' ORDER BY relname"
        ).fetchall()
    return [name for (name,) in rows]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(
        tmp_path,
        m0001_pre_a="CREATE TABLE a (id int); CREATE TABLE b (id int);",
        m0002_post_b="DROP TABLE b;",
        m0003_pre_c="CREATE TABLE c (id int);",
    )


def test_our_own_history_applies_to_an_empty_database_and_then_is_done(
    empty_database_url: str,
) -> None:
    names = [file.name for file in migrate.history()]
    assert names[0] == "0001_pre_time.sql"
    names += [step.name for step in libraries.queue().due(())]
    assert list(migrate.pending(empty_database_url)) == names
    assert list(migrate.apply(empty_database_url)) == names
    assert migrate.apply(empty_database_url) == ()
    assert migrate.pending(empty_database_url) == ()


def test_listing_pending_migrations_changes_nothing(empty_database_url: str, source: Path) -> None:
    assert len(migrate.pending(empty_database_url, source=source)) == 3
    assert relations(empty_database_url) == []


def test_the_database_of_another_application_is_detected(empty_database_url: str) -> None:
    assert not migrate.foreign(empty_database_url)
    with psycopg.connect(empty_database_url) as link:
        link.execute("CREATE TABLE orders (id int)")
    assert migrate.foreign(empty_database_url)
    migrate.apply(empty_database_url)
    assert not migrate.foreign(empty_database_url)  # shared on purpose


def test_files_are_applied_in_order(empty_database_url: str, source: Path) -> None:
    names = ("0001_pre_a.sql", "0002_post_b.sql", "0003_pre_c.sql")
    assert migrate.apply(empty_database_url, source=source) == names
    assert relations(empty_database_url) == ["a", "c", "runyard_migrations"]


def test_an_upgrade_applies_pre_files_first_and_post_files_last(
    empty_database_url: str, source: Path
) -> None:
    before = migrate.apply(empty_database_url, phase="pre", source=source)
    assert before == ("0001_pre_a.sql", "0003_pre_c.sql")
    assert relations(empty_database_url) == ["a", "b", "c", "runyard_migrations"]
    assert migrate.pending(empty_database_url, source=source) == ("0002_post_b.sql",)
    assert migrate.apply(empty_database_url, phase="post", source=source) == ("0002_post_b.sql",)
    assert relations(empty_database_url) == ["a", "c", "runyard_migrations"]


def test_post_files_are_refused_while_pre_files_are_pending(
    empty_database_url: str, source: Path
) -> None:
    with pytest.raises(MigrationError, match=r"0001_pre_a\.sql is still pending"):
        migrate.apply(empty_database_url, phase="post", source=source)


def test_a_file_changed_after_its_application_is_an_error(
    empty_database_url: str, source: Path
) -> None:
    migrate.apply(empty_database_url, source=source)
    write(source, m0001_pre_a="CREATE TABLE a (id bigint);", m0004_pre_d="CREATE TABLE d ();")
    for read in (migrate.pending, migrate.apply):
        with pytest.raises(MigrationError, match=r"0001_pre_a\.sql was changed"):
            read(empty_database_url, source=source)
    assert "d" not in relations(empty_database_url)


def test_other_line_ends_do_not_change_the_checksum(empty_database_url: str, source: Path) -> None:
    write(source, m0001_pre_a="CREATE TABLE a (id int);\nCREATE TABLE b (id int);\n")
    migrate.apply(empty_database_url, source=source)
    (source / "0001_pre_a.sql").write_bytes(
        b"CREATE TABLE a (id int);\r\nCREATE TABLE b (id int);\r\n"
    )
    assert migrate.pending(empty_database_url, source=source) == ()


def test_a_failing_file_is_rolled_back_completely(empty_database_url: str, source: Path) -> None:
    write(source, m0003_pre_c="CREATE TABLE c (id int); SELECT 1 / 0;")
    with pytest.raises(MigrationError, match=r"0003_pre_c\.sql failed and was rolled back"):
        migrate.apply(empty_database_url, source=source)
    assert relations(empty_database_url) == ["a", "runyard_migrations"]
    write(source, m0003_pre_c="CREATE TABLE c (id int);")
    assert migrate.apply(empty_database_url, source=source) == ("0003_pre_c.sql",)


def test_a_file_may_not_end_its_transaction(empty_database_url: str, tmp_path: Path) -> None:
    write(tmp_path, m0001_pre_a="CREATE TABLE a (id int); COMMIT;")
    with pytest.raises(MigrationError):
        migrate.apply(empty_database_url, source=tmp_path)


def test_many_appliers_at_once_apply_each_file_once(empty_database_url: str, source: Path) -> None:
    workers = 4
    together = threading.Barrier(workers)

    def run(_: int) -> tuple[str, ...]:
        together.wait(10)
        return migrate.apply(empty_database_url, source=source)

    with ThreadPoolExecutor(workers) as threads:
        applied = [name for names in threads.map(run, range(workers)) for name in names]
    assert sorted(applied) == ["0001_pre_a.sql", "0002_post_b.sql", "0003_pre_c.sql"]


def test_an_older_release_accepts_a_newer_database(empty_database_url: str, source: Path) -> None:
    migrate.apply(empty_database_url, source=source)
    (source / "0003_pre_c.sql").unlink()
    assert migrate.apply(empty_database_url, source=source) == ()


@pytest.mark.parametrize("name", ["1_pre_x.sql", "0001_x.sql", "0001_mid_x.sql", "0001_pre_X.sql"])
def test_a_misnamed_file_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("SELECT 1", encoding="utf-8")
    with pytest.raises(MigrationError, match="NNNN_pre_what"):
        migrate.history(tmp_path)


def test_two_files_with_one_number_and_phase_are_an_error(tmp_path: Path) -> None:
    write(tmp_path, m0001_pre_a="SELECT 1", m0001_pre_b="SELECT 1")
    with pytest.raises(MigrationError, match="same number and phase"):
        migrate.history(tmp_path)


def test_a_number_may_have_both_phases_in_their_order(tmp_path: Path) -> None:
    write(tmp_path, m0001_post_a="SELECT 1", m0001_pre_b="SELECT 1")
    assert [file.phase for file in migrate.history(tmp_path)] == ["pre", "post"]


def test_no_server_is_unavailable() -> None:
    with pytest.raises(Unavailable):
        migrate.apply("host=/nonexistent dbname=none user=none")


def test_a_server_lost_during_a_migration_is_unavailable_and_not_a_failed_migration(
    empty_database_url: str, tmp_path: Path
) -> None:
    source = write(tmp_path, m0001_pre_a="SELECT pg_terminate_backend(pg_backend_pid())")
    with pytest.raises(Unavailable, match="lost"):
        migrate.apply(empty_database_url, source=source)


def test_a_connection_that_dies_while_pending_files_are_read_is_unavailable(
    empty_database_url: str, source: Path
) -> None:
    migrate.apply(empty_database_url, source=source)
    with (
        psycopg.connect(empty_database_url) as holder,
        psycopg.connect(empty_database_url, autocommit=True) as killer,
        ThreadPoolExecutor(1) as threads,
    ):
        holder.execute("LOCK TABLE runyard_migrations")
        looking = threads.submit(migrate.pending, empty_database_url, source=source)
        while not looking.done():  # until the read waits for the table, and is ended there
            killer.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
        with pytest.raises(Unavailable):
            looking.result()


def test_a_batch_is_repeated_until_it_changes_no_row(
    empty_database_url: str, tmp_path: Path
) -> None:
    write(
        tmp_path,
        m0001_pre_a="CREATE TABLE a (id int, seen bool); INSERT INTO a SELECT generate_series(1, 7)",
        m0002_pre_b="CREATE TABLE b AS SELECT count(DISTINCT xmin::text) FROM a WHERE seen",
    )
    (tmp_path / "0002_pre_b.batch.sql").write_text(
        "UPDATE a SET seen = true WHERE id IN"
        " (SELECT id FROM a WHERE id > %(after)s AND seen IS NULL ORDER BY id LIMIT 3) RETURNING id"
    )
    assert migrate.apply(empty_database_url, source=tmp_path) == (
        "0001_pre_a.sql",
        "0002_pre_b.sql",
    )
    with psycopg.connect(empty_database_url) as link:
        assert link.execute("SELECT * FROM b").fetchone() == (3,), "three transactions"
    assert migrate.apply(empty_database_url, source=tmp_path) == ()


def test_a_batch_reads_no_row_of_the_batches_before(
    empty_database_url: str, tmp_path: Path
) -> None:
    write(
        tmp_path,
        m0001_pre_a="CREATE TABLE a (id int); INSERT INTO a SELECT generate_series(-3, 3);"
        " CREATE TABLE seen (after bigint)",
        m0002_pre_b="",
    )
    (tmp_path / "0002_pre_b.batch.sql").write_text(
        "WITH noted AS (INSERT INTO seen VALUES (%(after)s))"
        " SELECT id FROM a WHERE id > %(after)s ORDER BY id LIMIT 3"
    )
    migrate.apply(empty_database_url, source=tmp_path)
    with psycopg.connect(empty_database_url) as link:
        rows = link.execute("SELECT after FROM seen ORDER BY after").fetchall()
    assert rows == [(-(2**63),), (-1,), (2,), (3,)]


DEADLOCK = "SET LOCAL deadlock_timeout = '2s'; LOCK TABLE a; LOCK TABLE b; CREATE TABLE c (id int)"


@pytest.mark.slow
def test_a_deadlock_with_the_running_release_is_tried_again(
    empty_database_url: str, tmp_path: Path
) -> None:
    write(tmp_path, m0001_pre_a="CREATE TABLE a (id int); CREATE TABLE b (id int)")
    migrate.apply(empty_database_url, source=tmp_path)
    write(tmp_path, m0002_pre_c=DEADLOCK)
    with (
        psycopg.connect(empty_database_url) as dispatch,
        psycopg.connect(empty_database_url, autocommit=True) as observer,
        ThreadPoolExecutor(1) as pool,
    ):
        dispatch.execute("SET deadlock_timeout = '1min'")  # so that Postgres ends the migrator
        dispatch.execute("LOCK TABLE b")
        applied = pool.submit(migrate.apply, empty_database_url, source=tmp_path)
        while not waiting(observer, "relation"):
            assert not applied.done()
        dispatch.execute("LOCK TABLE a")
        dispatch.commit()
        assert applied.result() == ("0002_pre_c.sql",)


def waiting(link: psycopg.Connection[Any], kind: str) -> bool:
    row = link.execute(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock' AND wait_event = %s",
        [kind],
    ).fetchone()
    return row is not None and row[0] > 0


def test_a_deadlock_that_remains_is_an_error_and_leaves_nothing(
    empty_database_url: str, tmp_path: Path
) -> None:
    failing = "CREATE TABLE c (id int); DO $$BEGIN RAISE SQLSTATE '40P01'; END$$"
    write(tmp_path, m0001_pre_a=failing)
    with pytest.raises(MigrationError, match=r"0001_pre_a\.sql"):
        migrate.apply(empty_database_url, source=tmp_path)
    assert relations(empty_database_url) == ["runyard_migrations"]


def test_a_batch_without_its_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "0001_pre_a.batch.sql").write_text("SELECT 1")
    with pytest.raises(migrate.MigrationError, match=r"0001_pre_a\.batch\.sql"):
        migrate.history(tmp_path)
