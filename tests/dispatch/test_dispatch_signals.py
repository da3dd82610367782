"""The scaling signals match the rows, need a ServiceAccount, and are cheap."""

from typing import Any

import pytest
from tests.dispatch.dispatchharness import Harness, play

from runyard.dispatch.settings import Limit
from runyard.dispatch.store import SQL
from runyard.embedded.github.identity import KeyPair
from runyard.http.messages import Request, Response
from runyard.wire.paths import DESIRED_REPLICAS

SMALL = (Limit(platform="macos", vcpus=8, memory_gb=64),)  # two runners of four each


async def ask(harness: Harness, fleet: str | None = "mac", token: str | None = None) -> Response:
    if token is None:
        token = await harness.controller_token("some-autoscaler")
    assert harness.handle is not None
    query = () if fleet is None else (("fleet", fleet),)
    answer = await harness.handle(
        Request(
            method="GET",
            path=DESIRED_REPLICAS,
            query=query,
            headers=(("authorization", f"Bearer {token}"),),
        )
    )
    assert isinstance(answer, Response)
    return answer


async def signals(harness: Harness, fleet: str = "mac") -> dict[str, Any]:
    await harness.clock.sleep(31)  # longer than any cache
    answer = await ask(harness, fleet)
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json()
    return found


def test_demand_counts_dispatchable_jobs_and_the_rest_is_withheld(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        for _ in range(5):
            await harness.queued()
        await harness.queued("mona/dots")
        await harness.queued("acme/app", ("ubuntu-latest",))
        assert await signals(harness) == {
            "fleet": "mac",
            "claimed": 0,
            "occupied": 0,
            "queued": 3,  # two of acme's five, and mona's one
            "withheld": 3,
            "p95_concurrent_last_hour": 0,
        }
        guest = await harness.pod()
        async with harness.waiting(guest):
            await harness.match()
        found = await signals(harness)
        assert (found["claimed"], found["occupied"]) == (1, 1)
        assert (found["queued"], found["withheld"]) == (2, 3)
        harness.execute("UPDATE tenants SET paused = true WHERE tenant = 'acme'")
        found = await signals(harness)
        assert found["queued"] + found["withheld"] == 5 and found["queued"] <= 1

    play(scenario, database_url, app_keys, default_limits=SMALL)


def test_a_pod_is_occupied_until_it_is_proven_gone(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        await harness.armed(guest)
        harness.overdue(guest)
        await harness.server.recovery.sweeper.step()
        assert harness.slot(guest)["state"] == "draining"
        found = await signals(harness)
        assert (found["claimed"], found["occupied"]) == (1, 1)
        harness.overdue(guest)
        await harness.server.recovery.sweeper.step()
        found = await signals(harness)
        assert (found["claimed"], found["occupied"]) == (0, 0)
        assert found["p95_concurrent_last_hour"] == 1, "it was, within the last hour"

    play(scenario, database_url, app_keys)


def test_an_unknown_pool_has_no_demand(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.queued()
        found = await signals(harness, "nothing-like-it")
        assert found.pop("fleet") == "nothing-like-it"
        assert not any(found.values())

    play(scenario, database_url, app_keys)


def test_only_service_accounts_get_signals_of_a_named_pool(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        assert (await ask(harness, token="")).status == 401
        assert (await ask(harness, token="nonsense")).status == 401
        assert (await ask(harness, token=guest.token)).status == 401, "for another audience"
        for fleet in (None, "", "x" * 254, "mac\n"):
            assert (await ask(harness, fleet)).status == 400
        assert (await ask(harness)).status == 200
        await harness.clock.sleep(2)
        harness.database.down = True
        assert (await ask(harness)).status == 500
        harness.database.down = False
        token = await harness.controller_token("some-autoscaler")

        async def away(*_: object) -> Response:
            return Response(status=500)

        harness.kube_wire.tamper = away
        assert (await ask(harness, token=token)).status == 503

    play(scenario, database_url, app_keys)


SESSION = (
    "INSERT INTO slots (pod_uid, pod_name, pool, generation, state, deadline, last_beat, opened_at,"
    " claimed_at, ended_at) SELECT 'u' || n || %s, 'p' || n || %s, 'mac', 1, %s, {now}, {now}, {now},"
    " {now} - make_interval(secs => %s), {now} - make_interval(secs => %s)"
    " FROM generate_series(1, %s) n"
)


def session(harness: Harness, name: str, *, began: float, ended: float | None, pods: int) -> None:
    state = "executing" if ended is None else "closed"
    now = f"to_timestamp({harness.clock.now()!r})"
    harness.execute(SESSION.format(now=now), name, name, state, began, ended, pods)


@pytest.mark.parametrize(
    ("sessions", "expected"),
    [
        ([], 0),
        ([(30 * 60, None, 4)], 4),
        ([(59 * 60, 57 * 60, 9), (56 * 60, None, 2)], 2),  # three minutes of 59 are within 5 %
        ([(59 * 60, 54 * 60, 9), (53 * 60, None, 2)], 9),  # six are not
        ([(90, 30, 3)], 3),  # minutes in which there was nothing do not count
        ([(2 * 3600, 61 * 60, 5)], 0),  # ended before
        ([(5.5 * 3600, None, 5)], 5),
        ([(8 * 3600, None, 5)], 0),  # a session counts for six hours
    ],
)
def test_the_concurrency_of_the_last_hour(
    database_url: str,
    app_keys: KeyPair,
    sessions: list[tuple[float, float | None, int]],
    expected: int,
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        await harness.clock.sleep(10 * 3600 + 1.0)
        for number, (began, ended, pods) in enumerate(sessions):
            session(harness, f"s{number}-", began=began, ended=ended, pods=pods)
        assert (await signals(harness))["p95_concurrent_last_hour"] == expected

    play(scenario, database_url, app_keys)


def test_a_mint_that_failed_was_no_session(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        await harness.offered(guest)
        assert harness.slot(guest)["claimed_at"] is not None
        harness.github.suspend(harness.acme)
        await harness.mint()
        assert harness.slot(guest)["state"] == "idle"
        assert harness.slot(guest)["claimed_at"] is None
        assert (await signals(harness))["p95_concurrent_last_hour"] == 0

    play(scenario, database_url, app_keys)


def test_the_answer_reads_only_indexes(database_url: str, app_keys: KeyPair) -> None:
    """Finished jobs are not read."""

    async def scenario(harness: Harness) -> None:
        await harness.pool()
        await harness.queued()
        harness.execute(
            "INSERT INTO jobs (job_id, tenant, repository, labels, state, verified, enqueued_at,"
            " look_at, completed_at) SELECT 1000000 + n, 'acme', 'acme/app', '{x}', 'done', false,"
            " '2026-01-01Z', '2026-01-01Z', '2026-01-01Z' FROM generate_series(1, 20000) n"
        )
        harness.execute("ANALYZE jobs")
        for sql, params in (
            (SQL.queue_kinds, {"most": 10_000, "kinds": 1000}),
            (SQL.sessions_p95, {"pool": "mac"}),
            (SQL.claims_by_pool, {}),
        ):
            plan = "\n".join(
                str(row["QUERY PLAN"])
                for row in harness._link.execute("EXPLAIN " + sql, params).fetchall()
            )
            assert "Seq Scan on jobs" not in plan, plan

    play(scenario, database_url, app_keys)
