"""Tests the records of writes that the watch does not show yet, and their expiry."""

from tests.pools.pool_builders import change, make_runner

from runyard.pools.memory import Memory

POOL = "n/mac"


def overlay(memory, view, *, now=0.0, wall=1000.0):
    return memory.overlay(view, now=now, wall=wall, expire=30.0)


def test_a_creation_counts_until_the_pod_is_visible():
    memory = Memory()
    memory.creating("n/a", pool=POOL, at=0.0)
    memory.creating("n/b", pool="n/other", at=0.0)
    assert memory.expected(POOL) == ("n/a",)
    assert memory.overdue(POOL, now=29.0, after=30.0) == ()
    assert memory.overdue(POOL, now=30.0, after=30.0) == ("n/a",)
    memory.confirmed("n/a", at=30.0)
    assert memory.overdue(POOL, now=31.0, after=30.0) == ()
    memory.settled("n/a")
    assert memory.expected(POOL) == ()
    memory.confirmed("n/a", at=40.0)
    assert memory.expected(POOL) == ()


def test_a_deletion_holds_for_exactly_the_version_it_named():
    memory, runner = Memory(), make_runner(1)
    memory.touching(runner.uid, resource_version="101", effect="deleted", at=0.0)
    memory.touched(runner.uid)
    assert overlay(memory, runner, now=9e9).deleting_at == 1000.0
    newer = change(runner, resource_version="102")
    assert overlay(memory, newer) == newer
    assert overlay(memory, runner) == runner  # dropped for good


def test_an_unknown_deletion_expires_so_that_it_is_tried_again():
    memory, runner = Memory(), make_runner(1)
    memory.touching(runner.uid, resource_version="101", effect="deleted", at=0.0)
    assert overlay(memory, runner, now=29.0).deleting_at is not None
    assert overlay(memory, runner, now=30.0).deleting_at is None


def test_a_refused_write_changes_no_view():
    memory, runner = Memory(), make_runner(1)
    memory.touching(runner.uid, resource_version="101", effect="marked", at=0.0)
    memory.untouched(runner.uid)
    assert overlay(memory, runner) == runner


def test_a_mark_without_a_time_gets_the_time_it_was_first_seen():
    memory, runner = Memory(), make_runner(1, marked=True)
    assert overlay(memory, runner, wall=500.0).marked_at == 500.0
    assert overlay(memory, runner, wall=900.0).marked_at == 500.0
    memory.forget(runner.uid)
    assert overlay(memory, runner, wall=900.0).marked_at == 900.0


def test_a_mark_that_is_not_visible_yet_holds_its_roll_slot():
    memory, runner = Memory(), make_runner(1)
    memory.touching(runner.uid, resource_version="101", effect="marked", at=0.0)
    assert overlay(memory, runner).marked


def test_a_report_is_kept_until_the_deletion_is_refused():
    memory, runner = Memory(), make_runner(1)
    memory.reported(runner.uid)
    assert overlay(memory, runner).reported
    memory.unreported(runner.uid)
    assert not overlay(memory, runner).reported


def test_a_stuck_deletion_is_counted_once():
    memory = Memory()
    assert [memory.first_stuck("u"), memory.first_stuck("u")] == [True, False]
    memory.forget("u")
    assert memory.first_stuck("u")


def test_repeated_failures_back_off_longer_and_a_quiet_period_resets_it():
    memory, pauses = Memory(), (5.0, 40.0)
    now, seen = 0.0, []
    for _ in range(5):
        memory.back_off(POOL, now=now, pauses=pauses)
        memory.back_off(POOL, now=now, pauses=pauses)  # the same batch
        seen.append(memory.held(POOL, now=now))
        now += seen[-1]
        assert memory.held(POOL, now=now) == 0.0
    assert seen == [5.0, 10.0, 20.0, 40.0, 40.0]
    memory.back_off(POOL, now=now + 41.0, pauses=pauses)
    assert memory.held(POOL, now=now + 41.0) == 5.0


def test_a_pool_that_is_gone_expects_nothing():
    memory = Memory()
    memory.creating("n/a", pool=POOL, at=0.0)
    memory.forget_pool(POOL)
    assert memory.expected(POOL) == ()
