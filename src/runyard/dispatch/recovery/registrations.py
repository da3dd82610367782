"""Ghost registrations: runners at GitHub that nobody speaks for, deleted once they were seen twice (`plans.ghosts`).

A look costs calls in every scope, so one replica at a time takes it. It may be cut off in a scope that answers slowly,
and it ends when it has found enough: the next look goes on behind that scope.
"""

from runyard.db.contract import Database, Row, Tx
from runyard.dispatch.plans.ghosts import Registration, unspoken
from runyard.dispatch.plans.taking import next_of
from runyard.dispatch.pools import Pools
from runyard.dispatch.recovery.reconciling import Desk, Finding
from runyard.dispatch.recovery.safe_delete import SafeDelete
from runyard.dispatch.settings import Settings
from runyard.dispatch.store import SQL
from runyard.dispatch.turns import Turns
from runyard.github.api import GitHub
from runyard.github.errors import GitHubError
from runyard.github.scope import Scope, parse
from runyard.github.views import Removal
from runyard.telemetry.log import Logger


class GhostRegistrations:
    """Looks through every scope in which runners of ours may be registered."""

    def __init__(
        self,
        *,
        github: GitHub,
        database: Database,
        pools: Pools,
        deleter: SafeDelete,
        desk: Desk,
        turns: Turns,
        log: Logger,
        settings: Settings,
    ) -> None:
        self._github = github
        self._database = database
        self._pools = pools
        self._deleter = deleter
        self._desk = desk
        self._turns = turns
        self._log = log
        self._settings = settings
        self._last = ""  # the scope that was looked at last

    async def step(self) -> None:
        """One look at every scope; a scope that cannot be read is skipped and judged another time."""
        if self._desk.off:
            return
        if not await self._turns.mine("ghosts", every=1.5 * self._settings.ghosts_every):
            return

        async def used(tx: Tx) -> list[Row]:
            return await tx.all(SQL.scopes_used)

        rows = await self._database.transact(used, name="scopes")
        left = self._settings.recover_limit
        for row in next_of(rows, after=self._last, limit=len(rows), key=_key):
            self._last = _key(row)
            scope = parse(row["scope"], installation_id=row["installation_id"])
            try:
                left -= await self._look(scope, limit=left)
            except GitHubError as error:
                self._log.info("scope not read", scope=str(scope), error=str(error))
            if left <= 0:
                return

    async def _look(self, scope: Scope, *, limit: int) -> int:
        """Judge one scope's; how many were found, at most `limit`."""
        # Before the slots are read: see plans.ghosts.
        listed = await self._github.list_runners(scope)
        runners = tuple(
            Registration(runner_id=each.id, name=each.name, busy=each.busy) for each in listed
        )

        async def judge(tx: Tx) -> list[tuple[Registration, float]]:
            rows = await tx.all(SQL.runners_spoken_for)
            ghosts = unspoken(
                runners,
                frozenset(row["runner_name"] for row in rows),
                pools=tuple(pool.name for pool in self._pools.known),
            )
            ids = [ghost.runner_id for ghost in ghosts]
            await tx.run(SQL.ghost_forget, scope=str(scope), runner_ids=ids)
            old = []
            for ghost in ghosts:
                seen = await tx.one(SQL.ghost_note, scope=str(scope), runner_id=ghost.runner_id)
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
            reason="registered, and nobody speaks for it",
            age=age,
            grace=self._settings.ghost_age,
        )
        try:
            removal = await self._deleter.registration(
                scope,
                ghost.runner_id,
                name=ghost.name,
                reason=finding.reason,
                mode=self._desk.mode,
            )
        except GitHubError as error:
            self._desk.failed(finding, error)
            return
        if removal is None:
            self._desk.would(finding, "delete its registration")
        elif removal is Removal.DELETED:
            self._desk.healed(finding, kind="ghost_registration")
        else:
            self._desk.left(finding, removal.value)


def _key(row: Row) -> str:
    return f"{row['scope']} {row['installation_id']}"
