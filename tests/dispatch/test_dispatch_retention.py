"""Old rows are deleted in batches, except those that a foreign key, an open slot or an unfinished job needs."""

import pytest
from tests.dispatch.dispatchharness import Between, Harness, play

from runyard.dispatch.retention import Pruner
from runyard.dispatch.settings import Retention
from runyard.embedded.github.identity import KeyPair
from runyard.telemetry.catalogue import RUNYARD_PRUNED_ROWS_TOTAL

DAY = 86400.0
TABLES = ("jobs", "slots", "transitions", "deliveries", "samples", "ghost_sightings")


def count(harness: Harness) -> dict[str, int]:
    return {table: harness.rows(f"SELECT count(*) AS n FROM {table}")[0]["n"] for table in TABLES}


async def ended(harness: Harness, number: int) -> int:
    """Run a job to its end, with its Pod."""
    guest = await harness.pod(number)
    job = await harness.armed(guest)
    session = harness.github.connect(await harness.jit(guest))
    await harness.github.settle()
    session.finish("success")  # type: ignore[union-attr]  # it is one: it was armed
    await harness.github.settle()
    harness.execute(
        "INSERT INTO samples SELECT %s, to_timestamp(%s), 1, 1, 1, 1, 1, 1, 1, 1",
        job,
        harness.clock.now(),
    )
    await harness.delete_pod(guest)
    await harness.server.shared.closer.close_if_gone(pod_name=guest.name, pod_uid=guest.uid)
    assert harness.slot(guest)["state"] == "closed"
    return job


def test_each_table_is_kept_for_its_own_time(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        await ended(harness, 1)
        full = count(harness)
        assert full["jobs"] == full["slots"] == full["samples"] == 1 and full["transitions"] >= 6
        await harness.server.pruner.step()
        assert count(harness) == full
        await harness.clock.sleep(8 * DAY)
        await harness.server.pruner.step()
        assert count(harness) == full | {"deliveries": 0}
        await harness.clock.sleep(23 * DAY)
        await harness.server.pruner.step()
        assert count(harness) == dict.fromkeys(TABLES, 0) | {"samples": 1}
        await harness.clock.sleep(60 * DAY)
        await harness.server.pruner.step()
        assert count(harness) == dict.fromkeys(TABLES, 0)
        for table in TABLES[:5]:
            assert harness.meter.get(RUNYARD_PRUNED_ROWS_TOTAL, table=table) == full[table]

    play(scenario, database_url, app_keys)


def test_open_slots_and_jobs_keep_their_log_entries(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        idle, armed, at_work, lost = [await harness.pod(n) for n in range(1, 5)]
        queued = await harness.queued("acme/app", ("ubuntu-latest",))
        await harness.poll(idle)
        running = await harness.armed(at_work)
        harness.github.connect(await harness.jit(at_work))
        await harness.github.settle()
        await harness.armed(armed)
        await harness.armed(lost)
        await harness.delete_pod(lost)
        await harness.server.shared.closer.close_if_gone(pod_name=lost.name, pod_uid=lost.uid)
        assert harness.slot(lost)["fence"] == "due"
        before = count(harness)
        await harness.clock.sleep(100 * DAY)
        await harness.server.pruner.step()
        assert count(harness) == before | {"deliveries": 0}
        assert (
            harness.job(queued)["state"] == "queued" and harness.job(running)["state"] == "running"
        )

    play(scenario, database_url, app_keys)


def test_a_job_that_a_slot_refers_to_is_kept(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        job = await harness.armed(guest)
        session = harness.github.connect(await harness.jit(guest))
        await harness.github.settle()
        session.finish("success")  # type: ignore[union-attr]  # it is one: it was armed
        await harness.github.settle()
        assert harness.job(job)["state"] == "done" and harness.slot(guest)["state"] == "draining"
        await harness.clock.sleep(100 * DAY)
        await harness.server.pruner.step()
        assert harness.job(job)["state"] == "done"

    play(scenario, database_url, app_keys)


def test_a_backlog_is_pruned_in_one_step_of_many_batches(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        deliver(harness, 203)
        await harness.server.pruner.step()
        assert count(harness)["deliveries"] == 0

    play(scenario, database_url, app_keys, retention=Retention(batch=5))


def test_a_step_ends_in_time_and_starves_no_table(database_url: str, app_keys: KeyPair) -> None:
    settings = Retention(batch=5, within=60.0)

    async def scenario(harness: Harness) -> None:
        async def slow(name: str) -> None:
            begun.append(name)
            await harness.clock.sleep(4.0)

        begun: list[str] = []
        pruner = Pruner(
            Between(harness.database, slow),
            clock=harness.clock,
            meter=harness.meter,
            settings=settings,
        )
        deliver(harness, 100)
        harness.execute(
            "INSERT INTO samples SELECT n, to_timestamp(%s), 1, 1, 1, 1, 1, 1, 1, 1"
            " FROM generate_series(1, 100) n",
            harness.clock.now() - 91 * DAY,
        )
        left, took = [], []
        for _ in range(4):
            began = harness.clock.monotonic()
            await pruner.step()
            took.append(harness.clock.monotonic() - began)
            left.append((count(harness)["deliveries"], count(harness)["samples"]))
        assert max(took) == settings.within
        # Each step has time for fifteen batches: seven tables once, and eight more of the two that are full.
        assert left == [(75, 75), (50, 50), (25, 25), (0, 0)], begun

    play(scenario, database_url, app_keys)


def deliver(harness: Harness, number: int) -> None:
    """Insert so many deliveries of last week."""
    harness.execute(
        "INSERT INTO deliveries SELECT 'd' || n, to_timestamp(%s), 'queued', 'applied'"
        " FROM generate_series(1, %s) n",
        harness.clock.now() - 8 * DAY,
        number,
    )


def test_the_audit_trail_is_kept_for_a_year(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        for days in (364, 366):
            harness.execute(
                "INSERT INTO tenant_changes (at, tenant, field, source, target, why, actor)"
                " VALUES (to_timestamp(%s), 'acme', 'weight', '1', '2', '', 'mona')",
                harness.clock.now() - days * DAY,
            )
        await harness.server.pruner.step()
        (left,) = harness.rows("SELECT extract(epoch FROM at)::float AS at FROM tenant_changes")
        assert left["at"] == pytest.approx(harness.clock.now() - 364 * DAY)
        assert harness.meter.get(RUNYARD_PRUNED_ROWS_TOTAL, table="tenant_changes") == 1

    play(scenario, database_url, app_keys)


def test_a_job_known_only_by_its_end_is_pruned_too(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        harness.deliver = False
        job = await harness.queued()
        harness.deliver = True
        harness.github.cancel_job(job)
        await harness.github.settle()
        assert harness.job(job)["state"] == "done"
        await harness.clock.sleep(31 * DAY)
        await harness.server.pruner.step()
        assert harness.job(job) == {}

    play(scenario, database_url, app_keys)


def test_jobs_are_kept_at_least_as_long_as_deliveries() -> None:
    with pytest.raises(ValueError, match="at least as long"):
        Retention(jobs=DAY)
