"""Which kinds of jobs are worth reading: those that somebody who waits could take.

However many jobs wait for something that is not here, they stand in nobody's way: of the kinds that are
queued, only those are read that are not paused or passed over, that a pool fits, and that a runner of such a pool
waits for. Each of the others says what holds it.
"""

import msgspec

from runyard.dispatch.matching.values import Exclusion, Held, Hold, Kind, PoolView, fits


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
    """Divide the kinds. `supplied` names the pools of which a runner waits; None: it is not asked."""
    passed_over = {(each.kind, each.name): each for each in exclusions}
    fitting: dict[tuple[str, ...], tuple[PoolView, ...]] = {}
    wanted, held = [], []
    for kind in kinds:
        if kind.labels not in fitting:
            fitting[kind.labels] = tuple(pool for pool in pools if fits(pool, kind.labels))
        why = _paused(kind) or _excluded(kind, passed_over)
        why = why or _unmatched(kind, fitting[kind.labels], pools)
        if why is None and not _anybody(fitting[kind.labels], supplied):
            why = nobody_waits(kind, fitting[kind.labels])
        if why is None:
            wanted.append(msgspec.structs.replace(kind, trial=_trial(kind, passed_over)))
        else:
            held.append(why)
    return Selection(wanted=tuple(wanted), held=tuple(held))


def _anybody(fitting: tuple[PoolView, ...], supplied: tuple[str, ...] | None) -> bool:
    return supplied is None or any(pool.name in supplied for pool in fitting)


def nobody_waits(kind: Kind, fitting: tuple[PoolView, ...]) -> Held:
    """Pools fit, and none of their runners is free."""
    names = tuple(pool.name for pool in fitting)
    text = f"no runner of {', '.join(names[:3])} is free"
    return held_by(kind, Hold.NO_RUNNER, text, pools=names)


def held_by(
    kind: Kind,
    hold: Hold,
    text: str,
    *,
    numbers: tuple[tuple[str, float], ...] = (),
    pools: tuple[str, ...] = (),
) -> Held:
    """What holds the jobs of a kind."""
    return Held(
        tenant=kind.tenant,
        repository=kind.repository,
        labels=kind.labels,
        hold=hold,
        text=text,
        numbers=numbers,
        pools=pools,
    )


def _paused(kind: Kind) -> Held | None:
    return held_by(kind, Hold.PAUSED, f"{kind.tenant} is paused") if kind.paused else None


def _excluded(kind: Kind, passed_over: dict[tuple[str, str], Exclusion]) -> Held | None:
    found = next((each for each in _about(kind, passed_over) if each.left > 0), None)
    if found is None:
        return None
    hold = Hold.GITHUB if found.kind == "github" else Hold.EXCLUDED
    whom = "GitHub" if found.kind == "github" else f"the {found.kind} {found.name}"
    text = f"no runner is made for {whom} for another {found.left:.0f} s: {found.why}"
    if hold is Hold.GITHUB:
        text = f"GitHub is left alone for another {found.left:.0f} s: {found.why}"
    return held_by(kind, hold, text, numbers=(("seconds_left", found.left),))


def _about(kind: Kind, passed_over: dict[tuple[str, str], Exclusion]) -> tuple[Exclusion, ...]:
    names = (("github", ""), ("account", kind.tenant), ("repository", kind.repository))
    return tuple(passed_over[name] for name in names if name in passed_over)


def _trial(kind: Kind, passed_over: dict[tuple[str, str], Exclusion]) -> str:
    """The widest exclusion that has run out and was not disproved yet."""
    return next((f"{each.kind}:{each.name}" for each in _about(kind, passed_over)), "")


def _unmatched(
    kind: Kind, fitting: tuple[PoolView, ...], pools: tuple[PoolView, ...]
) -> Held | None:
    if fitting:
        return None
    return held_by(kind, Hold.NO_POOL, f"no pool matches: {_mismatch(kind.labels, pools)}")


def _mismatch(labels: tuple[str, ...], pools: tuple[PoolView, ...]) -> str:
    """What exactly no pool offers."""
    if not pools:
        return "there is no pool"
    offered = {label for pool in pools for label in pool.labels}
    missing = [label for label in labels if label.lower() not in offered]
    if missing:
        return f"none has the label {', '.join(missing[:3])}"
    wanted = [label.lower() for label in labels]
    if not any(pool.dispatch_label in wanted for pool in pools):
        return "none of its labels is the one that a pool is asked for by"
    return "no single pool has all of its labels"
