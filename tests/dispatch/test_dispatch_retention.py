"""Old rows are deleted in batches, except those that a foreign key, an open slot or an unfinished job needs."""

import pytest
from tests.dispatch.dispatchworld import Between, World, play

from runyard.dispatch.retention import Pruner
from runyard.dispatch.settings import Retention
from runyard.embedded.github.identity import KeyPair
from runyard.telemetry.catalogue import RUNYARD_PRUNED_ROWS_TOTAL

DAY = 86400.0
TABLES = ("jobs", "slots", "transitions", "deliveries", "samples", "ghost_sightings")


def count(world: World) -> dict[str, int]:
    return {table: world.rows(f"SELECT count(*) AS n FROM {table}")[0]["n"] for table in TABLES}


async def ended(world: World, number: int) -> int:
    """Run a job to its end, with its Pod."""
    guest = await world.pod(number)
    job = await world.armed(guest)
    session = world.github.connect(await world.jit(guest))
    await world.github.settle()
    session.finish("success")  # type: ignore[union-attr]  # it is one: it was armed
    await world.github.settle()
    world.execute(
        "INSERT INTO samples SELECT %s, to_timestamp(%s), 1, 1, 1, 1, 1, 1, 1, 1",
        job,
        world.clock.now(),
    )
    await world.delete_pod(guest)
    await world.server.shared.closer.close_if_gone(pod_name=guest.name, pod_uid=guest.uid)
    assert world.slot(guest)["state"] == "closed"
    return job


def test_each_table_is_kept_for_its_own_time(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        await ended(world, 1)
        full = count(world)
        assert full["jobs"] == full["slots"] == full["samples"] == 1 and full["transitions"] >= 6
        await world.server.pruner.step()
        assert count(world) == full
        await world.clock.sleep(8 * DAY)
        await world.server.pruner.step()
        assert count(world) == full | {"deliveries": 0}
        await world.clock.sleep(23 * DAY)
        await world.server.pruner.step()
        assert count(world) == dict.fromkeys(TABLES, 0) | {"samples": 1}
        await world.clock.sleep(60 * DAY)
        await world.server.pruner.step()
        assert count(world) == dict.fromkeys(TABLES, 0)
        for table in TABLES[:5]:
            assert world.meter.get(RUNYARD_PRUNED_ROWS_TOTAL, table=table) == full[table]

    play(scenario, database_url, app_keys)


def test_open_slots_and_jobs_keep_their_log_entries(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        idle, armed, at_work, lost = [await world.pod(n) for n in range(1, 5)]
        queued = await world.queued("acme/app", ("ubuntu-latest",))
        await world.poll(idle)
        running = await world.armed(at_work)
        world.github.connect(await world.jit(at_work))
        await world.github.settle()
        await world.armed(armed)
        await world.armed(lost)
        await world.delete_pod(lost)
        await world.server.shared.closer.close_if_gone(pod_name=lost.name, pod_uid=lost.uid)
        assert world.slot(lost)["fence"] == "due"
        before = count(world)
        await world.clock.sleep(100 * DAY)
        await world.server.pruner.step()
        assert count(world) == before | {"deliveries": 0}
        assert world.job(queued)["state"] == "queued" and world.job(running)["state"] == "running"

    play(scenario, database_url, app_keys)


def test_a_job_that_a_slot_refers_to_is_kept(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guest = await world.pod()
        job = await world.armed(guest)
        session = world.github.connect(await world.jit(guest))
        await world.github.settle()
        session.finish("success")  # type: ignore[union-attr]  # it is one: it was armed
        await world.github.settle()
        assert world.job(job)["state"] == "done" and world.slot(guest)["state"] == "draining"
        await world.clock.sleep(100 * DAY)
        await world.server.pruner.step()
        assert world.job(job)["state"] == "done"

    play(scenario, database_url, app_keys)


def test_a_backlog_is_pruned_in_one_step_of_many_batches(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        deliver(world, 203)
        await world.server.pruner.step()
        assert count(world)["deliveries"] == 0

    play(scenario, database_url, app_keys, retention=Retention(batch=5))


def test_a_step_ends_in_time_and_starves_no_table(database_url: str, app_keys: KeyPair) -> None:
    settings = Retention(batch=5, within=60.0)

    async def scenario(world: World) -> None:
        async def slow(name: str) -> None:
            begun.append(name)
            await world.clock.sleep(4.0)

        begun: list[str] = []
        pruner = Pruner(
            Between(world.database, slow), clock=world.clock, meter=world.meter, settings=settings
        )
        deliver(world, 100)
        world.execute(
            "INSERT INTO samples SELECT n, to_timestamp(%s), 1, 1, 1, 1, 1, 1, 1, 1"
            " FROM generate_series(1, 100) n",
            world.clock.now() - 91 * DAY,
        )
        left, took = [], []
        for _ in range(4):
            began = world.clock.monotonic()
            await pruner.step()
            took.append(world.clock.monotonic() - began)
            left.append((count(world)["deliveries"], count(world)["samples"]))
        assert max(took) == settings.within
        # Each step has time for fifteen batches: seven tables once, and eight more of the two that are full.
        assert left == [(75, 75), (50, 50), (25, 25), (0, 0)], begun

    play(scenario, database_url, app_keys)


def deliver(world: World, number: int) -> None:
    """Insert so many deliveries of last week."""
    world.execute(
        "INSERT INTO deliveries SELECT 'd' || n, to_timestamp(%s), 'queued', 'applied'"
        " FROM generate_series(1, %s) n",
        world.clock.now() - 8 * DAY,
        number,
    )


def test_the_audit_trail_is_kept_for_a_year(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        for days in (364, 366):
            world.execute(
                "INSERT INTO tenant_changes (at, tenant, field, source, target, why, actor)"
                " VALUES (to_timestamp(%s), 'acme', 'weight', '1', '2', '', 'mona')",
                world.clock.now() - days * DAY,
            )
        await world.server.pruner.step()
        (left,) = world.rows("SELECT extract(epoch FROM at)::float AS at FROM tenant_changes")
        assert left["at"] == pytest.approx(world.clock.now() - 364 * DAY)
        assert world.meter.get(RUNYARD_PRUNED_ROWS_TOTAL, table="tenant_changes") == 1

    play(scenario, database_url, app_keys)


def test_a_job_known_only_by_its_end_is_pruned_too(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        world.deliver = False
        job = await world.queued()
        world.deliver = True
        world.github.cancel_job(job)
        await world.github.settle()
        assert world.job(job)["state"] == "done"
        await world.clock.sleep(31 * DAY)
        await world.server.pruner.step()
        assert world.job(job) == {}

    play(scenario, database_url, app_keys)


def test_jobs_are_kept_at_least_as_long_as_deliveries() -> None:
    with pytest.raises(ValueError, match="at least as long"):
        Retention(jobs=DAY)
