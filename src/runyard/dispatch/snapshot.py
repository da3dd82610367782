"""What the matcher decides by, read in one transaction.

Also whoever explains reads it (`thorough`): then every idle slot counts as waiting, whichever replica it
waits at, and no kind of job is left out because nobody waits for it.
"""

from collections import Counter

import msgspec

from runyard.db.contract import Row, Tx
from runyard.dispatch.machine.values import Room
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

SEPARATOR = "\x1f"  # between labels, in a list of sets of labels; no label contains it


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot, and what became of the kinds that are not in it."""

    snapshot: Snapshot
    selection: Selection
    hungry: bool = False  # there are jobs that a runner could be offered
    absent: tuple[str, ...] = ()  # those who wait here and whose slots are not idle
    cut: tuple[Kind, ...] = ()  # the last kind of each tenant that has more of them than were read


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
) -> Reading:
    """Read what could be matched now for the Pods that wait here; `kinds` and `per_kind` bound how much.

    `after` is what the last reading `cut`: a tenant with very many kinds is read a piece at a time.
    """
    nothing = Snapshot(pools=pools, waiting=(), vacancies=(), tenants=())
    rows = await tx.all(
        SQL.match_kinds,
        limit=kinds,
        dispatch=None if thorough else sorted({pool.dispatch_label for pool in pools}),
        tenants=[kind.tenant for kind in after],
        repositories=[kind.repository for kind in after],
        kinds=[SEPARATOR.join(kind.labels) for kind in after],
    )
    if not rows:
        return Reading(snapshot=nothing, selection=Selection(), hungry=bool(after))
    known = tuple(msgspec.convert(row, Kind) for row in rows)
    cut = _cut(known, kinds)
    waiting = (
        await tx.all(SQL.match_idle, silent=silent)
        if thorough
        else await tx.all(SQL.match_slots, pod_uids=list(uids))
    )
    vacant = await tx.all(SQL.match_vacant)
    exclusions = await tx.all(SQL.exclusions)
    selection = select(
        known,
        pools=pools,
        supplied=None if thorough else tuple(row["pool"] for row in (*waiting, *vacant)),
        exclusions=tuple(msgspec.convert(row, Exclusion) for row in exclusions),
    )
    idle = {row["pod_uid"]: None for row in waiting}
    absent = tuple(uid for uid in uids if uid not in idle)
    if not selection.wanted:
        return Reading(snapshot=nothing, selection=selection, hungry=True, absent=absent, cut=cut)
    times = await _virtual_times(tx, selection.wanted, pools)
    snapshot = Snapshot(
        pools=pools,
        waiting=tuple(msgspec.convert(row, Waiting) for row in waiting),
        vacancies=tuple(msgspec.convert(row, Vacancy) for row in vacant),
        tenants=await _tenants(tx, selection.wanted, per_kind, times),
        floors=times.floors.get("", {}),
    )
    return Reading(snapshot=snapshot, selection=selection, hungry=True, absent=absent, cut=cut)


def _cut(known: tuple[Kind, ...], kinds: int) -> tuple[Kind, ...]:
    counted = Counter(kind.tenant for kind in known)
    last = {kind.tenant: kind for kind in known}
    return tuple(kind for tenant, kind in last.items() if counted[tenant] >= kinds)


class _VirtualTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Where everybody stands, by tenant and repository, and where the last ones began, by tenant."""

    standing: dict[tuple[str, str], Times]
    floors: dict[str, Times]


async def _virtual_times(
    tx: Tx, wanted: tuple[Kind, ...], pools: tuple[PoolView, ...]
) -> _VirtualTimes:
    tenants = sorted({kind.tenant for kind in wanted})
    repositories = ["", *sorted({kind.repository for kind in wanted})]
    platforms = sorted({pool.platform for pool in pools})
    times = _VirtualTimes(standing={}, floors={})
    for row in await tx.all(SQL.match_times, tenants=tenants, repositories=repositories):
        own = times.standing.setdefault((row["tenant"], row["repository"]), {})
        own[row["platform"]] = row["vtime"]
    for row in await tx.all(SQL.match_floors, tenants=tenants, platforms=platforms):
        times.floors.setdefault(row["tenant"], {})[row["platform"]] = row["floor"]
    return times


async def _tenants(
    tx: Tx, wanted: tuple[Kind, ...], per_kind: int, times: _VirtualTimes
) -> tuple[TenantQueue, ...]:
    jobs = await tx.all(
        SQL.match_jobs,
        tenants=[kind.tenant for kind in wanted],
        repositories=[kind.repository for kind in wanted],
        kinds=[SEPARATOR.join(kind.labels) for kind in wanted],
        per_kind=per_kind,
    )
    by_tenant: dict[str, dict[str, list[Row]]] = {}
    for row in jobs:
        by_tenant.setdefault(row["tenant"], {}).setdefault(row["repository"], []).append(row)
    rooms = await tx.all(SQL.match_rooms, tenants=list(by_tenant))
    trials = {(kind.tenant, kind.repository): kind.trial for kind in wanted}
    return tuple(_tenant(name, own, rooms, trials, times) for name, own in by_tenant.items())


def _tenant(
    name: str,
    own: dict[str, list[Row]],
    rooms: list[Row],
    trials: dict[tuple[str, str], str],
    times: _VirtualTimes,
) -> TenantQueue:
    first = next(iter(own.values()))[0]
    return TenantQueue(
        tenant=name,
        installation_id=first["installation_id"],
        at_org=first["at_org"],
        weight=first["weight"],
        vtimes=times.standing.get((name, ""), {}),
        repositories=tuple(
            RepositoryQueue(
                repository=repository,
                weight=rows[0]["repository_weight"],
                vtimes=times.standing.get((name, repository), {}),
                jobs=tuple(msgspec.convert(row, Candidate) for row in rows),
                trial=trials[name, repository],
            )
            for repository, rows in own.items()
        ),
        budgets=tuple(_budget(row) for row in rooms if row["tenant"] == name),
        floors=times.floors.get(name, {}),
    )


def _budget(row: Row) -> Budget:
    return Budget(
        platform=row["platform"],
        room=Room(vcpus=row["vcpus"], memory_gb=row["memory_gb"]),
        limit=Room(vcpus=row["limit_vcpus"], memory_gb=row["limit_memory_gb"]),
    )
