"""Reads and changes tenants for the REST API: limits, weights, a pause, and the audit trail.

Invariants:
- A change and its entries in the audit trail are one transaction, under the tenant's lock.
- Only the first webhook creates a tenant or a repository; a change needs one that exists.
"""

import msgspec

from runyard.db.contract import Database, Row, Tx
from runyard.db.statements import load
from runyard.dispatch.rest.tenant_update import (
    Difference,
    TenantState,
    TenantUpdate,
    plan_update,
    with_known_names,
)
from runyard.wire.reasons_dispatch import TRANSITIONS, Requested
from runyard.wire.rest import Change, Limit, Repository, Tenant, TenantPatch, Tenants, Use

SQL = load("runyard.dispatch.rest")
REPOSITORIES_SHOWN = 500
CHANGES_SHOWN = 20


class TenantService:
    """Reads and changes tenants."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(self, *, after: str, limit: int, only_paused: bool) -> Tenants:
        """Return a page of tenants, by name."""

        async def work(tx: Tx) -> Tenants:
            rows = await tx.all(
                SQL.tenants_page, after=after, limit=limit + 1, only_paused=only_paused
            )
            shown = rows[:limit]
            used = await tx.all(SQL.limits_used, tenants=[row["tenant"] for row in shown])
            return Tenants(
                items=tuple(_tenant(row, used) for row in shown),
                next=shown[-1]["tenant"] if len(rows) > limit else "",
            )

        return await self._database.transact(work, name="tenants")

    async def show(self, name: str) -> Tenant | None:
        """Return one tenant with its repositories and audit trail; None if it is unknown."""

        async def work(tx: Tx) -> Tenant | None:
            return await _show(tx, name)

        return await self._database.transact(work, name="tenant")

    async def change(self, name: str, patch: TenantPatch, *, actor: str) -> Tenant | None:
        """Apply a patch; None if the tenant is unknown. Raises `InvalidPatch`.

        Resuming a tenant also expires its exclusions, so that one job is tried at once.
        """

        async def work(tx: Tx) -> Tenant | None:
            locked = await tx.one(SQL.tenant_lock, tenant=name)
            if locked is None:
                return None
            state = await _state(tx, locked, patch)
            update = plan_update(state, with_known_names(patch, state.repositories, tenant=name))
            if update.differences:
                await _write(tx, name, update)
            tried = await _expire_exclusions(tx, name) if patch.paused is False else ()
            for each in (*update.differences, *tried):
                entry = msgspec.structs.asdict(each)
                entry["detail"] = msgspec.json.encode(each.detail).decode()
                await tx.run(
                    SQL.change_append, tenant=name, job=None, why=patch.why, actor=actor, **entry
                )
            return await _show(tx, name)

        return await self._database.transact(work, name="tenant change")


async def _show(tx: Tx, name: str) -> Tenant | None:
    row = await tx.one(SQL.tenant_of, tenant=name)
    if row is None:
        return None
    used = await tx.all(SQL.limits_used, tenants=[name])
    repositories = await tx.all(SQL.repositories_of, tenant=name, limit=REPOSITORIES_SHOWN)
    changes = await tx.all(SQL.changes_of, tenant=name, limit=CHANGES_SHOWN)
    return msgspec.structs.replace(
        _tenant(row, used),
        repositories=tuple(Repository(**each) for each in repositories),
        changes=tuple(_change(each) for each in changes),
    )


async def _state(tx: Tx, locked: Row, patch: TenantPatch) -> TenantState:
    name = locked["tenant"]
    limits = await tx.all(SQL.limits_used, tenants=[name])
    known = await tx.all(
        SQL.repositories_named,
        tenant=name,
        repositories=[each.repository.lower() for each in patch.repositories],
    )
    return TenantState(
        weight=locked["weight"],
        paused=locked["paused"],
        limits=tuple(
            Limit(platform=row["platform"], vcpus=row["vcpus"], memory_gb=row["memory_gb"])
            for row in limits
        ),
        repositories=tuple(Repository(**row) for row in known),
    )


async def _expire_exclusions(tx: Tx, name: str) -> tuple[Difference, ...]:
    rows = await tx.all(SQL.exclusions_expire, tenant=name)
    return tuple(
        Difference(
            field=f"exclusion/{row['kind']}/{row['name']}",
            source=row["reason"],
            target=Requested.TRIED_AGAIN.value,
            detail=row["detail"],
        )
        for row in sorted(rows, key=lambda row: (row["kind"], row["name"]))
    )


async def _write(tx: Tx, name: str, update: TenantUpdate) -> None:
    await tx.run(SQL.tenant_write, tenant=name, weight=update.weight, paused=update.paused)
    for limit in update.limits:
        await tx.run(SQL.limit_write, tenant=name, **msgspec.structs.asdict(limit))
    for repository in update.repositories:
        values = msgspec.structs.asdict(repository)
        await tx.run(SQL.repository_write, tenant=name, **values)
        await tx.run(
            SQL.jobs_reprioritise,
            tenant=name,
            repository=repository.repository,
            priority=repository.priority,
        )


def _change(row: Row) -> Change:
    ended = row["target"] == Requested.TRIED_AGAIN
    text = TRANSITIONS.text(row["source"], row["detail"]) if ended else ""
    return Change(**row, text=text)


def _tenant(row: Row, used: list[Row]) -> Tenant:
    own = [each for each in used if each["tenant"] == row["tenant"]]
    return Tenant(
        **row,
        limits=tuple(Use(**{k: v for k, v in each.items() if k != "tenant"}) for each in own),
    )
