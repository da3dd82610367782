"""Each reconciler recovers, only logs, or is off, by its mode; one that is off is a health condition."""

from collections.abc import Awaitable, Callable

import msgspec
import pytest
from tests.dispatch.dispatchworld import SPACE, Guest, Lines, World, play

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

Broken = Callable[[World], Awaitable[Callable[[], Awaitable[bool]]]]


async def stamped_pod(world: World) -> Callable[[], Awaitable[bool]]:
    await world.queued("acme/app", ("ubuntu-latest",))
    guest = await world.pod(1, **{names.POOL_OWNER: "acme"})
    await world.poll(guest)
    await world.clock.sleep(301)
    await world.poll(guest)

    async def heals() -> bool:
        await world.server.recovery.stamped.step()
        world.served_long()
        await world.server.recovery.sweeper.step()
        return world.kube.find("pods", SPACE, guest.name) is None

    return heals


def claim(state: str) -> Broken:
    async def broken(world: World) -> Callable[[], Awaitable[bool]]:
        guest = await world.pod(1)
        job = await (world.offered if state == "offered" else world.armed)(guest)

        async def heals() -> bool:
            world.overdue(guest)
            await world.server.recovery.sweeper.step()
            return bool(world.job(job)["state"] == "queued")

        return heals

    return broken


async def slot_without_pod(world: World) -> Callable[[], Awaitable[bool]]:
    guest, other = await world.pod(1), await world.pod(2)
    await world.armed(guest)
    await world.poll(other)
    await world.delete_pod(guest)

    async def heals() -> bool:
        await world.server.recovery.pods.step()
        return bool(world.slot(guest)["state"] == "closed")

    return heals


async def forgotten_job(world: World) -> Callable[[], Awaitable[bool]]:
    job = await world.queued()
    world.deliver = False
    world.github.cancel_job(job)
    await world.github.settle()
    await world.clock.sleep(3601)

    async def heals() -> bool:
        await world.server.recovery.reader.step_stale()
        return bool(world.job(job)["state"] == "done")

    return heals


async def ghost(world: World) -> Callable[[], Awaitable[bool]]:
    guest: Guest = await world.pod(1)
    await world.armed(guest)
    world.execute("UPDATE slots SET state = 'closed', intended_job = NULL, fence = 'done'")
    world.execute("UPDATE jobs SET state = 'done'")

    async def heals() -> bool:
        for _ in range(2):
            await world.server.recovery.ghosts.step()
            await world.clock.sleep(121)
        return not world.github.runners()

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

    async def scenario(world: World) -> None:
        await world.pool()
        heals = await broken(world)
        assert await heals() is (mode is Mode.ENABLED)
        rows = world.meter.get(TUIST_RUNNERS_RECOVERY_COUNT, kind=kind)
        would = world.meter.get(
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
    async def scenario(world: World) -> None:
        await world.pool()
        heals = await stamped_pod(world)
        asked = len(world.github_wire.requests)
        assert not await heals()
        assert len(world.github_wire.requests) == asked, "a fence is a deletion too"

    play(scenario, database_url, app_keys, modes=Modes(orphaned_stamped_pods=Mode.DRY_RUN))


def test_a_reconciler_that_is_off_is_a_health_condition(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        logged: list[tuple[str, str]] = []
        for modes in (Modes(), Modes(stale_claims=Mode.OFF, ghost_registrations=Mode.OFF)):
            health = Health(world.clock, conditions.ALL)
            settings = msgspec.structs.replace(world.settings, modes=modes)
            server.wire(world.deps(health=health, settings=settings))
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
