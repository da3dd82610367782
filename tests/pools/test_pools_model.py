"""Tests plans over time on a small pure model of hosts, guests and jobs.

A tick plans, applies the plan and then advances the model. Booting takes a few ticks, a marked idle runner
ends at its next poll, jobs start and end.
"""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pools.pool_builders import NEW, NOW, OLD, change, make_pool, make_runner, make_snapshot

from runyard.pools.plans import predicates
from runyard.pools.plans.actions import CreateRunner, MarkDrainEligible, ReapRunner
from runyard.pools.plans.pool import plan_pool
from runyard.pools.settings import Settings

TICK = 5.0
SETTINGS = Settings()


class PoolModel:
    """A pool whose plans are applied at once."""

    def __init__(self, pool, runners, *, seed=0, boot=3, busy_chance=0.0, creation=True):
        self.pool = pool
        self.runners = {runner.uid: runner for runner in runners}
        self.random = random.Random(seed)
        self.boot = boot
        self.busy_chance = busy_chance
        self.creation = creation
        self.now = NOW
        self.serial = 1000
        self.created = {}

    def warm(self):
        return sum(
            predicates.alive(r) and predicates.warm(r, self.pool) for r in self.runners.values()
        )

    def stale(self):
        return sum(
            predicates.alive(r) and predicates.stale(r, self.pool) for r in self.runners.values()
        )

    def tick(self):
        snapshot = make_snapshot(self.pool, *self.runners.values())
        for action in plan_pool(snapshot, SETTINGS, self.now).actions:
            self.apply(action)
        self.now += TICK
        for runner in tuple(self.runners.values()):
            self.move(runner)

    def apply(self, action):
        match action:
            case ReapRunner():
                runner = self.runners.pop(action.uid)
                assert predicates.idle(runner) or predicates.terminal(runner)
            case MarkDrainEligible():
                runner = self.runners[action.uid]
                self.runners[action.uid] = change(runner, marked=True, marked_at=self.now)
            case CreateRunner() if self.creation:
                self.serial += 1
                phase = {"phase": "Pending", "created_at": self.now, "bound_at": self.now}
                runner = make_runner(self.serial, image=self.pool.spec.image, **phase)
                self.runners[runner.uid] = runner
                self.created[runner.uid] = self.now

    def move(self, runner):
        if runner.phase == "Pending":
            if self.now - self.created.get(runner.uid, 0) >= self.boot * TICK:
                self.become(runner, phase="Running")
        elif runner.phase == "Running" and runner.owner:
            if self.random.random() < 0.2:
                self.become(runner, phase="Succeeded")
        elif runner.phase == "Running":
            if self.random.random() < self.busy_chance:
                self.become(runner, owner="acme")
            elif runner.marked:
                self.become(runner, phase="Succeeded")

    def become(self, runner, **changes):
        self.runners[runner.uid] = change(runner, **changes)


def old_pool(replicas, **more):
    return make_pool(replicas, **more), [make_runner(n, image=OLD) for n in range(replicas)]


def test_a_roll_whose_replacements_cannot_be_created_stops_at_the_cap():
    """Without the cap the pool is empty after a hundred seconds."""
    pool, runners = old_pool(40)
    model = PoolModel(pool, runners, creation=False)
    low = 40
    for _ in range(200):
        model.tick()
        low = min(low, model.warm())
    assert low == 38


def test_a_linux_roll_whose_replacements_cannot_be_created_stops_at_the_cap():
    pool = make_pool(40, os="linux", start=0)
    warm = {"phase": "Pending", "poller": "running"}
    model = PoolModel(pool, [make_runner(n, image=OLD, **warm) for n in range(40)], creation=False)
    model.move = lambda runner: None
    for _ in range(200):
        model.tick()
    assert model.warm() == 38


@pytest.mark.slow
@given(
    replicas=st.integers(1, 25),
    percent=st.integers(1, 100),
    boot=st.integers(1, 8),
    seed=st.integers(0, 1000),
)
def test_a_quiet_roll_ends_and_never_takes_more_than_the_cap(replicas, percent, boot, seed):
    pool, runners = old_pool(replicas, percent=percent)
    model = PoolModel(pool, runners, seed=seed, boot=boot)
    cap = max(1, replicas * percent // 100)
    for _ in range(replicas * (boot + 4) + 10):
        model.tick()
        assert model.warm() >= replicas - cap
    assert model.stale() == 0
    assert model.warm() == replicas


@given(
    replicas=st.integers(1, 15),
    percent=st.integers(1, 50),
    chance=st.floats(0.0, 0.3),
    seed=st.integers(0, 1000),
)
def test_a_roll_under_load_ends(replicas, percent, chance, seed):
    pool, runners = old_pool(replicas, percent=percent)
    model = PoolModel(pool, runners, seed=seed, busy_chance=chance)
    for _ in range(replicas * 60 + 100):
        model.tick()
        if not model.stale():
            break
    assert model.stale() == 0
    assert all(r.image == NEW for r in model.runners.values() if predicates.alive(r))


@pytest.mark.slow
@given(sizes=st.lists(st.integers(0, 12), min_size=1, max_size=6), seed=st.integers(0, 1000))
def test_any_sequence_of_replicas_ends_at_the_last_one(sizes, seed):
    model = PoolModel(*old_pool(3), seed=seed, busy_chance=0.1)
    for size in sizes:
        model.pool = make_pool(size)
        for _ in range(4):
            model.tick()
    model.busy_chance = 0.0
    for _ in range(400):
        model.tick()
    assert model.warm() == sizes[-1] == len(model.runners)
