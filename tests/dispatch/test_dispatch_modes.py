"""Each reconciler recovers, only logs, or is off, by its mode; one that is off is a health condition."""

from collections.abc import Awaitable, Callable

import msgspec
import pytest
from tests.dispatch.dispatchharness import SPACE, Guest, Harness, Lines, play

from runyard.components import server
from runyard.dispatch.modes import Mode, Modes, Reconciler, parse
from runyard.embedded.github.identity import KeyPair
from runyard.telemetry import conditions
from runyard.telemetry.catalogue import (
    RUNYARD_RECOVERY_FINDINGS_TOTAL,
    TUIST_RUNNERS_RECOVERY_COUNT,
)
from runyard.telemetry.health import Health
from runyard.wire import names

Broken = Callable[[Harness], Awaitable[Callable[[], Awaitable[bool]]]]


async def stamped_pod(harness: Harness) -> Callable[[], Awaitable[bool]]:
    await harness.queued("acme/app", ("ubuntu-latest",))
    guest = await harness.pod(1, **{names.POOL_OWNER: "acme"})
    await harness.poll(guest)
    await harness.clock.sleep(301)
    await harness.poll(guest)

    async def heals() -> bool:
        await harness.server.recovery.stamped.step()
        harness.served_long()
        await harness.server.recovery.sweeper.step()
        return harness.kube.find("pods", SPACE, guest.name) is None

    return heals


def claim(state: str) -> Broken:
    async def broken(harness: Harness) -> Callable[[], Awaitable[bool]]:
        guest = await harness.pod(1)
        job = await (harness.offered if state == "offered" else harness.armed)(guest)

        async def heals() -> bool:
            harness.overdue(guest)
            await harness.server.recovery.sweeper.step()
            return bool(harness.job(job)["state"] == "queued")

        return heals

    return broken


async def slot_without_pod(harness: Harness) -> Callable[[], Awaitable[bool]]:
    guest, other = await harness.pod(1), await harness.pod(2)
    await harness.armed(guest)
    await harness.poll(other)
    await harness.delete_pod(guest)

    async def heals() -> bool:
        await harness.server.recovery.pods.step()
        return bool(harness.slot(guest)["state"] == "closed")

    return heals


async def forgotten_job(harness: Harness) -> Callable[[], Awaitable[bool]]:
    job = await harness.queued()
    harness.deliver = False
    harness.github.cancel_job(job)
    await harness.github.settle()
    await harness.clock.sleep(3601)

    async def heals() -> bool:
        await harness.server.recovery.reader.step_stale()
        return bool(harness.job(job)["state"] == "done")

    return heals


async def ghost(harness: Harness) -> Callable[[], Awaitable[bool]]:
    guest: Guest = await harness.pod(1)
    await harness.armed(guest)
    harness.execute("UPDATE slots SET state = 'closed', intended_job = NULL, fence = 'done'")
    harness.execute("UPDATE jobs SET state = 'done'")

    async def heals() -> bool:
        for _ in range(2):
            await harness.server.recovery.ghosts.step()
            await harness.clock.sleep(121)
        return not harness.github.runners()

    return heals


CASES = {
    Reconciler.ORPHANED_STAMPED_PODS: (stamped_pod, "orphaned_stamped_pod"),
    Reconciler.STALE_CLAIMS: (claim("offered"), "stale_claim"),
    Reconciler.ORPHANED_RUNNERS: (claim("armed"), "orphan_requeued"),
    Reconciler.PODS_AGAINST_SLOTS: (slot_without_pod, "pod_missing_claim"),
    Reconciler.STALE_QUEUED_JOBS: (forgotten_job, "queued_completed"),
    Reconciler.GHOST_REGISTRATIONS: (ghost, "ghost_registration"),
}


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("reconciler", Reconciler)
def test_a_reconciler_does_what_its_mode_says(
    database_url: str, app_keys: KeyPair, reconciler: Reconciler, mode: Mode
) -> None:
    broken, kind = CASES[reconciler]
    modes, lines = parse((f"{reconciler}={mode}",)), Lines()

    async def scenario(harness: Harness) -> None:
        await harness.pool()
        heals = await broken(harness)
        assert await heals() is (mode is Mode.ENABLED)
        rows = harness.meter.get(TUIST_RUNNERS_RECOVERY_COUNT, kind=kind)
        would = harness.meter.get(
            RUNYARD_RECOVERY_FINDINGS_TOTAL, reconciler=reconciler.value, outcome="dry-run"
        )
        logged = [line for line in lines if line.get("reconciler") == reconciler.value]
        assert rows == (1 if mode is Mode.ENABLED else None)
        assert bool(would) is (mode is Mode.DRY_RUN)
        assert bool(logged) is (mode is not Mode.OFF)
        for line in logged:
            assert {"pod", "age_seconds", "grace_seconds", "reason"} <= set(line)

    play(scenario, database_url, app_keys, modes=modes, log=lines)


def test_a_dry_run_does_not_call_github(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        heals = await stamped_pod(harness)
        asked = len(harness.github_wire.requests)
        assert not await heals()
        assert len(harness.github_wire.requests) == asked, "a fence is a deletion too"

    play(scenario, database_url, app_keys, modes=Modes(orphaned_stamped_pods=Mode.DRY_RUN))


def test_a_reconciler_that_is_off_is_a_health_condition(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        logged: list[tuple[str, str]] = []
        for modes in (Modes(), Modes(stale_claims=Mode.OFF, ghost_registrations=Mode.OFF)):
            health = Health(harness.clock, conditions.ALL)
            settings = msgspec.structs.replace(harness.settings, modes=modes)
            server.wire(harness.deps(health=health, settings=settings))
            logged += [(report.code, report.message) for report in health.report()]
            assert health.healthy(), "a warning, and no reason to take the server out of service"
        assert logged == [("reconciler-off", "stale_claims, ghost_registrations")]

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize(
    "text", ["", "stale_claims", "stale_claims=", "stale_claims=on", "claims=off", "=off"]
)
def test_an_unknown_reconciler_or_mode_is_refused_with_the_valid_ones(text: str) -> None:
    with pytest.raises(ValueError, match=r"stale_claims.*dry_run"):
        parse((text,))


def test_one_reconciler_cannot_have_two_modes() -> None:
    assert parse(("stale_claims=off", "stale_claims=off")).off == (Reconciler.STALE_CLAIMS,)
    with pytest.raises(ValueError, match="twice"):
        parse(("stale_claims=off", "stale_claims=enabled"))
