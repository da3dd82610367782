"""The history of a job or a slot: its transitions with their reasons, and the metrics of its machine."""

from typing import Any

import msgspec
from tests.dispatch.dispatchharness import Harness, play
from tests.fixtures_postgres import database_url, postgres  # noqa: F401 fixtures

from runyard.embedded.github.identity import generate_key_pair
from runyard.http.messages import Request, Response
from runyard.http.routes import Routes
from runyard.web.history import HistoryApi
from runyard.wire.reasons_dispatch import Why


async def nobody(_: Request) -> Response | None:
    return None


async def get(harness: Harness, path: str) -> tuple[int, Any]:
    table = Routes("history", "v1", HistoryApi(harness.database).routes(), guard=nobody)
    answer = await table.handle(Request(method="GET", path=path))
    assert isinstance(answer, Response)
    return answer.status, msgspec.json.decode(answer.body)


def test_a_transition_has_actor_time_states_and_reason(
    database_url: str,  # noqa: F811 the fixture
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        job = await harness.armed(guest)
        harness.overdue(guest)
        await harness.server.recovery.sweeper.step()
        status, found = await get(harness, f"/api/v1/jobs/{job}/transitions")
        assert status == 200 and found["more"] is False
        told = [(each["subject"], each["source"], each["target"]) for each in found["transitions"]]
        assert told == [
            ("job", "", "queued"),
            ("job", "queued", "bound"),
            ("slot", "idle", "offered"),
            ("slot", "offered", "armed"),
            ("job", "bound", "queued"),
        ]
        assert all(
            each["reason"] and each["text"] and each["actor"] and each["at"]
            for each in found["transitions"]
        )
        _, slot = await get(harness, f"/api/v1/slots/{guest.uid}/transitions")
        assert [each["target"] for each in slot["transitions"]] == [
            *("idle", "offered", "armed", "draining"),
        ]
        assert slot["transitions"][-1]["reason"] == Why.FENCE_DELETED
        assert await get(harness, "/api/v1/jobs/1/transitions") == (
            200,
            {"transitions": [], "more": False},
        )
        for nonsense in ("x", "-1", "99999999999999999999", "1.5"):
            assert (await get(harness, f"/api/v1/jobs/{nonsense}/transitions"))[0] == 400
            assert (await get(harness, f"/api/v1/jobs/{nonsense}/metrics"))[0] == 400
        harness.database.down = True
        assert (await get(harness, f"/api/v1/jobs/{job}/transitions"))[0] == 503

    play(scenario, database_url, generate_key_pair())


def test_the_samples_of_a_job(database_url: str) -> None:  # noqa: F811 the fixture
    async def scenario(harness: Harness) -> None:
        harness.execute(
            "INSERT INTO samples SELECT 7, to_timestamp(n), n, 0, 1, 2, 3, 4, 5, 6"
            " FROM generate_series(1, 3) n"
        )
        status, found = await get(harness, "/api/v1/jobs/7/metrics")
        assert status == 200
        assert [each["timestamp"] for each in found["samples"]] == [1, 2, 3]
        assert found["samples"][2] == {
            "timestamp": 3.0,
            "cpu_usage_percent": 3.0,
            "cpu_iowait_percent": 0.0,
            "memory_used_bytes": 1.0,
            "memory_total_bytes": 2.0,
            "network_bytes_in": 3.0,
            "network_bytes_out": 4.0,
            "disk_used_bytes": 5.0,
            "disk_total_bytes": 6.0,
        }
        assert (await get(harness, "/api/v1/jobs/8/metrics"))[1]["samples"] == []

    play(scenario, database_url, generate_key_pair())
