"""Reads the matcher's snapshot in one transaction.

With `thorough` (for explanations) every idle slot counts as waiting, whichever replica its Pod polls, and kinds of jobs
without a waiting runner are included.
"""

from collections import Counter

import msgspec

from runyard.db.contract import Row, Statement, Tx
from runyard.dispatch.machine.values import Headroom
from runyard.dispatch.matching.select import Selection, select
from runyard.dispatch.matching.values import (
    Budget,
    Candidate,
    Exclusion,
    Kind,
    PoolView,
    RepositoryQueue,
    Snapshot,
    TenantQueue,
    Times,
    Vacancy,
    Waiting,
)
from runyard.dispatch.store import SQL
from runyard.wire.reasons_dispatch import TRANSITIONS

SEPARATOR = "\x1f"  # between labels, in a list of sets of labels; no label contains it


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot, and what holds the kinds of jobs that are not in it."""

    snapshot: Snapshot
    selection: Selection
    jobs_waiting: bool = False  # there are jobs that a runner could be offered
    not_idle: tuple[str, ...] = ()  # Pods that poll here and whose slots are not idle
    resume_after: tuple[Kind, ...] = ()  # the last kind that was read of each tenant that has more
    jobs: int = 0  # in the snapshot
    cut: bool = False  # there may be more jobs that a waiting runner fits


async def read(
    tx: Tx,
    *,
    pools: tuple[PoolView, ...],
    uids: tuple[str, ...],
    kinds: int,
    per_kind: int,
    silent: float,
    after: tuple[Kind, ...] = (),
    thorough: bool = False,
    expect: bool = True,
    expected: tuple[Kind, ...] = (),
) -> Reading:
    """Read what could be matched now for the Pods that wait here; `kinds` and `per_kind` bound how much.

    `after` is the `resume_after` of the last reading: a tenant with very many kinds is read in pieces. Runners and
    exclusions are read with the kinds of jobs if jobs are expected, else only if there are any. The jobs of the
    `expected` kinds are read in the same round trip; if others are wanted, the wanted ones are read in another one.
    """
    nothing = Snapshot(pools=pools, waiting=(), vacancies=(), tenants=())
    queued: dict[str, object] = {
        "limit": kinds,
        "dispatch": None if thorough else sorted({pool.dispatch_label for pool in pools}),
        "tenants": [kind.tenant for kind in after],
        "repositories": [kind.repository for kind in after],
        "kinds": [SEPARATOR.join(kind.labels) for kind in after],
    }
    supply: tuple[Statement, ...] = (
        (SQL.match_idle, {"silent": silent})
        if thorough
        else (SQL.match_slots, {"pod_uids": list(uids)}),
        (SQL.match_vacant, {}),
        (SQL.exclusions, {}),
    )
    beside = (*supply, *_queue_statements(expected, pools, per_kind)) if expect else ()
    rows, *known_rows = await tx.read((SQL.match_kinds, queued), *beside)
    if not rows:
        return Reading(snapshot=nothing, selection=Selection(), jobs_waiting=bool(after))
    known = tuple(msgspec.convert(row, Kind) for row in rows)
    resume_after = _resume_after(known, kinds)
    waiting, vacant, exclusions = known_rows[:3] or await tx.read(*supply)
    selection = select(
        known,
        pools=pools,
        supplied=None if thorough else tuple(row["pool"] for row in (*waiting, *vacant)),
        exclusions=tuple(_exclusion(row) for row in exclusions),
    )
    idle = {row["pod_uid"]: None for row in waiting}
    not_idle = tuple(uid for uid in uids if uid not in idle)
    if not selection.wanted:
        return Reading(
            snapshot=nothing,
            selection=selection,
            jobs_waiting=True,
            not_idle=not_idle,
            resume_after=resume_after,
        )
    queue_rows = known_rows[3:]
    if not _contains(expected, selection.wanted) or not queue_rows:
        queue_rows = await tx.read(*_queue_statements(selection.wanted, pools, per_kind))
    tenants, times = _queues(queue_rows, selection.wanted)
    found = [len(each.jobs) for tenant in tenants for each in tenant.repositories]
    snapshot = Snapshot(
        pools=pools,
        waiting=tuple(msgspec.convert(row, Waiting) for row in waiting),
        vacancies=tuple(msgspec.convert(row, Vacancy) for row in vacant),
        tenants=tenants,
        floors=times.floors.get("", {}),
    )
    return Reading(
        snapshot=snapshot,
        selection=selection,
        jobs_waiting=True,
        not_idle=not_idle,
        resume_after=resume_after,
        jobs=sum(found),
        cut=bool(after or resume_after) or max(found, default=0) >= per_kind,
    )


def _exclusion(row: Row) -> Exclusion:
    reason = TRANSITIONS.read(row["reason"], row["detail"])
    return Exclusion(kind=row["kind"], name=row["name"], left=row["left"], reason=reason)


def _resume_after(known: tuple[Kind, ...], kinds: int) -> tuple[Kind, ...]:
    counted = Counter(kind.tenant for kind in known)
    last = {kind.tenant: kind for kind in known}
    return tuple(kind for tenant, kind in last.items() if counted[tenant] >= kinds)


class _VirtualTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The virtual time of each tenant and repository, and the floor of each tenant."""

    current: dict[tuple[str, str], Times]
    floors: dict[str, Times]


def _queue_statements(
    wanted: tuple[Kind, ...], pools: tuple[PoolView, ...], per_kind: int
) -> tuple[Statement, ...]:
    """The statements that read the jobs of these kinds, with virtual times and budgets; none without kinds."""
    if not wanted:
        return ()
    tenants = sorted({kind.tenant for kind in wanted})
    repositories = ["", *sorted({kind.repository for kind in wanted})]
    platforms = sorted({pool.platform for pool in pools})
    wanted_kinds: dict[str, object] = {
        "tenants": [kind.tenant for kind in wanted],
        "repositories": [kind.repository for kind in wanted],
        "kinds": [SEPARATOR.join(kind.labels) for kind in wanted],
        "per_kind": per_kind,
    }
    return (
        (SQL.match_times, {"tenants": tenants, "repositories": repositories}),
        (SQL.match_floors, {"tenants": tenants, "platforms": platforms}),
        (SQL.match_jobs, wanted_kinds),
        (SQL.match_headroom, {"tenants": tenants}),
    )


def _key(kind: Kind) -> tuple[str, str, tuple[str, ...]]:
    return kind.tenant, kind.repository, kind.labels


def _contains(expected: tuple[Kind, ...], wanted: tuple[Kind, ...]) -> bool:
    return {_key(kind) for kind in wanted} <= {_key(kind) for kind in expected}


def _queues(
    rows: list[list[Row]], wanted: tuple[Kind, ...]
) -> tuple[tuple[TenantQueue, ...], _VirtualTimes]:
    """The jobs of the wanted kinds by tenant and repository, with virtual times and budgets."""
    current, floors, jobs, budgets = rows
    keys = {_key(kind) for kind in wanted}
    times = _VirtualTimes(current={}, floors={})
    for row in current:
        own = times.current.setdefault((row["tenant"], row["repository"]), {})
        own[row["platform"]] = row["vtime"]
    for row in floors:
        times.floors.setdefault(row["tenant"], {})[row["platform"]] = row["floor"]
    by_tenant: dict[str, dict[str, list[Row]]] = {}
    for row in jobs:
        if (row["tenant"], row["repository"], tuple(row["labels"])) not in keys:
            continue  # of a kind that was expected and is held
        by_tenant.setdefault(row["tenant"], {}).setdefault(row["repository"], []).append(row)
    trials = {(kind.tenant, kind.repository): kind.trial for kind in wanted}
    queues = tuple(_tenant(name, own, budgets, trials, times) for name, own in by_tenant.items())
    return queues, times


def _tenant(
    name: str,
    own: dict[str, list[Row]],
    budgets: list[Row],
    trials: dict[tuple[str, str], str],
    times: _VirtualTimes,
) -> TenantQueue:
    first = next(iter(own.values()))[0]
    return TenantQueue(
        tenant=name,
        installation_id=first["installation_id"],
        at_org=first["at_org"],
        weight=first["weight"],
        vtimes=times.current.get((name, ""), {}),
        repositories=tuple(
            RepositoryQueue(
                repository=repository,
                weight=rows[0]["repository_weight"],
                vtimes=times.current.get((name, repository), {}),
                jobs=tuple(msgspec.convert(row, Candidate) for row in rows),
                trial=trials[name, repository],
            )
            for repository, rows in own.items()
        ),
        budgets=tuple(_budget(row) for row in budgets if row["tenant"] == name),
        floors=times.floors.get(name, {}),
    )


def _budget(row: Row) -> Budget:
    return Budget(
        platform=row["platform"],
        headroom=Headroom(vcpus=row["vcpus"], memory_gb=row["memory_gb"]),
        limit=Headroom(vcpus=row["limit_vcpus"], memory_gb=row["limit_memory_gb"]),
    )
