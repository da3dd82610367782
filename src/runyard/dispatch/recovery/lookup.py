"""Looks up the runners of Pods with an unknown owner in every scope at GitHub (see `plans.lookup`).

A lookup costs one request for each scope, whatever the number of Pods. So one replica at a time does it, a tick reads a
limited number of scopes, the next tick continues, and the requests are of the purpose that leaves most of GitHub's rate
budget to others. An installation whose budget is used up is passed over until the next tick; that is no failure.

An installation that our rows name and GitHub's list does not have is asked for by its number: if there is none, its
scopes do not count. A runner that is found is deleted at GitHub, which refuses if it is busy.
"""

from runyard.db.contract import Row, Tx
from runyard.dispatch.deps import Deps
from runyard.dispatch.machine.events import FenceAnswer
from runyard.dispatch.plans.lookup import (
    Account,
    Lookup,
    Place,
    begin,
    ended,
    only_these,
    with_failure,
    with_installation,
    with_repositories,
    with_runners,
)
from runyard.dispatch.plans.rotation import next_in_rotation
from runyard.dispatch.plans.stamped import Leak
from runyard.dispatch.recovery.fencing import Fencer
from runyard.dispatch.store import SQL, Store
from runyard.dispatch.task_lease import TaskLease
from runyard.github.app import TokenAuth
from runyard.github.client import GitHub
from runyard.github.errors import (
    BudgetExhausted,
    BudgetUnknown,
    GitHubError,
    NotAllowed,
    NotFound,
    NoToken,
    RateLimited,
)
from runyard.github.scope import Scope, organisation, parse
from runyard.github.views import InstallationView
from runyard.wire.names import runner_name

_PURPOSE = "audit"
_NO_BUDGET = (BudgetExhausted, BudgetUnknown, RateLimited)
_MOVED = 301  # how GitHub answers for the old name of a repository
_INSTALLATIONS = Place(account="", installation_id=0, scope="the installations of the App")


class RunnerLookup:
    """Looks up runners by name, a limited number of scopes in one tick."""

    def __init__(
        self, deps: Deps, *, github: GitHub, store: Store, fencer: Fencer, leases: TaskLease
    ) -> None:
        self._github = github
        self._database = deps.database
        self._store = store
        self._fencer = fencer
        self._leases = leases
        self._clock = deps.clock
        self._log = deps.log
        self._settings = deps.settings
        self._lookup: Lookup | None = None
        self._again_at = 0.0  # when a lookup that has ended is repeated
        self._last = ""  # the uid that the last lookup ended with

    async def step(self, pods: tuple[Leak, ...], *, era: str) -> Lookup | None:
        """Continue the lookup of these Pods, or begin one; None if there is none, or another replica does it."""
        if not pods or not await self._leases.acquire("unknown-owners", every=self._lease):
            self._lookup = None
            return None
        if self._lookup is not None:
            self._lookup = only_these(self._lookup, pods)
        if self._is_over(self._lookup, era):
            self._lookup = await self._begin(pods, era)
        if self._lookup is not None and not ended(self._lookup):
            await self._continue(self._lookup)
        return self._lookup

    @property
    def _lease(self) -> float:
        return 1.5 * (self._settings.recover_every + self._settings.lookup_within)

    def _is_over(self, lookup: Lookup | None, era: str) -> bool:
        if lookup is None or lookup.era != era or not lookup.pods:
            return True
        return ended(lookup) and self._clock.monotonic() >= self._again_at

    async def _begin(self, pods: tuple[Leak, ...], era: str) -> Lookup | None:
        """Begin a lookup; None if the rate budget does not allow it now."""
        limit = self._settings.recover_limit
        chosen = next_in_rotation(pods, after=self._last, limit=limit, key=lambda each: each.uid)
        self._again_at = self._clock.monotonic() + self._settings.lookup_again
        try:
            accounts = await self._accounts()
        except _NO_BUDGET as error:
            self._log.info("lookup put off", error=str(error))
            return None
        except GitHubError as error:
            empty = Lookup(era=era, pods=chosen)
            return with_failure(empty, _INSTALLATIONS, str(error))
        self._last = chosen[-1].uid
        known = await self._known()
        return begin(chosen, era=era, accounts=accounts, known=known, before=self._lookup)

    async def _accounts(self) -> tuple[Account, ...]:
        if self._github.only is not None:
            return ()  # a token for one repository has no installations
        found = await self._github.installations(purpose=_PURPOSE)
        return tuple(_account(each) for each in found)

    async def _known(self) -> tuple[Place, ...]:
        """The scopes of our rows; or the one of the token, which shows no other and registers nowhere else."""
        if self._github.only is not None:
            return (_place(self._github.only),)

        async def read(tx: Tx) -> list[Row]:
            return await tx.all(SQL.scopes_all)

        rows = await self._database.transact(read, name="all scopes")
        return tuple(
            Place(
                account=row["scope"].split("/")[1],
                installation_id=row["installation_id"],
                scope=row["scope"],
                used=row["used"],
                open=row["open"],
            )
            for row in rows
        )

    async def _continue(self, lookup: Lookup) -> None:
        """Read the next scopes. What was read is kept also if this step is cancelled."""
        until = self._clock.monotonic() + self._settings.lookup_within
        without_budget: list[int] = []
        for _ in range(self._settings.lookup_limit):
            todo = (each for each in lookup.todo if each.installation_id not in without_budget)
            place = next(todo, None)
            if place is None or ended(lookup) or self._clock.monotonic() >= until:
                break
            try:
                async with self._clock.timeout(self._settings.lookup_within):
                    lookup = await self._read(lookup, place)
            except (GitHubError, TimeoutError, ValueError) as error:
                if _is_put_off(error):
                    self._log.info("lookup put off", scope=place.name, error=str(error))
                    without_budget.append(place.installation_id)
                    continue
                message = str(error) or f"no answer within {self._settings.lookup_within:.0f} s"
                self._log.info("scope not read", scope=place.name, error=message)
                lookup = with_failure(lookup, place, message, not_shown=_not_shown(error))
            self._lookup = lookup
        if ended(lookup):
            self._again_at = self._clock.monotonic() + self._settings.lookup_again

    async def _read(self, lookup: Lookup, place: Place) -> Lookup:
        if place.unlisted and place.installation_id > TokenAuth.INSTALLATION:
            view = await self._github.installation(place.installation_id, purpose=_PURPOSE)
            return with_installation(lookup, place, None if view is None else _account(view))
        if not place.scope:
            account = organisation(place.account, installation_id=place.installation_id)
            found = await self._github.repositories(account, purpose=_PURPOSE)
            return with_repositories(lookup, place, tuple(each.full_name for each in found))
        scope = parse(place.scope, installation_id=place.installation_id)
        pods = {runner_name(leak.event.pod_name): leak for leak in lookup.pods}
        runners = await self._github.find_runners(scope, tuple(pods), purpose=_PURPOSE)
        busy, moved_on = [], []
        for runner in runners:
            leak = pods[runner.name]
            answer = await self._delete(scope, runner.id, leak, era=lookup.era)
            if answer is None:
                moved_on.append(leak.uid)
            elif answer is FenceAnswer.BUSY:
                busy.append(leak.uid)
        return with_runners(lookup, place, busy=tuple(busy), moved_on=tuple(moved_on))

    async def _delete(
        self, scope: Scope, runner_id: int, leak: Leak, *, era: str
    ) -> FenceAnswer | None:
        """Delete a runner that was found; None if the Pod's slot has changed."""
        if not await self._store.has_generation(leak.uid, leak.event.generation, in_era=era):
            return None
        return await self._fencer.fence_found(scope, runner_id, runner_name(leak.event.pod_name))


def _is_put_off(error: Exception) -> bool:
    """Whether it is only the rate limit, of the request or of the one for its token."""
    cause = error.__cause__ if isinstance(error, NoToken) else error
    return isinstance(cause, _NO_BUDGET)


def _not_shown(error: Exception) -> bool:
    """Whether GitHub answered that it has nothing under that name, or nothing that this installation may read."""
    moved = isinstance(error, GitHubError) and error.status == _MOVED
    return moved or isinstance(error, NotFound | NotAllowed)


def _account(installation: InstallationView) -> Account:
    return Account(
        login=installation.account.login,
        installation_id=installation.id,
        organisation=installation.account.type == "Organization",
        permissions=frozenset(installation.permissions),
    )


def _place(scope: Scope) -> Place:
    return Place(account=scope.owner, installation_id=scope.installation_id, scope=str(scope))
