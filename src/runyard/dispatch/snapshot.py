"""What the matcher decides by, read in one transaction.

Also whoever explains reads it (`thorough`): then every idle slot counts as waiting, whichever replica it
waits at, and no kind of job is left out because nobody waits for it.
"""

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


async def read(
    tx: Tx,
    *,
    pools: tuple[PoolView, ...],
    uids: tuple[str, ...],
    kinds: int,
    per_kind: int,
    silent: float,
    thorough: bool = False,
) -> Reading:
    """Read what could be matched now for the Pods that wait here; `kinds` and `per_kind` bound how much."""
    nothing = Snapshot(pools=pools, waiting=(), vacancies=(), tenants=())
    rows = await tx.all(SQL.match_kinds, limit=kinds)
    if not rows:
        return Reading(snapshot=nothing, selection=Selection())
    known = tuple(msgspec.convert(row, Kind) for row in rows)
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
        return Reading(snapshot=nothing, selection=selection, hungry=True, absent=absent)
    floor = await tx.one(SQL.match_floor)
    snapshot = Snapshot(
        pools=pools,
        waiting=tuple(msgspec.convert(row, Waiting) for row in waiting),
        vacancies=tuple(msgspec.convert(row, Vacancy) for row in vacant),
        tenants=await _tenants(tx, selection.wanted, per_kind),
        floor=0.0 if floor is None else float(floor["floor"]),
    )
    return Reading(snapshot=snapshot, selection=selection, hungry=True, absent=absent)


async def _tenants(tx: Tx, wanted: tuple[Kind, ...], per_kind: int) -> tuple[TenantQueue, ...]:
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
    names = list(by_tenant)
    rooms = await tx.all(SQL.match_rooms, tenants=names)
    floors = {row["tenant"]: row["floor"] for row in await tx.all(SQL.match_floors, tenants=names)}
    trials = {(kind.tenant, kind.repository): kind.trial for kind in wanted}
    return tuple(
        _tenant(name, own, rooms, trials, floor=floors[name]) for name, own in by_tenant.items()
    )


def _tenant(
    name: str,
    own: dict[str, list[Row]],
    rooms: list[Row],
    trials: dict[tuple[str, str], str],
    *,
    floor: float,
) -> TenantQueue:
    first = next(iter(own.values()))[0]
    return TenantQueue(
        tenant=name,
        installation_id=first["installation_id"],
        at_org=first["at_org"],
        weight=first["weight"],
        vtime=first["vtime"],
        repositories=tuple(
            RepositoryQueue(
                repository=repository,
                weight=rows[0]["repository_weight"],
                vtime=rows[0]["repository_vtime"],
                jobs=tuple(msgspec.convert(row, Candidate) for row in rows),
                trial=trials[name, repository],
            )
            for repository, rows in own.items()
        ),
        budgets=tuple(_budget(row) for row in rooms if row["tenant"] == name),
        floor=floor,
    )


def _budget(row: Row) -> Budget:
    return Budget(
        platform=row["platform"],
        room=Room(vcpus=row["vcpus"], memory_gb=row["memory_gb"]),
        limit=Room(vcpus=row["limit_vcpus"], memory_gb=row["limit_memory_gb"]),
    )
