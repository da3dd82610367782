"""Samples are stored for the job that the Pod executes, or dropped; a session's end only becomes earlier."""

from typing import Any

import msgspec
import pytest
from tests.dispatch.dispatchworld import Guest, World, play

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
    world: World, guest: Guest, *samples: Any, name: str = "", body: Any = None
) -> Response:
    path = POD_METRICS.replace("{pod_name}", name or guest.name)
    sent = msgspec.json.encode({"samples": samples}) if body is None else body
    return await world.ask("POST", path, sent, (("authorization", f"Bearer {guest.token}"),))


async def executing(world: World, guest: Guest) -> tuple[int, RunnerSession]:
    job = await world.armed(guest)
    session = world.github.connect(await world.jit(guest))
    assert isinstance(session, RunnerSession)
    await world.github.settle()
    return job, session


def test_samples_are_stored_for_the_executing_job_or_dropped(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guest, warm = await world.pod(1), await world.pod(2)
        now = world.clock.now()
        assert (await report(world, warm, sample(now), sample(now + 15))).status == 204
        await world.armed(warm, "mona/dots")
        assert (await report(world, warm, sample(now))).status == 204
        assert world.meter.get(TUIST_RUNNERS_RECOVERY_COUNT, kind=DROPPED) == 3
        job, session = await executing(world, guest)
        first = to_rfc3339(world.clock.now())
        assert (await report(world, guest, sample(first, cpu_iowait_percent=3))).status == 204
        assert (await report(world, guest, sample(first))).status == 204, "twice is once"
        session.finish("success")
        await world.github.settle()
        await world.clock.sleep(5)
        assert (await report(world, guest, sample(world.clock.now()))).status == 204
        rows = world.rows("SELECT * FROM samples ORDER BY at")
        assert [(row["job_id"], row["cpu_iowait_percent"]) for row in rows] == [(job, 3), (job, 0)]
        assert rows[0]["disk_total_bytes"] == 100 << 30
        assert world.meter.get(TUIST_RUNNERS_RECOVERY_COUNT, kind=DROPPED) == 3

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
    async def scenario(world: World) -> None:
        await world.pool()
        guest = await world.pod()
        await executing(world, guest)
        now = world.clock.now()
        if isinstance(body, bytes):
            answer = await report(world, guest, body=body)
        else:
            samples = [
                each | {"timestamp": now} if each["timestamp"] == 0.0 else each for each in body
            ]
            answer = await report(world, guest, sample(now), *samples)
        assert answer.status == 400, answer
        assert not world.rows("SELECT * FROM samples")

    play(scenario, database_url, app_keys)


def test_a_runner_reports_only_for_its_own_pod(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guest, other = await world.pod(1), await world.pod(2)
        await executing(world, guest)
        now = sample(world.clock.now())
        assert (await report(world, other, now, name=guest.name)).status == 401
        stranger = Guest(guest.name, guest.uid, "nonsense")
        assert (await report(world, stranger, now)).status == 401
        world.database.down = True
        assert (await report(world, guest, now)).status == 500
        assert not world.rows("SELECT * FROM samples")

    play(scenario, database_url, app_keys)


async def stopped(world: World, guest: Guest, ended_at: float) -> None:
    token = await world.controller_token()
    body = msgspec.json.encode({"pod_name": guest.name, "ended_at": to_rfc3339(ended_at)})
    answer = await world.ask("POST", POD_STOPPED, body, (("authorization", f"Bearer {token}"),))
    assert answer.status == 204


def test_the_end_of_a_session_only_ever_moves_earlier(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guest = await world.pod()
        await world.armed(guest)
        began = world.slot(guest)["claimed_at"].timestamp()
        await world.clock.sleep(1000)
        now = world.clock.now()

        def ended() -> float:
            return round(world.slot(guest)["ended_at"].timestamp() - began)

        await stopped(world, guest, now + 9999)
        assert ended() == 1000, "nobody knows the future"
        await stopped(world, guest, began + 600)
        assert ended() == 600
        await world.delete_pod(guest)
        await stopped(world, guest, began + 700)
        assert (ended(), world.slot(guest)["state"]) == (600, "closed")
        await stopped(world, guest, began + 500)
        assert ended() == 500, "also when it is closed"
        await stopped(world, guest, began - 500)
        assert ended() == 0, "and never before it began"

    play(scenario, database_url, app_keys)


def test_a_stop_report_that_frees_a_claim_is_a_recovery(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        claimed, idle = await world.pod(1), await world.pod(2)
        await world.armed(claimed)
        await world.poll(idle)
        for guest in (claimed, idle):
            await world.delete_pod(guest)
            await stopped(world, guest, world.clock.now())
        counts = [
            world.meter.get(TUIST_RUNNERS_RECOVERY_COUNT, kind=kind)
            for kind in ("stranded_claim_released", "pod_stop_recovery_scheduled")
        ]
        assert counts == [1, 1]

    play(scenario, database_url, app_keys)
