"""Deletes ghost registrations: runners at GitHub that no slot claims, once they were seen twice (`plans.ghosts`).

A pass costs calls in every scope, so one replica at a time does it. A pass may time out in a slow scope, and it ends
when it has found enough; the next pass continues after that scope.
"""

from runyard.db.contract import Row, Tx
from runyard.dispatch.deps import Deps
from runyard.dispatch.plans.ghosts import Registration, unclaimed
from runyard.dispatch.plans.rotation import next_in_rotation
from runyard.dispatch.pools import Pools
from runyard.dispatch.recovery.report import Finding, ReconcilerReport
from runyard.dispatch.recovery.safe_delete import SafeDelete
from runyard.dispatch.store import SQL
from runyard.dispatch.task_lease import TaskLease
from runyard.github.client import GitHub
from runyard.github.errors import GitHubError
from runyard.github.scope import Scope, parse
from runyard.github.views import Removal
from runyard.wire.reasons_dispatch import Found, Left, Would

_LEFT = {Removal.BUSY: Left.REGISTRATION_BUSY, Removal.ABSENT: Left.REGISTRATION_ABSENT}


class GhostRegistrations:
    """Finds and deletes ghost registrations in every scope with our runners."""

    def __init__(
        self,
        deps: Deps,
        *,
        github: GitHub,
        pools: Pools,
        deleter: SafeDelete,
        report: ReconcilerReport,
        leases: TaskLease,
    ) -> None:
        self._github = github
        self._database = deps.database
        self._pools = pools
        self._deleter = deleter
        self._report = report
        self._leases = leases
        self._log = deps.log
        self._settings = deps.settings
        self._last = ""  # the scope that was listed last

    async def step(self) -> None:
        """One pass over the scopes; a scope that cannot be read is skipped until the next pass."""
        if self._report.off:
            return
        if not await self._leases.acquire("ghosts", every=1.5 * self._settings.ghosts_every):
            return

        async def used(tx: Tx) -> list[Row]:
            return await tx.all(SQL.scopes_used)

        rows = await self._database.transact(used, name="scopes")
        left = self._settings.recover_limit
        for row in next_in_rotation(rows, after=self._last, limit=len(rows), key=_key):
            self._last = _key(row)
            scope = parse(row["scope"], installation_id=row["installation_id"])
            try:
                left -= await self._list(scope, limit=left)
            except GitHubError as error:
                self._log.info("scope not read", scope=str(scope), error=str(error))
            if left <= 0:
                return

    async def _list(self, scope: Scope, *, limit: int) -> int:
        """Delete the ghost registrations of one scope; returns how many, at most `limit`."""
        # Before the slots are read: see plans.ghosts.
        listed = await self._github.list_runners(scope)
        runners = tuple(
            Registration(runner_id=each.id, name=each.name, busy=each.busy) for each in listed
        )

        async def judge(tx: Tx) -> list[tuple[Registration, float]]:
            rows = await tx.all(SQL.runners_claimed)
            ghosts = unclaimed(
                runners,
                frozenset(row["runner_name"] for row in rows),
                pools=tuple(pool.name for pool in self._pools.known),
            )
            ids = [ghost.runner_id for ghost in ghosts]
            await tx.run(SQL.ghosts_delete, scope=str(scope), runner_ids=ids)
            old = []
            for ghost in ghosts:
                seen = await tx.one(SQL.ghost_record, scope=str(scope), runner_id=ghost.runner_id)
                if seen is not None and seen["age"] >= self._settings.ghost_age:
                    old.append((ghost, float(seen["age"])))
            return old[:limit]

        found = await self._database.transact(judge, name="ghosts")
        for ghost, age in found:
            await self._delete(scope, ghost, age)
        return len(found)

    async def _delete(self, scope: Scope, ghost: Registration, age: float) -> None:
        finding = Finding(
            pod=ghost.name,
            reason=Found.REGISTRATION_UNCLAIMED.because(),
            age=age,
            grace=self._settings.ghost_age,
        )
        try:
            removal = await self._deleter.registration(
                scope,
                ghost.runner_id,
                name=ghost.name,
                reason=finding.reason,
                mode=self._report.mode,
            )
        except GitHubError as error:
            self._report.failed(finding, error)
            return
        if removal is None:
            self._report.would(finding, Would.DELETE_REGISTRATION)
        elif removal is Removal.DELETED:
            self._report.healed(finding, kind="ghost_registration")
        else:
            self._report.left(finding, _LEFT[removal].because())


def _key(row: Row) -> str:
    return f"{row['scope']} {row['installation_id']}"
