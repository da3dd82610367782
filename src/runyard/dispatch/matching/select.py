"""Selects the kinds of jobs to read: those that a waiting runner could take.

Jobs that cannot run now block no others, however many there are. Of the queued kinds, only those are read that are
neither paused nor excluded, that fit a pool, and for which a runner of such a pool waits. For each of the others the
result says what holds it.
"""

import msgspec

from runyard.dispatch.matching.values import Exclusion, Held, Hold, Kind, PoolView, fits
from runyard.wire.reasons import Reason
from runyard.wire.reasons_dispatch import Holding


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The kinds to read, and what holds the others."""

    wanted: tuple[Kind, ...] = ()
    held: tuple[Held, ...] = ()


def select(
    kinds: tuple[Kind, ...],
    *,
    pools: tuple[PoolView, ...],
    supplied: tuple[str, ...] | None,
    exclusions: tuple[Exclusion, ...],
) -> Selection:
    """Divide the kinds. `supplied` names the pools with a waiting runner; None: do not check that."""
    excluded = {(each.kind, each.name): each for each in exclusions}
    fitting: dict[tuple[str, ...], tuple[PoolView, ...]] = {}
    wanted, held = [], []
    for kind in kinds:
        if kind.labels not in fitting:
            fitting[kind.labels] = tuple(pool for pool in pools if fits(pool, kind.labels))
        hold = _paused(kind) or _excluded(kind, excluded)
        hold = hold or _unmatched(kind, fitting[kind.labels], pools)
        if hold is None and not _supplied(fitting[kind.labels], supplied):
            hold = no_runner_idle(kind, fitting[kind.labels])
        if hold is None:
            wanted.append(msgspec.structs.replace(kind, trial=_trial(kind, excluded)))
        else:
            held.append(hold)
    return Selection(wanted=tuple(wanted), held=tuple(held))


def _supplied(fitting: tuple[PoolView, ...], supplied: tuple[str, ...] | None) -> bool:
    return supplied is None or any(pool.name in supplied for pool in fitting)


def no_runner_idle(kind: Kind, fitting: tuple[PoolView, ...]) -> Held:
    """Hold a kind because pools fit but none of their runners is idle."""
    names = tuple(pool.name for pool in fitting)
    reason = Holding.NO_RUNNER_IDLE.because(pools=", ".join(names[:3]))
    return held_by(kind, Hold.NO_RUNNER, reason, pools=names)


def held_by(
    kind: Kind,
    hold: Hold,
    reason: Reason,
    *,
    cause: Reason | None = None,
    pools: tuple[str, ...] = (),
) -> Held:
    """Build the hold of a kind of jobs."""
    return Held(
        tenant=kind.tenant,
        repository=kind.repository,
        labels=kind.labels,
        hold=hold,
        reason=reason,
        cause=cause,
        pools=pools,
    )


def _paused(kind: Kind) -> Held | None:
    if not kind.paused:
        return None
    return held_by(kind, Hold.PAUSED, Holding.TENANT_PAUSED.because(tenant=kind.tenant))


def _excluded(kind: Kind, excluded: dict[tuple[str, str], Exclusion]) -> Held | None:
    found = next((each for each in _exclusions_of(kind, excluded) if each.left > 0), None)
    if found is None:
        return None
    if found.kind == "github":
        reason = Holding.GITHUB_EXCLUDED.because(left=found.left)
        return held_by(kind, Hold.GITHUB, reason, cause=found.reason)
    reason = Holding.EXCLUDED.because(kind=found.kind, name=found.name, left=found.left)
    return held_by(kind, Hold.EXCLUDED, reason, cause=found.reason)


def _exclusions_of(kind: Kind, excluded: dict[tuple[str, str], Exclusion]) -> tuple[Exclusion, ...]:
    names = (("github", ""), ("account", kind.tenant), ("repository", kind.repository))
    return tuple(excluded[name] for name in names if name in excluded)


def _trial(kind: Kind, excluded: dict[tuple[str, str], Exclusion]) -> str:
    """The widest exclusion whose time is over and that no success has ended yet."""
    return next((f"{each.kind}:{each.name}" for each in _exclusions_of(kind, excluded)), "")


def _unmatched(
    kind: Kind, fitting: tuple[PoolView, ...], pools: tuple[PoolView, ...]
) -> Held | None:
    if fitting:
        return None
    return held_by(kind, Hold.NO_POOL, _mismatch(kind.labels, pools))


def _mismatch(labels: tuple[str, ...], pools: tuple[PoolView, ...]) -> Reason:
    """Why no pool fits these labels."""
    if not pools:
        return Holding.NO_POOLS.because()
    offered = {label for pool in pools for label in pool.labels}
    missing = [label for label in labels if label.lower() not in offered]
    if missing:
        return Holding.LABEL_MISSING.because(labels=", ".join(missing[:3]))
    wanted = [label.lower() for label in labels]
    if not any(pool.dispatch_label in wanted for pool in pools):
        return Holding.DISPATCH_LABEL_MISSING.because()
    return Holding.LABELS_SPREAD.because()
