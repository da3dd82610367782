"""The gauges that alerts use match the rows."""

from tests.dispatch.dispatchharness import Guest, Harness, play

from runyard.components import server
from runyard.dispatch.machine.values import Headroom
from runyard.dispatch.matching.values import PoolView
from runyard.dispatch.plans.queue import Figures, Waiting, figures
from runyard.embedded.github.identity import KeyPair
from runyard.telemetry import conditions
from runyard.telemetry.catalogue import (
    TUIST_RUNNERS_CLAIMS_COUNT,
    TUIST_RUNNERS_QUEUE_LENGTH,
    TUIST_RUNNERS_QUEUE_OLDEST_DISPATCHABLE_AGE_SECONDS,
)
from runyard.telemetry.health import Health

POOL = PoolView(
    name="mac",
    platform="macos",
    labels=("self-hosted", "mac"),
    dispatch_label="mac",
    mint_labels=("self-hosted", "mac"),
    vcpus=4,
    memory_gb=8,
)


def _waiting(tenant: str, *, labels: tuple[str, ...] = ("mac",), oldest: float = 60.0) -> Waiting:
    return Waiting(tenant=tenant, labels=labels, jobs=2, oldest=oldest, offerable=oldest - 10.0)


def test_a_job_that_waits_for_its_tenants_budget_raises_no_alert() -> None:
    headrooms = (
        ("rich", "macos", Headroom(vcpus=4, memory_gb=8)),
        ("poor", "macos", Headroom(vcpus=3, memory_gb=8)),
    )
    found = figures((POOL,), (_waiting("rich"), _waiting("poor", oldest=900.0)), headrooms)
    assert found == (
        Figures(pool="mac", length=4, withheld=3, oldest=900.0, oldest_dispatchable=50.0),
    )


def test_jobs_of_other_pools_and_unknown_tenants_do_not_count_as_dispatchable() -> None:
    found = figures((POOL,), (_waiting("who"), _waiting("rich", labels=("linux",))), ())
    assert found == (Figures(pool="mac", length=2, withheld=2, oldest=60.0),)
    assert figures((POOL,), (), ()) == (Figures(pool="mac"),)


def test_the_gauges_follow_the_rows(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        await harness.server.shared.pools.refresh()
        await harness.queued()
        await harness.clock.sleep(42)
        await harness.server.gauges.step()
        assert harness.meter.get(TUIST_RUNNERS_QUEUE_LENGTH, fleet="mac") == 1
        age = harness.meter.get(TUIST_RUNNERS_QUEUE_OLDEST_DISPATCHABLE_AGE_SECONDS, fleet="mac")
        assert age is not None
        assert 42 <= age < 43
        guest = await harness.pod()
        async with harness.waiting(guest):
            await harness.match()
        await harness.server.gauges.step()
        assert harness.meter.get(TUIST_RUNNERS_QUEUE_LENGTH, fleet="mac") == 0
        claims = harness.meter.get(
            TUIST_RUNNERS_CLAIMS_COUNT, fleet="mac", lifecycle_state="claimed"
        )
        assert claims == 1
        for mint in harness.mints:
            mint.close()  # type: ignore[attr-defined]  # a coroutine that is not needed here

    play(scenario, database_url, app_keys)


def test_jobs_that_wait_while_runners_are_idle_are_a_health_condition(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        health = Health(harness.clock, conditions.ALL)
        wired = server.wire(harness.deps(health=health))
        await harness.pool()
        await wired.shared.pools.refresh()
        guest = await harness.pod()
        await harness.queued()
        await harness.clock.sleep(61)

        async def read_conditions(*polling: Guest) -> list[str]:
            await wired.gauges.step()
            await harness.clock.sleep(61)
            for each in polling:
                await harness.poll(each)
            await wired.gauges.step()
            return [report.message for report in health.report() if report.code == "jobs-starve"]

        assert not await read_conditions(), "nobody is there who could run it: add hosts"
        await harness.poll(guest)
        await wired.gauges.step()
        await harness.clock.sleep(61)
        await harness.poll(guest)
        messages = await read_conditions(guest)
        assert messages and messages[0].startswith("mac: a job waits for ")
        assert health.healthy(), "no reason to take the server away from its runners"
        await harness.clock.sleep(30)
        await wired.gauges.step()
        assert not [each for each in health.report() if each.code == "jobs-starve"], (
            "a runner that stopped polling is not idle"
        )
        await harness.poll(guest)
        harness.execute("UPDATE tenants SET paused = true")
        await harness.poll(guest)
        assert not await read_conditions(guest), "it is held back on purpose"

    play(scenario, database_url, app_keys)
