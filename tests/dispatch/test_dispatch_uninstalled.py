"""After the App was uninstalled, its jobs and runners are kept, read rarely and reported."""

from tests.dispatch.dispatchharness import Harness, play

from runyard.components import server
from runyard.embedded.github.identity import KeyPair
from runyard.telemetry import conditions
from runyard.telemetry.catalogue import TUIST_RUNNERS_RECOVERY_COUNT
from runyard.telemetry.health import Health

UNKNOWN_INSTALLATION = 999_999  # an installation that GitHub does not know


def uninstall(harness: Harness) -> None:
    harness.execute("UPDATE tenants SET installation_id = %s", UNKNOWN_INSTALLATION)
    harness.execute("UPDATE slots SET installation_id = %s", UNKNOWN_INSTALLATION)


def test_a_hidden_job_is_read_rarely_and_closed_after_a_day(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        job = await harness.queued()
        uninstall(harness)
        await harness.clock.sleep(3601)
        await harness.server.recovery.reader.step_stale()
        wait = harness.job(job)["look_at"].timestamp() - harness.clock.now()
        assert harness.job(job)["state"] == "queued" and 300 < wait < 900
        await harness.clock.sleep(86400)
        await harness.server.recovery.reader.step_stale()
        assert harness.job(job)["state"] == "done"
        assert harness.meter.get(TUIST_RUNNERS_RECOVERY_COUNT, kind="queued_reaped") == 1

    play(scenario, database_url, app_keys)


def test_a_hidden_runner_is_kept_and_reported_until_github_answers(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        health = Health(harness.clock, conditions.ALL)
        wired = server.wire(harness.deps(health=health))
        await harness.pool()
        guest = await harness.pod(1)
        await harness.armed(guest)
        uninstall(harness)
        harness.overdue(guest)
        await wired.recovery.sweeper.step()
        slot = harness.slot(guest)
        wait = slot["deadline"].timestamp() - harness.clock.now()
        assert slot["state"] == "armed" and wait > 200, "nothing is freed, nobody is pestered"

        async def shown() -> list[str]:
            await wired.gauges.step()
            return [each.message for each in health.report() if each.code == "fences-unanswered"]

        assert not await shown()
        await harness.clock.sleep(601)
        assert await shown() == ["acme: 1 for up to 10 min"]
        harness.execute("UPDATE tenants SET installation_id = %s", harness.acme)  # installed again
        harness.overdue(guest)
        await wired.recovery.sweeper.step()
        assert harness.slot(guest)["state"] == "draining" and not harness.github.runners()
        assert not await shown()

    play(scenario, database_url, app_keys)
