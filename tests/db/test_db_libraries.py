"""A library's tables are created from its package once, and updated by its own migrations."""

from pathlib import Path

import psycopg
import pytest

from runyard.db import libraries, migrate
from runyard.db.libraries import Library, Step


def library(*names: str) -> Library:
    return Library(
        name="procrastinate",
        version="9.9.9",
        table="procrastinate_jobs",
        schema="CREATE TABLE procrastinate_jobs (id int)",
        steps=tuple(
            Step(phase="post" if "post" in name else "pre", name=name, sql="SELECT 1")
            for name in names
        ),
    )


def records(url: str) -> set[str]:
    with psycopg.connect(url) as link:
        return {name for (name,) in link.execute("SELECT name FROM runyard_migrations").fetchall()}


def test_an_empty_database_gets_the_whole_schema_and_no_step_twice(
    empty_database_url: str,
) -> None:
    migrate.apply(empty_database_url)
    queue = libraries.queue()
    assert queue.due(records(empty_database_url)) == ()
    assert {step.name for step in queue.steps} <= records(empty_database_url)
    assert f"procrastinate_{queue.version}_pre_schema.sql" in records(empty_database_url)
    with psycopg.connect(empty_database_url) as link:
        row = link.execute("SELECT procrastinate_register_worker_v1()").fetchone()
    assert row is not None


def test_steps_of_a_newer_release_of_the_library_are_applied_in_their_phase(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = library("procrastinate_01.00.00_01_pre_a.sql")
    monkeypatch.setattr(migrate, "queue", lambda: old)
    migrate.apply(empty_database_url, phase="pre")
    new = library(
        "procrastinate_01.00.00_01_pre_a.sql",
        "procrastinate_02.00.00_01_pre_b.sql",
        "procrastinate_02.00.00_50_post_b.sql",
    )
    monkeypatch.setattr(migrate, "queue", lambda: new)
    before, after = "procrastinate_02.00.00_01_pre_b.sql", "procrastinate_02.00.00_50_post_b.sql"
    assert set(migrate.pending(empty_database_url)) >= {before, after}
    assert migrate.apply(empty_database_url, phase="pre") == (before,)
    assert after in migrate.apply(empty_database_url, phase="post")
    assert migrate.apply(empty_database_url) == ()


def test_tables_of_the_library_that_runyard_did_not_create_are_not_changed(
    empty_database_url: str,
) -> None:
    with psycopg.connect(empty_database_url) as link:
        link.execute("CREATE TABLE procrastinate_jobs (id int)")
    with pytest.raises(migrate.MigrationError, match="runyard did not create it"):
        migrate.apply(empty_database_url)


def test_steps_are_ordered_by_release_and_other_files_are_ignored(
    tmp_path: Path,
) -> None:
    for name in (
        "10.00.00_01_pre_z.sql",
        "02.00.00_50_post_b.sql",
        "02.00.00_01_pre_c.sql",
        "01.02.00_01_old.sql",
        "README.md",
    ):
        (tmp_path / name).write_text("SELECT 1", encoding="utf-8")
    found = libraries.steps("x", tmp_path)
    assert [(step.name, step.phase) for step in found] == [
        ("x_01.02.00_01_old.sql", "pre"),
        ("x_02.00.00_01_pre_c.sql", "pre"),
        ("x_02.00.00_50_post_b.sql", "post"),
        ("x_10.00.00_01_pre_z.sql", "pre"),
    ]
