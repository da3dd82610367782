"""Rows of the release that stored sentences are converted to codes, also those it still writes during an upgrade."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from tests.db.earlier_release import database_before

from runyard.db import migrate
from runyard.db.contract import Unavailable
from runyard.wire.reasons import Catalogue
from runyard.wire.reasons_dispatch import (
    REQUESTS,
    TRANSITIONS,
    DeliveryOutcome,
    Requested,
    Why,
)

# The subject, the target, the sentence as the release before wrote it, and its code with its detail.
WRITTEN: list[tuple[str, str, str, Why | None, dict[str, object]]] = [
    ("slot", "idle", "first poll", Why.FIRST_POLL, {}),
    ("slot", "offered", "job 7 fits", Why.OFFERED, {"job": 7}),
    ("slot", "armed", "minted and stamped", Why.ARMED, {}),
    ("slot", "armed", "vacant runner is meant for job 12", Why.ADOPTED, {"job": 12}),
    (
        "slot",
        "idle",
        "mint refused: RateLimited: 429 for GET /orgs/acme: slow down",
        Why.MINT_REFUSED,
        {"kind": "rate-limited", "message": "429 for GET /orgs/acme: slow down"},
    ),
    (
        "slot",
        "idle",
        "mint refused: Kubernetes does not take 'mona-' as a stamp; GitHub: NotFound: 404",
        Why.STAMP_INVALID,
        {"tenant": "mona-"},
    ),
    (
        "slot",
        "offered",
        "mint unclear, stamp stamped: no answer in time",
        Why.MINT_UNCLEAR,
        {"stamp": "stamped", "kind": "no-answer", "message": ""},
    ),
    (
        "slot",
        "offered",
        "mint unclear, stamp unclear: ServerFailed: 502",
        Why.MINT_UNCLEAR,
        {"stamp": "unclear", "kind": "server-failed", "message": "502"},
    ),
    ("slot", "offered", "mint minted, stamp refused: ", Why.STAMP_FAILED, {"stamp": "refused"}),
    ("slot", "draining", "fence: deleted", Why.FENCE_DELETED, {}),
    ("slot", "draining", "fence: absent", Why.FENCE_ABSENT, {}),
    ("slot", "executing", "fence: busy", Why.FENCE_BUSY, {}),
    ("slot", "closed", "Pod is gone (404)", Why.POD_NOT_FOUND, {}),
    ("slot", "closed", "another uid under that name", Why.POD_REPLACED, {}),
    ("slot", "closed", "the agent recorded the end: Succeeded", Why.POD_SUCCEEDED, {}),
    ("slot", "closed", "the agent recorded the end: Failed", Why.POD_FAILED, {}),
    ("slot", "draining", "stamped without a claim", Why.STAMPED_WITHOUT_CLAIM, {}),
    ("slot", "draining", "does not ask for work", Why.NOT_POLLING, {}),
    ("slot", "executing", "job 7 started", Why.JOB_STARTED, {"job": 7}),
    ("slot", "draining", "job 7 ended", Why.JOB_ENDED, {"job": 7}),
    ("slot", "closed", "its runner got job 9", Why.RUNNER_GOT_ANOTHER, {"job": 9}),
    ("slot", "armed", "job 7 went elsewhere", Why.JOB_WENT_ELSEWHERE, {"job": 7}),
    ("slot", "executing", "its runner executes another job", Why.RUNNER_BUSY_ELSEWHERE, {}),
    ("job", "waiting", "awaits an approval", Why.AWAITS_APPROVAL, {}),
    ("job", "queued", "queued", Why.QUEUED, {}),
    ("job", "queued", "still queued", Why.STILL_QUEUED, {}),
    ("job", "bound", "meant for mac-runner-0a", Why.BOUND, {"pod": "mac-runner-0a"}),
    ("job", "running", "started on mac-runner-0a", Why.STARTED, {"runner": "mac-runner-0a"}),
    ("job", "queued", "its runner got job 9", Why.RUNNER_GOT_ANOTHER, {"job": 9}),
    ("job", "done", "success", Why.ENDED, {"conclusion": "success"}),
    ("job", "done", "ended", Why.ENDED, {"conclusion": ""}),
    ("slot", "idle", "something else", None, {"text": "something else"}),
    ("slot", "idle", "", None, {"text": ""}),
]
# A request about a job, as it was stored, and its code with its detail.
ASKED = [
    ("cancelling", Requested.CANCELLING, {}),
    ("queued again, under a new number", Requested.RERUN_QUEUED, {}),
    ("refused: it is over already", Requested.JOB_OVER, {}),
    ("refused: it is not over yet", Requested.JOB_NOT_OVER, {}),
    ("refused: its run is not known", Requested.RUN_UNKNOWN, {}),
    ("refused: its run has other jobs", Requested.RUN_HAS_OTHERS, {}),
    ("refused: 403: too old", Requested.RERUN_REFUSED, {"message": "403: too old"}),
    (
        "not known, GitHub said no or nothing: 502",
        Requested.GITHUB_FAILED,
        {"message": "502"},
    ),
]


def write(link: psycopg.Connection[Any], *, pod: str) -> None:
    """Every sentence, with the statements of the release before."""
    for subject, target, sentence, _, _ in WRITTEN:
        link.execute(
            "INSERT INTO transitions (at, subject, pod_uid, job_id, source, target, why, actor)"
            " VALUES (runyard_now(), %s, %s, 7, '', %s, %s, 'server-1')",
            [subject, pod, target, sentence],
        )
    for sentence, _, _ in ASKED:
        link.execute(
            "INSERT INTO tenant_changes (at, tenant, job_id, field, source, target, why, actor)"
            " VALUES (runyard_now(), 'acme', 7, 'retry', '', %s, '', %s)",
            [sentence, pod],
        )
    link.execute(
        "INSERT INTO tenant_changes (at, tenant, field, source, target, why, actor) VALUES"
        " (runyard_now(), 'acme', 'passed over account acme', 'NotAllowed: 403', 'tried again', 'fixed it', %s),"
        " (runyard_now(), 'acme', 'weight', '1', '2', 'more work', %s)",
        [pod, pod],
    )
    link.execute(
        "INSERT INTO slots (pod_uid, pod_name, pool, state, generation, deadline, last_beat, opened_at,"
        " closed_at, close_reason)"
        " VALUES (%s, %s, 'mac', 'closed', 1, runyard_now(), runyard_now(), runyard_now(), runyard_now(), '')",
        [pod, pod],
    )
    link.execute(
        "UPDATE slots SET close_reason = 'Pod is gone (404)' WHERE pod_uid = %s",
        [pod],
    )
    link.execute(
        "INSERT INTO exclusions (kind, name, until, since, failures, why) VALUES"
        " ('account', %s, runyard_now(), runyard_now(), 1, 'NotAllowed: 403 for acme')",
        [pod],
    )


def check(link: psycopg.Connection[Any], *, pod: str) -> None:
    found = link.execute(
        "SELECT reason, detail FROM transitions WHERE pod_uid = %s ORDER BY id", [pod]
    ).fetchall()
    wanted = [
        ("unknown" if code is None else code.value, detail) for _, _, _, code, detail in WRITTEN
    ]
    assert [(row["reason"], row["detail"]) for row in found] == wanted
    assert all(_renders(TRANSITIONS, row) for row in found)
    asked = link.execute(
        "SELECT target AS reason, detail FROM tenant_changes WHERE job_id = 7 AND actor = %s ORDER BY id",
        [pod],
    ).fetchall()
    assert [(row["reason"], row["detail"]) for row in asked] == [
        (code.value, detail) for _, code, detail in ASKED
    ]
    assert all(_renders(REQUESTS, row) for row in asked)
    changes = link.execute(
        "SELECT field, source, target, why, detail FROM tenant_changes"
        " WHERE job_id IS NULL AND actor = %s ORDER BY id",
        [pod],
    ).fetchall()
    refused = {"kind": "not-allowed", "message": "403"}
    assert [tuple(row.values()) for row in changes] == [
        ("exclusion/account/acme", "mint-refused", "tried-again", "fixed it", refused),
        ("weight", "1", "2", "more work", {}),
    ]
    slot = link.execute("SELECT close_reason FROM slots WHERE pod_uid = %s", [pod]).fetchone()
    assert slot == {"close_reason": "pod-not-found"}
    excluded = link.execute(
        "SELECT reason, detail FROM exclusions WHERE name = %s", [pod]
    ).fetchone()
    assert excluded == {
        "reason": "mint-refused",
        "detail": {"kind": "not-allowed", "message": "403 for acme"},
    }


def _renders(known: Catalogue, row: dict[str, Any]) -> bool:
    """Is the reason one that this release knows, with the fields of its template?"""
    read = known.read(row["reason"], row["detail"])
    return read.slug == row["reason"] and read.fields == row["detail"]


def test_rows_of_the_release_before_become_codes(empty_database_url: str) -> None:
    with database_before(empty_database_url, 12) as link:
        write(link, pod="old")
        migrate.apply(empty_database_url, phase="pre")
        check(link, pod="old")
        migrate.apply(empty_database_url, phase="post")
        check(link, pod="old")


def test_what_the_release_before_writes_during_an_upgrade_becomes_codes(
    empty_database_url: str,
) -> None:
    with database_before(empty_database_url, 12) as link:
        migrate.apply(empty_database_url, phase="pre")
        write(link, pod="beside")
        check(link, pod="beside")
        migrate.apply(empty_database_url, phase="post")
        check(link, pod="beside")


@pytest.mark.parametrize("phase", ["pre", "all"])
def test_codes_are_stored_as_they_are(empty_database_url: str, phase: migrate.Phase) -> None:
    migrate.apply(empty_database_url, phase=phase)
    with psycopg.connect(empty_database_url, autocommit=True, row_factory=dict_row) as link:
        link.execute(
            "INSERT INTO transitions (at, subject, source, target, reason, detail, actor)"
            " VALUES (runyard_now(), 'slot', '', 'idle', 'job-fits', '{\"job\": 7}', 'server-1')"
        )
        link.execute(
            "INSERT INTO exclusions (kind, name, until, since, failures, reason, detail)"
            " VALUES ('github', '', runyard_now(), runyard_now(), 1, 'stamp-invalid', '{\"tenant\": \"a\"}')"
        )
        found = link.execute(
            "SELECT reason, detail FROM transitions UNION ALL SELECT reason, detail FROM exclusions"
        ).fetchall()
    assert found == [
        {"reason": "job-fits", "detail": {"job": 7}},
        {"reason": "stamp-invalid", "detail": {"tenant": "a"}},
    ]


def test_an_exclusion_that_both_releases_write_has_the_reason_of_the_last(
    empty_database_url: str,
) -> None:
    migrate.apply(empty_database_url, phase="pre")
    insert = "INSERT INTO exclusions (kind, name, until, since, failures, why)"
    values = "VALUES ('account', 'acme', runyard_now(), runyard_now(), 1, %s)"
    again = "ON CONFLICT (kind, name) DO UPDATE SET why = excluded.why"
    with psycopg.connect(empty_database_url, autocommit=True, row_factory=dict_row) as link:
        link.execute(f"{insert} {values} {again}".encode(), ["NotAllowed: 403"])
        link.execute(
            "UPDATE exclusions SET reason = 'stamp-invalid', detail = '{\"tenant\": \"acme\"}'"
        )
        assert _reason(link) == "stamp-invalid"
        link.execute(f"{insert} {values} {again}".encode(), ["NotFound: 404"])
        assert _reason(link) == "mint-refused"


def _reason(link: psycopg.Connection[Any]) -> str:
    row = link.execute("SELECT reason FROM exclusions").fetchone()
    return "" if row is None else str(row["reason"])


def test_a_delivery_that_was_stored_under_the_earlier_outcome_has_the_present_one(
    empty_database_url: str,
) -> None:
    with database_before(empty_database_url, 12) as link:
        link.execute(
            "INSERT INTO deliveries (guid, received_at, action, outcome) VALUES"
            " ('a', runyard_now(), 'unknown', 'nonsense'), ('b', runyard_now(), 'queued', 'applied')"
        )
        migrate.apply(empty_database_url, phase="pre")
        found = link.execute("SELECT guid, outcome FROM deliveries ORDER BY guid").fetchall()
    assert found == [
        {"guid": "a", "outcome": DeliveryOutcome.INVALID},
        {"guid": "b", "outcome": DeliveryOutcome.APPLIED},
    ]


ROWS = 50_000


@pytest.mark.slow
def test_a_conversion_that_is_killed_half_way_continues_with_the_rows_that_are_left(
    empty_database_url: str,
) -> None:
    with database_before(empty_database_url, 12) as link:
        link.execute(
            "INSERT INTO transitions (at, subject, pod_uid, job_id, source, target, why, actor)"
            " SELECT runyard_now(), 'slot', 'p', n, '', 'executing', format('job %%s started', n), 'server-1'"
            " FROM generate_series(1, %s) AS n",
            [ROWS],
        )
        with ThreadPoolExecutor(1) as pool:
            killed = pool.submit(migrate.apply, empty_database_url, phase="pre")
            while not (done := _converted(link)) and not killed.done():
                pass
            link.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            with pytest.raises(Unavailable):
                killed.result()
        assert 0 < done <= _converted(link) < ROWS
        assert "0013_pre_reasons_of_rows.sql" in migrate.pending(empty_database_url)
        migrate.apply(empty_database_url, phase="pre")
        assert _converted(link) == ROWS
        wrong = link.execute(
            "SELECT count(*) AS rows FROM transitions"
            " WHERE reason <> %s OR detail <> jsonb_build_object('job', job_id)",
            [Why.JOB_STARTED.value],
        ).fetchone()
        assert wrong == {"rows": 0}


def _converted(link: psycopg.Connection[Any]) -> int:
    """How many rows have a code; none before there is a column for it."""
    there = link.execute(
        "SELECT FROM pg_attribute WHERE attrelid = 'transitions'::regclass AND attname = 'reason'"
    ).fetchone()
    if there is None:
        return 0
    row = link.execute("SELECT count(reason) AS rows FROM transitions").fetchone()
    assert row is not None
    return int(row["rows"])
