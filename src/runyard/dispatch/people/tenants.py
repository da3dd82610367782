"""Tenants as people see and change them: limits, shares, a pause, and who changed what.

Invariants:
- A change and its entries in the audit trail are one transaction, under the tenant's lock.
- Tenants and repositories are made by their first webhook alone; what people change is somebody who is known.
"""

import msgspec

from runyard.db.contract import Database, Row, Tx
from runyard.db.statements import load
from runyard.dispatch.people.differences import Difference, Now, Wish, spelled, wish
from runyard.wire.people import Change, Limit, Repository, Tenant, TenantPatch, Tenants, Use

SQL = load("runyard.dispatch.people")
REPOSITORIES_SHOWN = 500
CHANGES_SHOWN = 20


class People:
    """Reads and changes tenants."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(self, *, after: str, limit: int, only_paused: bool) -> Tenants:
        """Some tenants, by name."""

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
        """One tenant, with its repositories and what was changed of it."""

        async def work(tx: Tx) -> Tenant | None:
            return await _show(tx, name)

        return await self._database.transact(work, name="tenant")

    async def change(self, name: str, patch: TenantPatch, *, actor: str) -> Tenant | None:
        """Make the patch hold; `None` if there is no such tenant, `BadWish` if it makes no sense.

        Whoever resumes a tenant says that it can be served: what it was passed over for is tried at once.
        """

        async def work(tx: Tx) -> Tenant | None:
            held = await tx.one(SQL.tenant_hold, tenant=name)
            if held is None:
                return None
            now = await _now(tx, held, patch)
            found = wish(now, spelled(patch, now.repositories, tenant=name))
            if found.differences:
                await _write(tx, name, found)
            tried = await _try_again(tx, name) if patch.paused is False else ()
            for each in (*found.differences, *tried):
                entry = msgspec.structs.asdict(each)
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
        changes=tuple(Change(**each) for each in changes),
    )


async def _now(tx: Tx, held: Row, patch: TenantPatch) -> Now:
    name = held["tenant"]
    limits = await tx.all(SQL.limits_used, tenants=[name])
    known = await tx.all(
        SQL.repositories_named,
        tenant=name,
        repositories=[each.repository.lower() for each in patch.repositories],
    )
    return Now(
        weight=held["weight"],
        paused=held["paused"],
        limits=tuple(
            Limit(platform=row["platform"], vcpus=row["vcpus"], memory_gb=row["memory_gb"])
            for row in limits
        ),
        repositories=tuple(Repository(**row) for row in known),
    )


async def _try_again(tx: Tx, name: str) -> tuple[Difference, ...]:
    rows = await tx.all(SQL.exclusions_end, tenant=name)
    return tuple(
        Difference(
            field=f"passed over {row['kind']} {row['name']}",
            source=row["why"],
            target="tried again",
        )
        for row in sorted(rows, key=lambda row: (row["kind"], row["name"]))
    )


async def _write(tx: Tx, name: str, found: Wish) -> None:
    await tx.run(SQL.tenant_write, tenant=name, weight=found.weight, paused=found.paused)
    for limit in found.limits:
        await tx.run(SQL.limit_write, tenant=name, **msgspec.structs.asdict(limit))
    for repository in found.repositories:
        values = msgspec.structs.asdict(repository)
        await tx.run(SQL.repository_write, tenant=name, **values)
        await tx.run(
            SQL.jobs_reprioritise,
            tenant=name,
            repository=repository.repository,
            priority=repository.priority,
        )


def _tenant(row: Row, used: list[Row]) -> Tenant:
    own = [each for each in used if each["tenant"] == row["tenant"]]
    return Tenant(
        **row,
        limits=tuple(Use(**{k: v for k, v in each.items() if k != "tenant"}) for each in own),
    )
