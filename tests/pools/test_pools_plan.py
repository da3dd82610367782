"""Tests one pool's plan: which runners are created, retired, marked and kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pools.pool_builders import (
    NEW,
    NOW,
    OLD,
    change,
    make_account,
    make_pool,
    make_runner,
    make_snapshot,
)

from runyard.pools.plans import predicates
from runyard.pools.plans.actions import (
    CreateRunner,
    ForceDelete,
    MarkDrainEligible,
    ReapAccount,
    ReapRunner,
    ReportStopped,
)
from runyard.pools.plans.pool import plan_pool
from runyard.pools.plans.reasons import Blocked, Waiting
from runyard.pools.plans.views import FleetView, NodeView
from runyard.pools.settings import Settings
from runyard.wire import names
from runyard.wire.instants import to_rfc3339
from runyard.wire.runnerpool import PoolStatus

SETTINGS = Settings()

instants = st.none() | st.floats(NOW - 10_000, NOW + 100)
any_runner = st.builds(
    dict,
    image=st.sampled_from([NEW, OLD, ""]),
    phase=st.sampled_from(["Pending", "Running", "Unknown", "Succeeded", "Failed"]),
    owner=st.sampled_from(["", "", "acme"]),
    node=st.sampled_from(["", "fine", "leaving", "gone", "unknown"]),
    poller=st.sampled_from(["", "running", "terminated"]),
    marked=st.booleans(),
    readable=st.sampled_from([True, True, True, False]),
    bound_at=instants,
    created_at=instants,
    marked_at=instants,
    unschedulable_since=instants,
    deleting_at=st.none() | instants,
)
NODES = (
    NodeView(name="fine"),
    NodeView(name="leaving", leaving=True),
    NodeView(name="gone", gone=True),
)
snapshots = st.builds(
    lambda all_, replicas, os, deleting, expected: make_snapshot(
        make_pool(replicas, os=os, deleting=deleting),
        *(make_runner(number, **more) for number, more in enumerate(all_)),
        nodes=NODES,
        expected=tuple(f"mac-runner-e{n}" for n in range(expected)),
    ),
    st.lists(any_runner, max_size=15),
    st.integers(0, 20),
    st.sampled_from(["darwin", "linux"]),
    st.booleans(),
    st.integers(0, 3),
)


def of(plan, kind):
    return [action for action in plan.actions if isinstance(action, kind)]


def reaped(plan):
    return {action.uid: action.reason for action in of(plan, ReapRunner)}


def plan(pool, *runners, now=NOW, **more):
    return plan_pool(make_snapshot(pool, *runners, **more), SETTINGS, now)


@given(snapshot=snapshots)
def test_a_busy_runner_is_never_deleted(snapshot):
    decided = plan_pool(snapshot, SETTINGS, NOW)
    by_uid = {runner.uid: runner for runner in snapshot.runners}
    for action in of(decided, ReapRunner):
        runner = by_uid[action.uid]
        assert predicates.idle(runner) or predicates.terminal(runner)
        assert runner.deleting_at is None
        assert action.resource_version == runner.resource_version
    for action in of(decided, ForceDelete):
        runner = by_uid[action.uid]
        assert runner.deleting_at is not None
        assert runner.node in ("", "gone")
    for action in of(decided, MarkDrainEligible):
        assert predicates.idle(by_uid[action.uid])


@given(snapshot=snapshots)
def test_a_plan_reaps_no_runner_twice_and_is_deterministic(snapshot):
    decided = plan_pool(snapshot, SETTINGS, NOW)
    uids = [action.uid for action in of(decided, ReapRunner)]
    assert len(uids) == len(set(uids))
    assert decided == plan_pool(snapshot, SETTINGS, NOW)


@given(snapshot=snapshots)
def test_carrying_out_a_plan_never_overshoots_the_replicas(snapshot):
    decided = plan_pool(snapshot, SETTINGS, NOW)
    if snapshot.pool.deleting:
        assert of(decided, CreateRunner) == []
        return
    alive = [runner for runner in snapshot.runners if predicates.alive(runner)]
    gone = reaped(decided)
    left = sum(runner.uid not in gone for runner in alive) + len(snapshot.expected)
    created = len(of(decided, CreateRunner))
    assert created == max(0, snapshot.pool.spec.replicas - left)


@given(snapshot=snapshots)
def test_scaling_down_prefers_stale_then_cold_then_warm(snapshot):
    decided = plan_pool(snapshot, SETTINGS, NOW)
    gone = reaped(decided)
    pool = snapshot.pool

    def rank(runner):
        if predicates.stale(runner, pool):
            return 0
        return 2 if predicates.warm(runner, pool) else 1

    taken = [rank(r) for r in snapshot.runners if gone.get(r.uid) == "scaled-down"]
    kept = [
        rank(r)
        for r in snapshot.runners
        if predicates.alive(r) and predicates.idle(r) and r.uid not in gone
    ]
    assert not taken or not kept or max(taken) <= min(kept)


def test_scaling_down_during_a_roll_keeps_the_fresh_runners():
    stale = [make_runner(n, image=OLD) for n in range(5)]
    fresh = [make_runner(n) for n in range(5, 10)]
    decided = plan(make_pool(5), *fresh, *stale)
    assert reaped(decided) == {runner.uid: "scaled-down" for runner in stale}


def test_scaling_down_keeps_warm_runners_over_booting_ones():
    warm, booting = make_runner(1), make_runner(2, phase="Pending", bound_at=NOW)
    assert reaped(plan(make_pool(1), warm, booting)) == {"uid-2": "scaled-down"}
    assert reaped(plan(make_pool(1), booting, warm)) == {"uid-2": "scaled-down"}


def test_a_surplus_counts_creations_that_are_not_visible_yet():
    decided = plan(make_pool(2), make_runner(1), make_runner(2), expected=("mac-runner-x",))
    assert len(reaped(decided)) == 1


def test_a_gap_is_filled_at_once_and_invisible_creations_are_not_repeated():
    decided = plan(make_pool(5), make_runner(1), expected=("mac-runner-x", "mac-runner-y"))
    assert len(of(decided, CreateRunner)) == 2


def test_a_busy_surplus_is_not_deleted():
    decided = plan(make_pool(1), *(make_runner(n, owner="acme") for n in range(4)))
    assert decided.actions == ()


def test_an_ended_runner_is_reaped_and_replaced_in_one_plan():
    ended = make_runner(1, phase="Succeeded", owner="acme", finished_at=NOW - 5)
    decided = plan(make_pool(1), ended)
    assert [type(action) for action in decided.actions] == [ReapRunner, CreateRunner]
    action = decided.actions[0]
    assert (action.reason, action.ended_at, action.counted) == ("terminal", NOW - 5, False)


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        pytest.param(NodeView(name="host-1"), None, id="fine"),
        pytest.param(NodeView(name="host-1", leaving=True), "node-leaving", id="cordoned"),
        pytest.param(NodeView(name="host-1", gone=True), "node-gone", id="gone"),
        pytest.param(None, None, id="unknown-only-delays"),
    ],
)
def test_only_idle_runners_of_a_leaving_host_are_reaped(node, reason):
    nodes = (node,) if node else ()
    idle = plan(make_pool(1), make_runner(1), nodes=nodes)
    assert reaped(idle).get("uid-1") == reason
    assert len(of(idle, CreateRunner)) == (reason is not None)
    assert reaped(plan(make_pool(1), make_runner(1, owner="acme"), nodes=nodes)) == {}


def test_runners_that_do_not_start_in_time_are_reaped():
    stuck = make_runner(1, phase="Pending", bound_at=NOW - 9000)
    pulling = make_runner(2, phase="Pending", bound_at=NOW - 9000, progress_at=NOW - 5)
    unbound = make_runner(3, phase="Pending", node="", unschedulable_since=NOW - 400)
    decided = plan(make_pool(3), stuck, pulling, unbound)
    assert reaped(decided) == {"uid-1": "start-timeout", "uid-3": "unschedulable"}
    assert len(of(decided, CreateRunner)) == 2


def test_a_marked_runner_whose_guest_is_dead_does_not_stop_the_roll():
    dead = make_runner(1, image=OLD, marked=True, marked_at=NOW - 301)
    decided = plan(make_pool(2), dead, make_runner(2, image=OLD))
    assert reaped(decided) == {"uid-1": "drain-overdue"}
    assert of(decided, MarkDrainEligible) == []  # its replacement holds the slot until it is warm


def test_an_account_without_a_pod_is_reaped_and_a_young_one_is_not():
    runner = make_runner(1)
    accounts = (
        make_account(runner),
        make_account(make_runner(2)),
        make_account(make_runner(3), created_at=NOW - 30),
        make_account(make_runner(4)),
        make_account(make_runner(5), created_at=None),
        make_account(make_runner(6), deleting=True),
    )
    decided = plan(make_pool(2), runner, accounts=accounts, expected=(make_runner(4).name,))
    assert [action.name for action in of(decided, ReapAccount)] == [make_runner(2).name]


def test_a_deletion_by_another_client_is_reported_once():
    leaving = make_runner(1, deleting_at=NOW - 3)
    decided = plan(make_pool(0), leaving)
    assert [type(action) for action in decided.actions] == [ReportStopped]
    assert decided.actions[0].ended_at == NOW - 3
    assert plan(make_pool(0), change(leaving, reported=True)).actions == ()


@pytest.mark.parametrize(
    ("nodes", "forced", "stuck"),
    [
        pytest.param((NodeView(name="host-1", gone=True),), True, False, id="host-gone"),
        pytest.param((NodeView(name="host-1"),), False, True, id="host-there"),
        pytest.param((), False, True, id="host-unknown"),
    ],
)
def test_a_stuck_deletion_is_forced_only_when_its_host_is_gone(nodes, forced, stuck):
    runner = make_runner(1, deleting_at=NOW - 1000, reported=True)
    decided = plan(make_pool(0), runner, nodes=nodes)
    assert bool(of(decided, ForceDelete)) is forced
    assert bool(decided.figures.stuck) is stuck


def test_nothing_is_created_before_the_pool_holds_its_finalizer():
    decided = plan(make_pool(3, finalizers=("other",)))
    assert decided.actions == ()
    assert decided.finalizers is not None
    assert decided.finalizers.finalizers == ("other", names.POOL_DRAIN_FINALIZER)
    assert decided.finalizers.resource_version == "1"


def test_a_deleted_pool_waits_for_its_jobs_and_then_loses_its_finalizer():
    pool = make_pool(3, deleting=True, finalizers=("other", names.POOL_DRAIN_FINALIZER))
    idle, busy, ended = make_runner(1), make_runner(2, owner="a"), make_runner(3, phase="Succeeded")
    accounts = tuple(make_account(runner) for runner in (idle, busy, ended))
    first = plan(pool, idle, busy, ended, accounts=accounts)
    assert reaped(first) == {"uid-1": "pool-deleted", "uid-3": "terminal"}
    assert of(first, ReapAccount) == []
    assert (first.finalizers, first.waiting) == (None, Waiting.BUSY_RUNNERS.because(count=1))

    second = plan(pool, change(busy, deleting_at=NOW), accounts=accounts[1:2])
    assert [action.name for action in of(second, ReapAccount)] == [busy.name]
    assert second.finalizers is None

    assert plan(pool, expected=("mac-runner-x",)).finalizers is None

    last = plan(pool)
    assert last.finalizers is not None
    assert last.finalizers.finalizers == ("other",)


def test_starts_on_shared_hosts_are_limited_and_the_gap_is_reported():
    pool = make_pool(10, os="linux", runtime_class="kata-qemu")
    fleet = FleetView(ceiling=4, provisioning=1, provisioning_here=1, healthy_nodes=2)
    decided = plan(pool, fleet=fleet)
    assert (len(of(decided, CreateRunner)), decided.gap) == (3, 7)
    assert decided.figures.blocked is Blocked.FLEET_CAP


def test_the_status_is_due_only_after_a_while_or_a_new_image():
    fresh = PoolStatus(observed_replicas=1, observed_image=NEW, last_reconcile=to_rfc3339(NOW - 5))
    decided = plan(make_pool(1, status=fresh), make_runner(1)).status
    assert (decided.due, decided.observed, decided.image_rolled_at) == (False, 1, "")
    older = change(fresh, last_reconcile=to_rfc3339(NOW - 60), observed_image=OLD)
    decided = plan(make_pool(1, status=older), make_runner(1)).status
    assert (decided.due, decided.image_rolled_at) == (True, to_rfc3339(NOW))
    assert plan(make_pool(1, status=change(fresh, last_reconcile="soon"))).status.due


def test_the_figures_count_the_roll_the_phases_and_the_oldest_pending_pod():
    alive = (
        make_runner(1),
        make_runner(2, phase="Pending", created_at=NOW - 50),
        make_runner(3, image=OLD, owner="acme"),
        make_runner(4, phase="Unknown"),
    )
    figures = plan(make_pool(4), *alive).figures
    assert (figures.pending, figures.running, figures.unknown) == (1, 2, 1)
    assert (figures.idle, figures.provisioning, figures.stale, figures.cap) == (1, 2, 1, 1)
    assert figures.oldest_pending_seconds == 50
