"""Plans one step of a roll: how many runners may be unavailable, and which are retired next.

Without a limit a new image empties a whole warm pool: every host pulls tens of gigabytes at the same time. So a
runner is retired only while fewer runners than the cap are unavailable.

Invariants:
- The cap is `max(1, floor(percent / 100 × replicas))`: a roll always moves, and never faster.
- Unavailable are: marked idle stale runners, current runners that are not warm yet, and replicas that
  do not exist. The last keeps a roll from emptying the pool when nothing can be created.
- A busy runner holds no roll slot, marked or not: a job may run for hours.
- Stale runners that are not warm are retired before those that are.
"""

import msgspec

from runyard.pools.plans import predicates
from runyard.pools.plans.views import PoolView, RunnerView


class Roll(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a roll."""

    cap: int
    rolling: int
    """Unavailable runners, this step included; zero when nothing is stale."""
    stale: int
    """Stale runners before this step."""
    reap: tuple[RunnerView, ...] = ()
    mark: tuple[RunnerView, ...] = ()


def cap(replicas: int, percent: int) -> int:
    """How many runners may be unavailable before a roll waits."""
    if replicas <= 0 or percent <= 0:
        return 1
    return max(1, replicas * percent // 100)


def unavailable(alive: tuple[RunnerView, ...], pool: PoolView, *, expected: int = 0) -> int:
    """How many of the replicas cannot take a job for reasons that a roll must wait for.

    A creation that is not visible yet counts as a runner that is not warm.
    """
    count = expected + max(0, pool.spec.replicas - len(alive) - expected)
    for runner in alive:
        if not predicates.idle(runner):
            continue
        if predicates.stale(runner, pool):
            count += runner.marked and predicates.stale_image(runner, pool)
        else:
            count += not predicates.warm(runner, pool)
    return count


def plan_roll(alive: tuple[RunnerView, ...], pool: PoolView, *, expected: int = 0) -> Roll:
    """Retire as many stale idle runners as the cap allows."""
    limit = cap(pool.spec.replicas, pool.spec.rollout.max_concurrent_percent)
    stale = [runner for runner in alive if predicates.stale(runner, pool)]
    if not stale:
        return Roll(cap=limit, rolling=0, stale=0)
    down = unavailable(alive, pool, expected=expected)
    chosen = sorted(
        (runner for runner in stale if _retirable(runner, pool)),
        key=lambda runner: _order(runner, pool),
    )[: max(0, limit - down)]
    reap = tuple(runner for runner in chosen if runner.phase == "Pending")
    mark = tuple(runner for runner in chosen if runner.phase != "Pending")
    rolling = down + len(chosen)
    return Roll(cap=limit, rolling=rolling, stale=len(stale), reap=reap, mark=mark)


def _retirable(runner: RunnerView, pool: PoolView) -> bool:
    """Idle and not marked yet. A running Pod of an old runtime class is left to finish."""
    if not predicates.idle(runner) or runner.marked:
        return False
    return runner.phase == "Pending" or predicates.stale_image(runner, pool)


def _order(runner: RunnerView, pool: PoolView) -> tuple[bool, bool, str]:
    return (predicates.warm(runner, pool), runner.phase != "Pending", runner.name)
