"""Samples are stored for the job that the Pod executes, or dropped; a session's end only becomes earlier."""

from typing import Any

import msgspec
import pytest
from tests.dispatch.dispatchharness import Guest, Harness, play

from runyard.embedded.github.identity import KeyPair
from runyard.embedded.github.session import RunnerSession
from runyard.http.messages import Response
from runyard.telemetry.catalogue import TUIST_RUNNERS_RECOVERY_COUNT
from runyard.wire.instants import to_rfc3339
from runyard.wire.paths import POD_METRICS, POD_STOPPED

DROPPED = "metrics_dropped_awaiting_attribution"


def sample(at: Any, **changes: Any) -> dict[str, Any]:
    return {
        "timestamp": at,
        "cpu_usage_percent": 12.5,
        "memory_used_bytes": 3 << 30,
        "memory_total_bytes": 8 << 30,
        "network_bytes_in": 1000,
        "network_bytes_out": 2000.0,
        "disk_used_bytes": 40 << 30,
        "disk_total_bytes": 100 << 30,
        **changes,
    }


async def report(
    harness: Harness, guest: Guest, *samples: Any, name: str = "", body: Any = None
) -> Response:
    path = POD_METRICS.replace("{pod_name}", name or guest.name)
    sent = msgspec.json.encode({"samples": samples}) if body is None else body
    return await harness.ask("POST", path, sent, (("authorization", f"Bearer {guest.token}"),))


async def executing(harness: Harness, guest: Guest) -> tuple[int, RunnerSession]:
    job = await harness.armed(guest)
    session = harness.github.connect(await harness.jit(guest))
    assert isinstance(session, RunnerSession)
    await harness.github.settle()
    return job, session


def test_samples_are_stored_for_the_executing_job_or_dropped(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest, warm = await harness.pod(1), await harness.pod(2)
        now = harness.clock.now()
        assert (await report(harness, warm, sample(now), sample(now + 15))).status == 204
        await harness.armed(warm, "mona/dots")
        assert (await report(harness, warm, sample(now))).status == 204
        assert harness.meter.get(TUIST_RUNNERS_RECOVERY_COUNT, kind=DROPPED) == 3
        job, session = await executing(harness, guest)
        first = to_rfc3339(harness.clock.now())
        assert (await report(harness, guest, sample(first, cpu_iowait_percent=3))).status == 204
        assert (await report(harness, guest, sample(first))).status == 204, "twice is once"
        session.finish("success")
        await harness.github.settle()
        await harness.clock.sleep(5)
        assert (await report(harness, guest, sample(harness.clock.now()))).status == 204
        rows = harness.rows("SELECT * FROM samples ORDER BY at")
        assert [(row["job_id"], row["cpu_iowait_percent"]) for row in rows] == [(job, 3), (job, 0)]
        assert rows[0]["disk_total_bytes"] == 100 << 30
        assert harness.meter.get(TUIST_RUNNERS_RECOVERY_COUNT, kind=DROPPED) == 3

    play(scenario, database_url, app_keys)


NONSENSE: list[Any] = [
    b"",
    b"[]",
    b'{"samples": 1}',
    b'{"samples": [{}]}',
    b'{"samples": [' + b"[" * 2000,
    [sample("yesterday")],
    [sample("2026-W01-1")],
    [sample(1e300)],
    [sample(-5)],
    [sample(None)],
    [sample(0.0, cpu_usage_percent=-1)],
    [sample(0.0, memory_used_bytes=1e30)],
    [sample(0.0, disk_used_bytes="much")],
    [sample(0.0)] * 501,
]


@pytest.mark.parametrize("body", NONSENSE, ids=range(len(NONSENSE)))
def test_invalid_samples_are_refused_as_a_whole(
    database_url: str, app_keys: KeyPair, body: Any
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        await executing(harness, guest)
        now = harness.clock.now()
        if isinstance(body, bytes):
            answer = await report(harness, guest, body=body)
        else:
            samples = [
                each | {"timestamp": now} if each["timestamp"] == 0.0 else each for each in body
            ]
            answer = await report(harness, guest, sample(now), *samples)
        assert answer.status == 400, answer
        assert not harness.rows("SELECT * FROM samples")

    play(scenario, database_url, app_keys)


def test_a_runner_reports_only_for_its_own_pod(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest, other = await harness.pod(1), await harness.pod(2)
        await executing(harness, guest)
        now = sample(harness.clock.now())
        assert (await report(harness, other, now, name=guest.name)).status == 401
        stranger = Guest(guest.name, guest.uid, "nonsense")
        assert (await report(harness, stranger, now)).status == 401
        harness.database.down = True
        assert (await report(harness, guest, now)).status == 500
        assert not harness.rows("SELECT * FROM samples")

    play(scenario, database_url, app_keys)


async def stopped(harness: Harness, guest: Guest, ended_at: float) -> None:
    token = await harness.controller_token()
    body = msgspec.json.encode({"pod_name": guest.name, "ended_at": to_rfc3339(ended_at)})
    answer = await harness.ask("POST", POD_STOPPED, body, (("authorization", f"Bearer {token}"),))
    assert answer.status == 204


def test_the_end_of_a_session_only_ever_moves_earlier(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        await harness.armed(guest)
        began = harness.slot(guest)["claimed_at"].timestamp()
        await harness.clock.sleep(1000)
        now = harness.clock.now()

        def ended() -> float:
            return round(harness.slot(guest)["ended_at"].timestamp() - began)

        await stopped(harness, guest, now + 9999)
        assert ended() == 1000, "nobody knows the future"
        await stopped(harness, guest, began + 600)
        assert ended() == 600
        await harness.delete_pod(guest)
        await stopped(harness, guest, began + 700)
        assert (ended(), harness.slot(guest)["state"]) == (600, "closed")
        await stopped(harness, guest, began + 500)
        assert ended() == 500, "also when it is closed"
        await stopped(harness, guest, began - 500)
        assert ended() == 0, "and never before it began"

    play(scenario, database_url, app_keys)


def test_a_stop_report_that_frees_a_claim_is_a_recovery(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        claimed, idle = await harness.pod(1), await harness.pod(2)
        await harness.armed(claimed)
        await harness.poll(idle)
        for guest in (claimed, idle):
            await harness.delete_pod(guest)
            await stopped(harness, guest, harness.clock.now())
        counts = [
            harness.meter.get(TUIST_RUNNERS_RECOVERY_COUNT, kind=kind)
            for kind in ("stranded_claim_released", "pod_stop_recovery_scheduled")
        ]
        assert counts == [1, 1]

    play(scenario, database_url, app_keys)
