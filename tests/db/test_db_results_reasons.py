"""Codes and sentences of test runs that the release before stored become slugs with detail, also during an upgrade."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from tests.db.earlier_release import database_before

from runyard.db import migrate
from runyard.wire.reasons import render
from runyard.wire.reasons_results import ATTEMPTS, Unprocessed

MISSING = "the upload does not exist: it was never completed, or was deleted"
# A code and a sentence as the release before wrote them, and the slug with its detail.
WRITTEN: list[tuple[str, str, Unprocessed, dict[str, Any]]] = [
    ("bundle_invalid", "no root", Unprocessed.BUNDLE_INVALID, {"message": "no root"}),
    ("xcresult_not_found", "none", Unprocessed.XCRESULT_NOT_FOUND, {"message": "none"}),
    ("unsupported_format", "format 4", Unprocessed.UNSUPPORTED_FORMAT, {"message": "format 4"}),
    ("too_large", "12 entries", Unprocessed.TOO_LARGE, {"message": "12 entries"}),
    ("no_tests", "the bundle contains no test module", Unprocessed.NO_TESTS, {}),
    ("timeout", "not downloaded within 600 s", Unprocessed.DOWNLOAD_TIMEOUT, {"limit": 600}),
    ("timeout", "not read within 0.5 s", Unprocessed.READ_TIMEOUT, {"limit": 0.5}),
    ("timeout", "not read within 1e+06 s", Unprocessed.READ_TIMEOUT, {"limit": 1000000}),
    ("timeout", "the limit of processor time is exceeded", Unprocessed.CPU_TIME_EXCEEDED, {}),
    ("timeout", "TimeoutError", Unprocessed.TIMEOUT, {"message": "TimeoutError"}),
    (
        "out_of_memory",
        "reading the bundle takes more than 4096 bytes of memory",
        Unprocessed.MEMORY_EXCEEDED,
        {"limit": 4096},
    ),
    ("out_of_memory", "MemoryError", Unprocessed.OUT_OF_MEMORY, {"message": "MemoryError"}),
    (
        "no_space",
        "the upload has 70 bytes, the scratch 6 free",
        Unprocessed.NO_SPACE_FOR_UPLOAD,
        {"size": 70, "free": 6},
    ),
    (
        "no_space",
        "the bundle takes about 700 bytes, the scratch has 60 free",
        Unprocessed.NO_SPACE_FOR_BUNDLE,
        {"size": 700, "free": 60},
    ),
    ("no_space", "[Errno 28] full", Unprocessed.NO_SPACE, {"message": "[Errno 28] full"}),
    ("upload_missing", MISSING, Unprocessed.UPLOAD_MISSING, {}),
    ("storage_unavailable", "503", Unprocessed.STORAGE_UNAVAILABLE, {"message": "503"}),
    ("storage_refused", "403", Unprocessed.STORAGE_REFUSED, {"message": "403"}),
    ("database", "gone", Unprocessed.DATABASE, {"message": "gone"}),
    ("io_error", "broken", Unprocessed.IO_ERROR, {"message": "broken"}),
    (
        "reader_crashed",
        "the child process died of SIGSEGV",
        Unprocessed.READER_CRASHED,
        {"signal": "SIGSEGV"},
    ),
    (
        "reader_crashed",
        "the child process exited with 1: KeyError: 'x: y'",
        Unprocessed.READER_EXITED,
        {"status": 1, "message": "KeyError: 'x: y'"},
    ),
    ("workdir_gone", "another process swept the workdir", Unprocessed.WORKDIR_GONE, {}),
    ("released", "its worker was stopped", Unprocessed.RELEASED, {}),
    (
        "worker_lost",
        "mac-1/0a sent no heartbeat until the lease expired",
        Unprocessed.WORKER_LOST,
        {"owner": "mac-1/0a"},
    ),
    ("defect", "division by zero", Unprocessed.DEFECT, {"message": "division by zero"}),
]


@contextmanager
def before(url: str) -> Iterator[psycopg.Connection[Any]]:
    """A database of the release that stored sentences, with a run and an attempt for each of them."""
    with database_before(url, 16) as link:
        link.execute(
            "INSERT INTO test_runs (run_id, shard, account, project, storage_key)"
            " SELECT '00000000-0000-0000-0000-000000000000', n, 'acme', 'app', 'key-' || n"
            " FROM generate_series(0, %s) AS n",
            [len(WRITTEN)],
        )
        link.execute(
            "INSERT INTO test_attempts (run_id, shard, attempt, owner, started_at)"
            " SELECT run_id, shard, 1, 'w', runyard_now() FROM test_runs"
        )
        yield link


def write(link: psycopg.Connection[Any]) -> None:
    """Every sentence, as the statements of the release before set it; the last run has none."""
    for shard, (code, sentence, _, _) in enumerate([*WRITTEN, ("", "", None, None)]):
        for table in ("test_runs", "test_attempts"):
            link.execute(
                f"UPDATE {table} SET reason_code = %s, reason = %s WHERE shard = %s".encode(),
                [code, sentence, shard],
            )


def check(link: psycopg.Connection[Any]) -> None:
    for table in ("test_runs", "test_attempts"):
        found = link.execute(
            f"SELECT reason_code, reason_detail FROM {table} ORDER BY shard".encode()
        ).fetchall()
        stored = [(row["reason_code"], row["reason_detail"]) for row in found]
        assert stored == [*((code, detail) for _, _, code, detail in WRITTEN), ("", {})]


def test_every_code_of_an_attempt_is_converted() -> None:
    assert {code for _, _, code, _ in WRITTEN} == set(Unprocessed)


@pytest.mark.parametrize(("sentence", "code", "detail"), [each[1:] for each in WRITTEN])
def test_a_converted_reason_reads_as_before(
    sentence: str, code: Unprocessed, detail: dict[str, Any]
) -> None:
    assert render(ATTEMPTS.read(code, detail)) == sentence


def test_runs_of_the_release_before_get_slugs(empty_database_url: str) -> None:
    with before(empty_database_url) as link:
        write(link)
        migrate.apply(empty_database_url, phase="pre")
        check(link)
        migrate.apply(empty_database_url, phase="post")
        check(link)


def test_what_the_release_before_writes_during_an_upgrade_gets_slugs(
    empty_database_url: str,
) -> None:
    with before(empty_database_url) as link:
        migrate.apply(empty_database_url, phase="pre")
        write(link)
        check(link)
        shown = link.execute("SELECT reason FROM test_runs ORDER BY shard").fetchall()
        assert [row["reason"] for row in shown] == [*(each[1] for each in WRITTEN), ""], (
            "the release before still shows its sentences"
        )
        link.execute("UPDATE test_runs SET reason = reason WHERE reason <> ''")
        link.execute("UPDATE test_attempts SET reason = reason WHERE reason <> ''")
        check(link)  # a conversion that is repeated changes nothing
        migrate.apply(empty_database_url, phase="post")
        check(link)


def test_a_reason_of_the_new_release_leaves_no_sentence_of_an_earlier_attempt(
    empty_database_url: str,
) -> None:
    with before(empty_database_url) as link:
        migrate.apply(empty_database_url, phase="pre")
        write(link)
        link.execute(
            "UPDATE test_runs SET reason_code = 'read-timeout', reason_detail = '{\"limit\": 5}'"
        )
        found = link.execute(
            "SELECT DISTINCT reason_code, reason_detail, reason FROM test_runs"
        ).fetchall()
    assert found == [
        {"reason_code": "read-timeout", "reason_detail": {"limit": 5}, "reason": ""},
    ]
