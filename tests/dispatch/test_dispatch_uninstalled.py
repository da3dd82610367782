"""After the App was uninstalled, its jobs and runners are kept, read rarely and reported."""

from tests.dispatch.dispatchworld import World, play

from runyard.components import server
from runyard.embedded.github.identity import KeyPair
from runyard.telemetry import conditions
from runyard.telemetry.catalogue import TUIST_RUNNERS_RECOVERY_COUNT
from runyard.telemetry.health import Health

UNKNOWN_INSTALLATION = 999_999  # an installation that GitHub does not know


def uninstall(world: World) -> None:
    world.execute("UPDATE tenants SET installation_id = %s", UNKNOWN_INSTALLATION)
    world.execute("UPDATE slots SET installation_id = %s", UNKNOWN_INSTALLATION)


def test_a_hidden_job_is_read_rarely_and_closed_after_a_day(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        job = await world.queued()
        uninstall(world)
        await world.clock.sleep(3601)
        await world.server.recovery.reader.step_stale()
        wait = world.job(job)["look_at"].timestamp() - world.clock.now()
        assert world.job(job)["state"] == "queued" and 300 < wait < 900
        await world.clock.sleep(86400)
        await world.server.recovery.reader.step_stale()
        assert world.job(job)["state"] == "done"
        assert world.meter.get(TUIST_RUNNERS_RECOVERY_COUNT, kind="queued_reaped") == 1

    play(scenario, database_url, app_keys)


def test_a_hidden_runner_is_kept_and_reported_until_github_answers(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        health = Health(world.clock, conditions.ALL)
        wired = server.wire(world.deps(health=health))
        await world.pool()
        guest = await world.pod(1)
        await world.armed(guest)
        uninstall(world)
        world.overdue(guest)
        await wired.recovery.sweeper.step()
        slot = world.slot(guest)
        wait = slot["deadline"].timestamp() - world.clock.now()
        assert slot["state"] == "armed" and wait > 200, "nothing is freed, nobody is pestered"

        async def shown() -> list[str]:
            await wired.gauges.step()
            return [each.message for each in health.report() if each.code == "fences-unanswered"]

        assert not await shown()
        await world.clock.sleep(601)
        assert await shown() == ["acme: 1 for up to 10 min"]
        world.execute("UPDATE tenants SET installation_id = %s", world.acme)  # installed again
        world.overdue(guest)
        await wired.recovery.sweeper.step()
        assert world.slot(guest)["state"] == "draining" and not world.github.runners()
        assert not await shown()

    play(scenario, database_url, app_keys)
