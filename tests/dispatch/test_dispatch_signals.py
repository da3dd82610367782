"""The scaling signals match the rows, need a ServiceAccount, and are cheap."""

from typing import Any

import pytest
from tests.dispatch.dispatchworld import World, play

from runyard.dispatch.settings import Limit
from runyard.dispatch.store import SQL
from runyard.embedded.github.identity import KeyPair
from runyard.http.messages import Request, Response
from runyard.wire.paths import DESIRED_REPLICAS

SMALL = (Limit(platform="macos", vcpus=8, memory_gb=64),)  # two runners of four each


async def ask(world: World, fleet: str | None = "mac", token: str | None = None) -> Response:
    if token is None:
        token = await world.controller_token("some-autoscaler")
    assert world.handle is not None
    query = () if fleet is None else (("fleet", fleet),)
    answer = await world.handle(
        Request(
            method="GET",
            path=DESIRED_REPLICAS,
            query=query,
            headers=(("authorization", f"Bearer {token}"),),
        )
    )
    assert isinstance(answer, Response)
    return answer


async def signals(world: World, fleet: str = "mac") -> dict[str, Any]:
    await world.clock.sleep(31)  # longer than any cache
    answer = await ask(world, fleet)
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json()
    return found


def test_demand_counts_dispatchable_jobs_and_the_rest_is_withheld(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        for _ in range(5):
            await world.queued()
        await world.queued("mona/dots")
        await world.queued("acme/app", ("ubuntu-latest",))
        assert await signals(world) == {
            "fleet": "mac",
            "claimed": 0,
            "occupied": 0,
            "queued": 3,  # two of acme's five, and mona's one
            "withheld": 3,
            "p95_concurrent_last_hour": 0,
        }
        guest = await world.pod()
        async with world.waiting(guest):
            await world.match()
        found = await signals(world)
        assert (found["claimed"], found["occupied"]) == (1, 1)
        assert (found["queued"], found["withheld"]) == (2, 3)
        world.execute("UPDATE tenants SET paused = true WHERE tenant = 'acme'")
        found = await signals(world)
        assert found["queued"] + found["withheld"] == 5 and found["queued"] <= 1

    play(scenario, database_url, app_keys, default_limits=SMALL)


def test_a_pod_is_occupied_until_it_is_proven_gone(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guest = await world.pod()
        await world.armed(guest)
        world.overdue(guest)
        await world.server.recovery.sweeper.step()
        assert world.slot(guest)["state"] == "draining"
        found = await signals(world)
        assert (found["claimed"], found["occupied"]) == (1, 1)
        world.overdue(guest)
        await world.server.recovery.sweeper.step()
        found = await signals(world)
        assert (found["claimed"], found["occupied"]) == (0, 0)
        assert found["p95_concurrent_last_hour"] == 1, "it was, within the last hour"

    play(scenario, database_url, app_keys)


def test_an_unknown_pool_has_no_demand(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await world.queued()
        found = await signals(world, "nothing-like-it")
        assert found.pop("fleet") == "nothing-like-it"
        assert not any(found.values())

    play(scenario, database_url, app_keys)


def test_only_service_accounts_get_signals_of_a_named_pool(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guest = await world.pod()
        assert (await ask(world, token="")).status == 401
        assert (await ask(world, token="nonsense")).status == 401
        assert (await ask(world, token=guest.token)).status == 401, "for another audience"
        for fleet in (None, "", "x" * 254, "mac\n"):
            assert (await ask(world, fleet)).status == 400
        assert (await ask(world)).status == 200
        await world.clock.sleep(2)
        world.database.down = True
        assert (await ask(world)).status == 500
        world.database.down = False
        token = await world.controller_token("some-autoscaler")

        async def away(*_: object) -> Response:
            return Response(status=500)

        world.kube_wire.tamper = away
        assert (await ask(world, token=token)).status == 503

    play(scenario, database_url, app_keys)


SESSION = (
    "INSERT INTO slots (pod_uid, pod_name, pool, generation, state, deadline, last_beat, opened_at,"
    " claimed_at, ended_at) SELECT 'u' || n || %s, 'p' || n || %s, 'mac', 1, %s, {now}, {now}, {now},"
    " {now} - make_interval(secs => %s), {now} - make_interval(secs => %s)"
    " FROM generate_series(1, %s) n"
)


def session(world: World, name: str, *, began: float, ended: float | None, pods: int) -> None:
    state = "executing" if ended is None else "closed"
    now = f"to_timestamp({world.clock.now()!r})"
    world.execute(SESSION.format(now=now), name, name, state, began, ended, pods)


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
    async def scenario(world: World) -> None:
        await world.pool()
        await world.clock.sleep(10 * 3600 + 1.0)
        for number, (began, ended, pods) in enumerate(sessions):
            session(world, f"s{number}-", began=began, ended=ended, pods=pods)
        assert (await signals(world))["p95_concurrent_last_hour"] == expected

    play(scenario, database_url, app_keys)


def test_a_mint_that_failed_was_no_session(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guest = await world.pod()
        await world.offered(guest)
        assert world.slot(guest)["claimed_at"] is not None
        world.github.suspend(world.acme)
        await world.mint()
        assert world.slot(guest)["state"] == "idle"
        assert world.slot(guest)["claimed_at"] is None
        assert (await signals(world))["p95_concurrent_last_hour"] == 0

    play(scenario, database_url, app_keys)


def test_the_answer_reads_only_indexes(database_url: str, app_keys: KeyPair) -> None:
    """Finished jobs are not read."""

    async def scenario(world: World) -> None:
        await world.pool()
        await world.queued()
        world.execute(
            "INSERT INTO jobs (job_id, tenant, repository, labels, state, verified, enqueued_at,"
            " look_at, completed_at) SELECT 1000000 + n, 'acme', 'acme/app', '{x}', 'done', false,"
            " '2026-01-01Z', '2026-01-01Z', '2026-01-01Z' FROM generate_series(1, 20000) n"
        )
        world.execute("ANALYZE jobs")
        for sql, params in (
            (SQL.queue_kinds, {"most": 10_000, "kinds": 1000}),
            (SQL.sessions_p95, {"pool": "mac"}),
            (SQL.claims_by_pool, {}),
        ):
            plan = "\n".join(
                str(row["QUERY PLAN"])
                for row in world._link.execute("EXPLAIN " + sql, params).fetchall()
            )
            assert "Seq Scan on jobs" not in plan, plan

    play(scenario, database_url, app_keys)
