"""The matcher on a real queue: blocked first jobs, fairness across restarts, budgets, and pools that change."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
import pytest
from tests.dispatch.dispatchharness import LABELS, SPACE, Guest, Harness, Onward, play

from runyard.components import server
from runyard.db.contract import Row, Statement, Tx
from runyard.db.inline import InlineTx
from runyard.dispatch.guards import without
from runyard.dispatch.matching.values import Hold
from runyard.dispatch.settings import Limit, Settings
from runyard.embedded.github.identity import KeyPair
from runyard.http.messages import Request, Response, Stream, json_response
from runyard.kube.kinds import RUNNER_POOLS
from runyard.web.explain.context import DispatchLimits

T = TypeVar("T")


def flood(harness: Harness, tenant: str, count: int, labels: tuple[str, ...] = LABELS) -> None:
    """Insert many queued jobs, older than later ones."""
    harness.execute(
        "INSERT INTO tenants (tenant, installation_id) VALUES (%s, %s) ON CONFLICT DO NOTHING",
        tenant,
        harness.acme,
    )
    harness.execute(
        "INSERT INTO tenant_limits SELECT %s, p, 1000, 2000 FROM unnest('{macos,linux}'::text[]) p"
        " ON CONFLICT DO NOTHING",
        tenant,
    )
    harness.execute(
        "INSERT INTO jobs (job_id, tenant, repository, labels, state, verified, enqueued_at, look_at)"
        " SELECT (SELECT coalesce(max(job_id), 0) FROM jobs WHERE job_id < 1000000) + n, %s, %s, %s,"
        " 'queued', true, '2025-01-01Z', '2100-01-01Z' FROM generate_series(1, %s) n",
        tenant,
        f"{tenant}/app",
        list(labels),
        count,
    )


async def served(harness: Harness, *guests: Guest) -> list[tuple[str, int]]:
    async with harness.waiting(*guests):
        await harness.match()
    for mint in harness.mints:
        mint.close()  # type: ignore[attr-defined]  # coroutines, in truth
    harness.mints.clear()
    return [
        (harness.slot(guest)["tenant"], harness.slot(guest)["intended_job"]) for guest in guests
    ]


def test_jobs_that_fit_nowhere_do_not_hide_those_behind_them(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        flood(harness, "acme", 500, ("ubuntu-latest",))
        flood(harness, "acme", 500, (*LABELS, "gpu"))
        job = await harness.queued()
        assert await served(harness, await harness.pod()) == [("acme", job)]

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize(("odd", "steps"), [(("ubuntu-latest",), 1), (LABELS, 3)])
def test_very_many_kinds_of_jobs_do_not_hide_those_behind_them(
    database_url: str, app_keys: KeyPair, odd: tuple[str, ...], steps: int
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        flood(harness, "acme", 450, odd)
        # Each has a label of its own, which no pool has, and a repository that comes before.
        harness.execute(
            "UPDATE jobs SET labels = labels || ('run-' || job_id), repository = 'acme/a'"
        )
        job, guest = await harness.queued(), await harness.pod()
        for _ in range(steps - 1):
            assert await served(harness, guest) == [("", None)]
        assert await served(harness, guest) == [("acme", job)]

    play(scenario, database_url, app_keys)


def test_jobs_of_a_pool_without_idle_runners_do_not_hide_others(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        linux = {"os": "linux", "dispatchLabel": "shape-linux", "runnerLabels": ["self-hosted"]}
        await harness.pool("linux", **linux)
        flood(harness, "acme", 500)
        job = await harness.queued("acme/app", ("shape-linux",))
        assert await served(harness, await harness.pod(1, pool="linux")) == [("acme", job)]

    play(scenario, database_url, app_keys)


def test_a_flood_does_not_delay_the_first_job_of_another_tenant(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guests = [await harness.pod(n) for n in range(1, 8)]
        flood(harness, "aaa", 10_000)
        first = await served(harness, *guests[:4])
        assert {tenant for tenant, _ in first} == {"aaa"}
        job = await harness.queued("mona/dots")
        assert await served(harness, guests[4]) == [("mona", job)]
        # No claim is held for days: still no tenant gets credit.
        harness.execute(
            "UPDATE slots SET state = 'closed', intended_job = NULL WHERE state = 'offered'"
        )
        harness.execute("UPDATE jobs SET state = 'done' WHERE state = 'bound'")
        flood(harness, "zzz", 100)
        last = await served(harness, *guests[5:])
        assert sorted(tenant for tenant, _ in last) == ["aaa", "zzz"]

    play(scenario, database_url, app_keys)


def test_charges_of_two_replicas_add_up(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        first, second = await harness.pod(1), await harness.pod(2)
        flood(harness, "aaa", 10)
        await served(harness, first)
        own = "SELECT vtime, vstart FROM virtual_times WHERE tenant = 'aaa' AND repository = ''"
        (tenant,) = harness.rows(own)
        assert (tenant["vstart"], tenant["vtime"]) == (0.0, 4.0)
        harness.execute("UPDATE tenants SET weight = 2")
        harness.execute(
            "UPDATE virtual_times SET vtime = vtime + 100"
        )  # another replica claimed meanwhile
        await served(harness, second)
        (tenant,) = harness.rows(own)
        assert (tenant["vstart"], tenant["vtime"]) == (104.0, 106.0)

    play(scenario, database_url, app_keys)


def test_a_used_up_budget_holds_no_other_tenants_jobs(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guests = [await harness.pod(n) for n in range(1, 6)]
        for _ in range(4):
            await harness.queued()
        job = await harness.queued("mona/dots")
        found = await served(harness, *guests)
        assert sorted(tenant for tenant, _ in found) == ["", "", "acme", "acme", "mona"]
        assert ("mona", job) in found
        used = harness.rows("SELECT sum(vcpus) AS vcpus FROM slots WHERE tenant = 'acme'")
        assert used == [{"vcpus": 8}]

    limits = (Limit(platform="macos", vcpus=8, memory_gb=100),)
    play(scenario, database_url, app_keys, default_limits=limits)


def test_a_vacant_runner_is_used_before_another_is_minted(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        armed, idle = await harness.pod(1), await harness.pod(2)
        first = await harness.armed(armed)
        harness.github.cancel_job(first)
        await harness.github.settle()
        assert harness.slot(armed)["intended_job"] is None
        job = await harness.queued()
        async with harness.waiting(idle):
            await harness.match()
        assert harness.slot(armed)["intended_job"] == job
        await harness.mint()
        assert harness.slot(idle)["state"] == "idle" and len(harness.github.runners()) == 1

    play(scenario, database_url, app_keys)


def test_an_invalid_pool_does_not_hide_the_others(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            answer = await onward()
            assert isinstance(answer, Response)
            if "runnerpools" not in request.path:
                return answer
            body = answer.json()
            body["items"].insert(0, {"metadata": {"name": "bad"}, "spec": {"os": "plan9"}})
            return json_response(200, body)

        harness.kube_wire.tamper = tamper
        await harness.server.shared.pools.refresh()
        assert [pool.name for pool in harness.server.shared.pools.known] == ["mac"]
        job = await harness.queued()
        assert await served(harness, await harness.pod()) == [("acme", job)]

    play(scenario, database_url, app_keys)


def test_a_pool_that_is_created_later_gets_the_waiting_jobs(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        job = await harness.queued("acme/app", ("new-shape",))
        guest = await harness.pod(1, pool="late")
        assert await served(harness, guest) == [("", None)]
        await harness.pool("late", dispatchLabel="new-shape", podCPUMilli=1500, podMemoryMB=1500)
        assert await served(harness, guest) == [("acme", job)]
        slot = harness.slot(guest)
        assert (slot["vcpus"], slot["memory_gb"]) == (2, 2), "parts of a core count as one"
        await harness.admin.delete(RUNNER_POOLS, "late", namespace=SPACE)
        assert msgspec.json.encode(harness.server.shared.pools.known)

    play(scenario, database_url, app_keys)


class RequeuedMeanwhile:
    """Requeues every job between the snapshot and the claim, so that it must be read first."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness

    async def transact(self, work: Callable[[Tx], Awaitable[T]], *, name: str) -> T:
        if name == "claim":
            self._harness.execute("UPDATE jobs SET verified = false")
        return await self._harness.database.transact(work, name=name)


@pytest.mark.parametrize(
    ("off", "state"), [((), "queued"), (("read_before_second_offer",), "bound")]
)
def test_a_claim_refuses_a_job_that_must_be_read_first(
    database_url: str, app_keys: KeyPair, off: tuple[str, ...], state: str
) -> None:
    async def scenario(harness: Harness) -> None:
        deps = harness.deps(database=RequeuedMeanwhile(harness), guards=without(*off))
        harness.server = server.wire(deps)
        harness.handle = harness.server.intake.api.handle
        await harness.pool()
        guest, job = await harness.pod(), await harness.queued()
        await served(harness, guest)
        assert harness.job(job)["state"] == state

    play(scenario, database_url, app_keys)


def counted_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts the round trips that only read."""
    reads: list[int] = []
    read = InlineTx.read

    async def counting(tx: InlineTx, *statements: Statement) -> list[list[Row]]:
        reads.append(len(statements))
        return await read(tx, *statements)

    monkeypatch.setattr(InlineTx, "read", counting)
    return reads


def test_a_job_that_arrived_here_is_matched_after_one_read(
    database_url: str, app_keys: KeyPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest, job = await harness.pod(), await harness.queued()
        reads = counted_reads(monkeypatch)
        assert await served(harness, guest) == [("acme", job)]
        assert len(reads) == 1

    play(scenario, database_url, app_keys)


def test_jobs_that_arrived_elsewhere_are_read_beside_one_that_arrived_here(
    database_url: str, app_keys: KeyPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        flood(harness, "acme", 1, (*LABELS, "arm64"))  # no runner fits it
        flood(harness, "zeta", 1)
        guests = [await harness.pod(), await harness.pod(2)]
        job = await harness.queued()
        reads = counted_reads(monkeypatch)
        found = dict(await served(harness, *guests))
        assert found["acme"] == job
        assert sorted(found) == ["acme", "zeta"]
        assert len(reads) == 2

    play(scenario, database_url, app_keys)


def test_a_job_that_arrived_here_and_is_held_is_not_matched(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        harness.github.add_repo("acme/tool")
        first, second = await harness.queued(), await harness.queued("acme/tool")
        harness.execute(
            "INSERT INTO exclusions (kind, name, until, since, failures, reason)"
            " VALUES ('repository', 'acme/app', '2100-01-01Z', '2025-01-01Z', 1, 'no-answer')"
        )
        guests = [await harness.pod(), await harness.pod(2)]
        async with harness.waiting(*guests):
            await harness.match()
        offered = [harness.slot(guest)["intended_job"] for guest in guests]
        assert offered.count(second) == 1
        assert first not in offered

    play(scenario, database_url, app_keys)


def test_a_runner_that_stopped_polling_is_idle_for_no_job(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        async with harness.waiting(guest):
            pass
        await harness.queued()
        assert (await harness.server.matcher.preview()).proposals, "it polled just now"
        await harness.clock.sleep(30)
        found = await harness.server.matcher.preview()
        assert found.proposals == ()
        assert [held.hold for held in found.held] == [Hold.NO_RUNNER]

    play(scenario, database_url, app_keys)


def test_a_replica_that_has_not_read_the_pools_says_so(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.queued()
        assert not (await harness.server.matcher.preview()).pools_read
        await harness.pool()
        assert (await harness.server.matcher.preview()).pools_read

    play(scenario, database_url, app_keys)


def test_dispatch_and_dashboard_agree_when_a_runner_polls() -> None:
    settings = Settings(webhook_secrets=("x",), seal_key=bytes(32))
    assert DispatchLimits().asking_within == settings.asking_within
    assert settings.poll_wait_max < settings.asking_within < 30.0
