"""Tests the predicates on one runner."""

import pytest
from tests.pools.pool_builders import NEW, NOW, OLD, change, make_pool, make_runner

from runyard.pools.plans import predicates

MAC = make_pool()
LINUX = make_pool(os="linux", runtime_class="kata-qemu", runtime_revision="r2")


@pytest.mark.parametrize(
    ("more", "alive", "terminal"),
    [
        pytest.param({"phase": "Pending"}, True, False, id="pending"),
        pytest.param({"phase": "Running"}, True, False, id="running"),
        pytest.param({"phase": "Unknown"}, True, False, id="unknown-is-not-dead"),
        pytest.param({"phase": "Succeeded"}, False, True, id="succeeded"),
        pytest.param({"phase": "Failed"}, False, True, id="failed"),
        pytest.param({"deleting_at": NOW}, False, False, id="being-deleted"),
        pytest.param({"phase": "Failed", "deleting_at": NOW}, False, False, id="already-reaped"),
    ],
)
def test_a_runner_being_deleted_is_neither_alive_nor_terminal(more, alive, terminal):
    runner = make_runner(1, **more)
    assert (predicates.alive(runner), predicates.terminal(runner)) == (alive, terminal)


@pytest.mark.parametrize(
    ("more", "idle"),
    [
        pytest.param({}, True, id="no-stamp"),
        pytest.param({"owner": "acme"}, False, id="stamped"),
        pytest.param({"poller": "running"}, True, id="poller-polls"),
        pytest.param({"poller": "terminated"}, False, id="poller-left-with-a-job"),
        pytest.param({"readable": False}, False, id="unreadable-counts-as-busy"),
        pytest.param({"readable": False, "owner": "acme"}, False, id="unreadable-and-stamped"),
    ],
)
def test_a_runner_that_may_be_busy_is_not_idle(more, idle):
    assert predicates.idle(make_runner(1, **more)) is idle


@pytest.mark.parametrize(
    ("more", "early"),
    [
        pytest.param({"created_at": NOW - 9, "finished_at": NOW - 4}, True, id="at-once"),
        pytest.param({"created_at": NOW - 900, "finished_at": NOW - 4}, False, id="after-a-while"),
        pytest.param({"created_at": NOW - 9}, True, id="end-unknown"),
        pytest.param({"created_at": NOW - 9, "owner": "acme"}, False, id="had-a-job"),
        pytest.param({"created_at": NOW - 9, "phase": "Succeeded"}, False, id="ended-well"),
        pytest.param({"created_at": NOW - 9, "deleting_at": NOW}, False, id="being-deleted"),
    ],
)
def test_a_failed_start_differs_from_a_failed_job(more, early):
    runner = make_runner(1, **{"phase": "Failed", **more})
    assert predicates.failed_start(runner, within=60) is early


@pytest.mark.parametrize(
    ("pool", "more", "warm"),
    [
        pytest.param(MAC, {"phase": "Running"}, True, id="darwin-running"),
        pytest.param(MAC, {"phase": "Pending"}, False, id="darwin-booting"),
        pytest.param(MAC, {"phase": "Unknown"}, False, id="darwin-lost"),
        pytest.param(LINUX, {"phase": "Pending", "poller": "running"}, True, id="linux-polling"),
        pytest.param(LINUX, {"phase": "Pending"}, False, id="linux-starting"),
        pytest.param(LINUX, {"phase": "Running", "poller": "terminated"}, False, id="linux-busy"),
    ],
)
def test_warm_means_able_to_take_a_job(pool, more, warm):
    assert predicates.warm(make_runner(1, **more), pool) is warm


@pytest.mark.parametrize(
    ("pool", "more", "stale"),
    [
        pytest.param(MAC, {"image": NEW}, False, id="current"),
        pytest.param(MAC, {"image": OLD}, True, id="old-image"),
        pytest.param(MAC, {"image": ""}, False, id="no-containers-is-not-stale"),
        pytest.param(MAC, {"runtime_revision": "r1"}, False, id="darwin-has-no-runtime-class"),
        pytest.param(LINUX, {"runtime_revision": "r2"}, False, id="current-runtime"),
        pytest.param(LINUX, {"runtime_revision": "r1"}, True, id="old-runtime"),
        pytest.param(
            change(LINUX, runtime_revision=""),
            {"runtime_revision": "r1"},
            False,
            id="unknown-revision",
        ),
    ],
)
def test_stale_means_created_from_an_older_template(pool, more, stale):
    assert predicates.stale(make_runner(1, **more), pool) is stale


COLD = {"phase": "Pending", "created_at": NOW - 9000}


@pytest.mark.parametrize(
    ("start", "more", "overdue"),
    [
        pytest.param(300, {"bound_at": NOW - 1700}, False, id="a-pull-may-take-long"),
        pytest.param(300, {"bound_at": NOW - 1801}, True, id="no-progress-at-all"),
        pytest.param(4000, {"bound_at": NOW - 1801}, False, id="the-pool-allows-more"),
        pytest.param(0, {"bound_at": NOW - 99999}, False, id="switched-off"),
        pytest.param(300, {"bound_at": None}, True, id="no-binding-time-counts-from-creation"),
        pytest.param(300, {"bound_at": None, "created_at": None}, False, id="age-unknown"),
        pytest.param(
            300, {"bound_at": NOW - 9000, "progress_at": NOW - 60}, False, id="a-pull-that-advances"
        ),
        pytest.param(
            300, {"bound_at": NOW - 9000, "progress_at": NOW - 1801}, True, id="a-pull-that-stopped"
        ),
        pytest.param(
            300, {"bound_at": NOW - 9000, "progress_at": NOW + 9e9}, False, id="a-clock-ahead"
        ),
        pytest.param(300, {"bound_at": NOW - 9000, "owner": "acme"}, False, id="busy"),
        pytest.param(300, {"bound_at": NOW - 9000, "phase": "Running"}, False, id="started"),
        pytest.param(300, {"node": "", "bound_at": NOW - 9000}, False, id="not-bound"),
    ],
)
def test_a_macos_start_times_out_without_progress_and_not_by_age(start, more, overdue):
    runner = make_runner(1, **{**COLD, **more})
    pool = make_pool(start=start)
    assert predicates.start_overdue(runner, pool, darwin_floor=1800, now=NOW) is overdue


def test_a_linux_start_keeps_the_deadline_of_its_pool():
    runner = make_runner(1, phase="Pending", bound_at=NOW - 301)
    assert predicates.start_overdue(runner, LINUX, darwin_floor=1800, now=NOW)
    polling = change(runner, poller="running")
    assert not predicates.start_overdue(polling, LINUX, darwin_floor=1800, now=NOW)


@pytest.mark.parametrize(
    ("start", "more", "overdue"),
    [
        pytest.param(300, {"unschedulable_since": NOW - 299}, False, id="not-yet"),
        pytest.param(300, {"unschedulable_since": NOW - 301}, True, id="overdue"),
        pytest.param(0, {"unschedulable_since": NOW - 9000}, False, id="switched-off"),
        pytest.param(300, {}, False, id="no-condition"),
        pytest.param(
            300, {"unschedulable_since": NOW - 9000, "node": "host-1"}, False, id="bound-since"
        ),
    ],
)
def test_an_unschedulable_runner_times_out(start, more, overdue):
    runner = make_runner(1, **{"phase": "Pending", "node": "", "bound_at": None, **more})
    pool = make_pool(start=start)
    assert predicates.unschedulable_overdue(runner, pool, now=NOW) is overdue


@pytest.mark.parametrize(
    ("more", "overdue"),
    [
        pytest.param({}, False, id="not-marked"),
        pytest.param({"marked": True, "marked_at": NOW - 299}, False, id="may-still-poll"),
        pytest.param({"marked": True, "marked_at": NOW - 301}, True, id="does-not-poll"),
        pytest.param({"marked": True}, False, id="since-when-is-unknown"),
    ],
)
def test_a_marked_runner_that_never_polls_does_not_hold_the_roll(more, overdue):
    assert predicates.drain_overdue(make_runner(1, **more), limit=300, now=NOW) is overdue


@pytest.mark.parametrize(
    ("more", "stuck"),
    [
        pytest.param({}, False, id="not-deleted"),
        pytest.param({"deleting_at": NOW - 329}, False, id="within-grace-and-limit"),
        pytest.param({"deleting_at": NOW - 331}, True, id="stuck"),
        pytest.param({"deleting_at": NOW - 331, "grace_seconds": 600}, False, id="long-grace"),
        pytest.param({"deleting_at": 0.0, "readable": False}, False, id="unreadable"),
    ],
)
def test_a_deletion_is_stuck_only_after_grace_and_limit(more, stuck):
    assert predicates.deletion_stuck(make_runner(1, **more), limit=300, now=NOW) is stuck
