"""Registrations at GitHub that nobody speaks for are deleted, once they were seen twice."""

from runyard.db.contract import Database, Row, Tx
from runyard.dispatch.plans.ghosts import Registration, unspoken
from runyard.dispatch.pools import Pools
from runyard.dispatch.settings import Settings
from runyard.dispatch.store import SQL
from runyard.github.api import GitHub
from runyard.github.errors import GitHubError
from runyard.github.scope import Scope, parse
from runyard.github.views import Removal
from runyard.telemetry.catalogue import TUIST_RUNNERS_RECOVERY_COUNT
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter


class GhostSweeper:
    """Looks through every scope in which runners of ours may be registered."""

    def __init__(
        self,
        *,
        github: GitHub,
        database: Database,
        pools: Pools,
        meter: Meter,
        log: Logger,
        settings: Settings,
    ) -> None:
        self._github = github
        self._database = database
        self._pools = pools
        self._meter = meter
        self._log = log
        self._settings = settings

    async def step(self) -> None:
        """One look at every scope; a scope that cannot be read is skipped and judged another time."""

        async def used(tx: Tx) -> list[Row]:
            return await tx.all(SQL.scopes_used)

        for row in await self._database.transact(used, name="scopes"):
            scope = parse(row["scope"], installation_id=row["installation_id"])
            try:
                await self._look(scope)
            except GitHubError as error:
                self._log.info("scope not read", scope=str(scope), error=str(error))

    async def _look(self, scope: Scope) -> None:
        # Before the slots are read: see plans.ghosts.
        listed = await self._github.list_runners(scope)
        runners = tuple(
            Registration(runner_id=each.id, name=each.name, busy=each.busy) for each in listed
        )

        async def judge(tx: Tx) -> list[Registration]:
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
                    old.append(ghost)
            return old

        for ghost in await self._database.transact(judge, name="ghosts"):
            removal = await self._github.delete_runner(scope, ghost.runner_id)
            self._log.warning("ghost registration", runner=ghost.name, outcome=removal.value)
            if removal is Removal.DELETED:
                self._meter.inc(TUIST_RUNNERS_RECOVERY_COUNT, kind="ghost_registration")
