"""The matcher on a real queue: blocked first jobs, fairness across restarts, budgets, and pools that change."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
import pytest
from tests.dispatch.dispatchworld import LABELS, SPACE, Guest, Onward, World, play

from runyard.components import server
from runyard.db.contract import Tx
from runyard.dispatch.guards import without
from runyard.dispatch.settings import Limit
from runyard.embedded.github.identity import KeyPair
from runyard.http.messages import Request, Response, Stream, json_response
from runyard.kube.kinds import RUNNER_POOLS

T = TypeVar("T")


def flood(world: World, tenant: str, count: int, labels: tuple[str, ...] = LABELS) -> None:
    """Insert many queued jobs, older than later ones."""
    world.execute(
        "INSERT INTO tenants (tenant, installation_id) VALUES (%s, %s) ON CONFLICT DO NOTHING",
        tenant,
        world.acme,
    )
    world.execute(
        "INSERT INTO tenant_limits SELECT %s, p, 1000, 2000 FROM unnest('{macos,linux}'::text[]) p"
        " ON CONFLICT DO NOTHING",
        tenant,
    )
    world.execute(
        "INSERT INTO jobs (job_id, tenant, repository, labels, state, verified, enqueued_at, look_at)"
        " SELECT (SELECT coalesce(max(job_id), 0) FROM jobs WHERE job_id < 1000000) + n, %s, %s, %s,"
        " 'queued', true, '2025-01-01Z', '2100-01-01Z' FROM generate_series(1, %s) n",
        tenant,
        f"{tenant}/app",
        list(labels),
        count,
    )


async def served(world: World, *guests: Guest) -> list[tuple[str, int]]:
    async with world.waiting(*guests):
        await world.match()
    for mint in world.mints:
        mint.close()  # type: ignore[attr-defined]  # coroutines, in truth
    world.mints.clear()
    return [(world.slot(guest)["tenant"], world.slot(guest)["intended_job"]) for guest in guests]


def test_jobs_that_fit_nowhere_do_not_hide_those_behind_them(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        flood(world, "acme", 500, ("ubuntu-latest",))
        flood(world, "acme", 500, (*LABELS, "gpu"))
        job = await world.queued()
        assert await served(world, await world.pod()) == [("acme", job)]

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize(("odd", "steps"), [(("ubuntu-latest",), 1), (LABELS, 3)])
def test_very_many_kinds_of_jobs_do_not_hide_those_behind_them(
    database_url: str, app_keys: KeyPair, odd: tuple[str, ...], steps: int
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        flood(world, "acme", 450, odd)
        # Each has a label of its own, which no pool has, and a repository that comes before.
        world.execute(
            "UPDATE jobs SET labels = labels || ('run-' || job_id), repository = 'acme/a'"
        )
        job, guest = await world.queued(), await world.pod()
        for _ in range(steps - 1):
            assert await served(world, guest) == [("", None)]
        assert await served(world, guest) == [("acme", job)]

    play(scenario, database_url, app_keys)


def test_jobs_of_a_pool_without_idle_runners_do_not_hide_others(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        linux = {"os": "linux", "dispatchLabel": "shape-linux", "runnerLabels": ["self-hosted"]}
        await world.pool("linux", **linux)
        flood(world, "acme", 500)
        job = await world.queued("acme/app", ("shape-linux",))
        assert await served(world, await world.pod(1, pool="linux")) == [("acme", job)]

    play(scenario, database_url, app_keys)


def test_a_flood_does_not_delay_the_first_job_of_another_tenant(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guests = [await world.pod(n) for n in range(1, 8)]
        flood(world, "aaa", 10_000)
        first = await served(world, *guests[:4])
        assert {tenant for tenant, _ in first} == {"aaa"}
        job = await world.queued("mona/dots")
        assert await served(world, guests[4]) == [("mona", job)]
        # No claim is held for days: still no tenant gets credit.
        world.execute(
            "UPDATE slots SET state = 'closed', intended_job = NULL WHERE state = 'offered'"
        )
        world.execute("UPDATE jobs SET state = 'done' WHERE state = 'bound'")
        flood(world, "zzz", 100)
        last = await served(world, *guests[5:])
        assert sorted(tenant for tenant, _ in last) == ["aaa", "zzz"]

    play(scenario, database_url, app_keys)


def test_charges_of_two_replicas_add_up(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        first, second = await world.pod(1), await world.pod(2)
        flood(world, "aaa", 10)
        await served(world, first)
        own = "SELECT vtime, vstart FROM virtual_times WHERE tenant = 'aaa' AND repository = ''"
        (tenant,) = world.rows(own)
        assert (tenant["vstart"], tenant["vtime"]) == (0.0, 4.0)
        world.execute("UPDATE tenants SET weight = 2")
        world.execute(
            "UPDATE virtual_times SET vtime = vtime + 100"
        )  # another replica claimed meanwhile
        await served(world, second)
        (tenant,) = world.rows(own)
        assert (tenant["vstart"], tenant["vtime"]) == (104.0, 106.0)

    play(scenario, database_url, app_keys)


def test_a_used_up_budget_holds_no_other_tenants_jobs(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guests = [await world.pod(n) for n in range(1, 6)]
        for _ in range(4):
            await world.queued()
        job = await world.queued("mona/dots")
        found = await served(world, *guests)
        assert sorted(tenant for tenant, _ in found) == ["", "", "acme", "acme", "mona"]
        assert ("mona", job) in found
        used = world.rows("SELECT sum(vcpus) AS vcpus FROM slots WHERE tenant = 'acme'")
        assert used == [{"vcpus": 8}]

    limits = (Limit(platform="macos", vcpus=8, memory_gb=100),)
    play(scenario, database_url, app_keys, default_limits=limits)


def test_a_vacant_runner_is_used_before_another_is_minted(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        armed, idle = await world.pod(1), await world.pod(2)
        first = await world.armed(armed)
        world.github.cancel_job(first)
        await world.github.settle()
        assert world.slot(armed)["intended_job"] is None
        job = await world.queued()
        async with world.waiting(idle):
            await world.match()
        assert world.slot(armed)["intended_job"] == job
        assert world.slot(idle)["state"] == "idle" and world.mints == []

    play(scenario, database_url, app_keys)


def test_an_invalid_pool_does_not_hide_the_others(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await world.pool()

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            answer = await onward()
            assert isinstance(answer, Response)
            if "runnerpools" not in request.path:
                return answer
            body = answer.json()
            body["items"].insert(0, {"metadata": {"name": "bad"}, "spec": {"os": "plan9"}})
            return json_response(200, body)

        world.kube_wire.tamper = tamper
        await world.server.shared.pools.refresh()
        assert [pool.name for pool in world.server.shared.pools.known] == ["mac"]
        job = await world.queued()
        assert await served(world, await world.pod()) == [("acme", job)]

    play(scenario, database_url, app_keys)


def test_a_pool_that_is_created_later_gets_the_waiting_jobs(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        job = await world.queued("acme/app", ("new-shape",))
        guest = await world.pod(1, pool="late")
        assert await served(world, guest) == [("", None)]
        await world.pool("late", dispatchLabel="new-shape", podCPUMilli=1500, podMemoryMB=1500)
        assert await served(world, guest) == [("acme", job)]
        slot = world.slot(guest)
        assert (slot["vcpus"], slot["memory_gb"]) == (2, 2), "parts of a core count as one"
        await world.admin.delete(RUNNER_POOLS, "late", namespace=SPACE)
        assert msgspec.json.encode(world.server.shared.pools.known)

    play(scenario, database_url, app_keys)


class RequeuedMeanwhile:
    """Requeues every job between the snapshot and the claim, so that it must be read first."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def transact(self, work: Callable[[Tx], Awaitable[T]], *, name: str) -> T:
        if name == "claim":
            self._world.execute("UPDATE jobs SET verified = false")
        return await self._world.database.transact(work, name=name)


@pytest.mark.parametrize(
    ("off", "state"), [((), "queued"), (("read_before_second_offer",), "bound")]
)
def test_a_claim_refuses_a_job_that_must_be_read_first(
    database_url: str, app_keys: KeyPair, off: tuple[str, ...], state: str
) -> None:
    async def scenario(world: World) -> None:
        deps = world.deps(database=RequeuedMeanwhile(world), guards=without(*off))
        world.server = server.wire(deps)
        world.handle = world.server.intake.api.handle
        await world.pool()
        guest, job = await world.pod(), await world.queued()
        await served(world, guest)
        assert world.job(job)["state"] == state

    play(scenario, database_url, app_keys)
