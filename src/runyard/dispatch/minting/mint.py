"""Mints a runner for an offered slot and stamps its Pod, concurrently, then arms the slot.

A mint runs in a task of the server, never in a request: it continues when the poll's connection is closed, and the next
poll waits for the same result. It ends within the offered state's deadline; whatever it leaves unfinished, the
deadline's fence cleans up. When GitHub refuses a runner, `plans.refusals` decides what is excluded for a while, so that
a tenant that cannot be served does not delay the others.
"""

import asyncio

import msgspec

from runyard.db.contract import DatabaseError, Tx
from runyard.dispatch.deps import Deps
from runyard.dispatch.machine.events import Arm, MintAbandoned, MintFailed
from runyard.dispatch.machine.values import Slot
from runyard.dispatch.minting.marking import Marker
from runyard.dispatch.minting.stamp import Stamper
from runyard.dispatch.plans.mint import (
    Conclusion,
    MintAnswer,
    MintError,
    StampAnswer,
    conclude,
)
from runyard.dispatch.plans.refusals import Failure, Verdict, judge
from runyard.dispatch.recovery.safe_delete import SafeDelete
from runyard.dispatch.seal import Seal
from runyard.dispatch.store import SQL, Store
from runyard.dispatch.waiters import Waiters
from runyard.github.client import GitHub
from runyard.github.errors import Definite, GitHubError, NoAnswer
from runyard.github.scope import Scope, parse
from runyard.telemetry.catalogue import RUNYARD_ACTIONS_TOTAL
from runyard.telemetry.names import Component, error_slug, slug_of
from runyard.wire.reasons import logged
from runyard.wire.reasons_dispatch import Deleting, Why

_ONLY_GROUP = 1  # a repository has only one runner group
_MESSAGE = 300
_WORK_FOLDERS = {"macos": "/Users/runner/work", "linux": "/home/runner/work"}


class _Minted(msgspec.Struct, frozen=True, kw_only=True):
    answer: MintAnswer
    runner_id: int | None = None
    jit: str = ""
    error: MintError = MintError()
    answered: bool = True
    verdict: Verdict = Verdict(outcome="retry", hold_job=5.0)


class PodWriters(msgspec.Struct, frozen=True, kw_only=True):
    """What writes the labels of Pods."""

    stamper: Stamper
    marker: Marker


class Minter:
    """Completes offers: mints, stamps and arms."""

    def __init__(
        self,
        deps: Deps,
        *,
        store: Store,
        github: GitHub,
        deleter: SafeDelete,
        pods: PodWriters,
        seal: Seal,
        waiters: Waiters,
    ) -> None:
        self._guards = deps.guards
        self._store = store
        self._github = github
        self._deleter = deleter
        self._stamper, self._marker = pods.stamper, pods.marker
        self._seal = seal
        self._waiters = waiters
        self._clock = deps.clock
        self._meter = deps.meter
        self._log = deps.log
        self._settings = deps.settings

    async def complete(
        self,
        slot: Slot,
        labels: tuple[str, ...],
        *,
        repository: str = "",
        era: str = "",
        trial: str = "",
        paid: bool = False,
    ) -> None:
        """Arm an offered slot, make it idle again, or leave it to the fence. Errors of dependencies are not raised.

        `trial`: the exclusion (`kind:name`) that this mint tests; a success ends it. `paid`: its points were taken from
        the rate budget with the claim.
        """
        try:
            minted, stamp = await self._mint_and_stamp(slot, labels, paid=paid)
            if stamp is StampAnswer.INVALID:
                minted = _unstampable(minted)
            await self._record_exclusion(slot, minted, stamp, repository=repository, trial=trial)
            await self._conclude(slot, minted, stamp, era)
        except DatabaseError as error:
            self._count("database")
            self._log.warning(
                "mint not finished; the offer's deadline will fence the runner",
                pod=slot.pod_name,
                error=str(error),
            )
        finally:
            self._waiters.wake(slot.pod_uid)

    async def _mint_and_stamp(
        self, slot: Slot, labels: tuple[str, ...], *, paid: bool
    ) -> tuple[_Minted, StampAnswer]:
        async with asyncio.TaskGroup() as group:
            minting = group.create_task(self._mint(slot, labels, paid=paid))
            stamping = group.create_task(
                self._stamper.stamp(slot, within=self._settings.mint_within)
            )
        return minting.result(), stamping.result()

    async def _mint(self, slot: Slot, labels: tuple[str, ...], *, paid: bool) -> _Minted:
        scope = scope_of(slot)
        try:
            async with self._clock.timeout(self._settings.mint_within):
                made = await self._github.generate_jit(
                    scope,
                    name=slot.runner_name,
                    labels=labels,
                    group_id=self._settings.runner_group if scope.kind == "orgs" else _ONLY_GROUP,
                    work_folder=_WORK_FOLDERS.get(slot.platform, "_work"),
                    paid=paid,
                )
        except TimeoutError:
            slow = judge(Failure(kind="NoAnswer", definite=False))
            return _Minted(
                answer=MintAnswer.UNCLEAR,
                error=MintError(kind="no-answer"),
                answered=False,
                verdict=slow,
            )
        except GitHubError as error:
            definite = isinstance(error, Definite)
            answer = MintAnswer.REFUSED if definite else MintAnswer.UNCLEAR
            return _Minted(
                answer=answer,
                error=_error(error),
                answered=not isinstance(error, NoAnswer),
                verdict=judge(_failure(error, slot)),
            )
        return _Minted(
            answer=MintAnswer.MINTED, runner_id=made.runner_id, jit=made.encoded_jit_config
        )

    async def _record_exclusion(
        self, slot: Slot, minted: _Minted, stamp: StampAnswer, *, repository: str, trial: str
    ) -> None:
        """Record or remove an exclusion, depending on GitHub's answer."""
        verdict = minted.verdict
        reason = conclude(minted.answer, stamp, error=minted.error, tenant=slot.tenant).reason
        made = minted.answer is MintAnswer.MINTED and verdict.exclusion is None
        if made and not trial:
            return

        async def work(tx: Tx) -> None:
            if made:
                await tx.run(SQL.exclusion_clear, repository=repository, tenant=slot.tenant)
                await tx.run(
                    SQL.exclusions_try_soon,
                    reason=Why.MINT_UNCLEAR.value,
                    within=self._settings.deadlines.offered,
                )
            elif verdict.to_repositories:
                await tx.run(SQL.tenant_at_repositories, tenant=slot.tenant)
            elif verdict.exclusion is not None and self._guards.exclude_failing:
                names = {"repository": repository, "account": slot.tenant, "github": ""}
                await tx.run(
                    SQL.exclusion_record,
                    kind=verdict.exclusion.kind,
                    name=names[verdict.exclusion.kind],
                    first=verdict.exclusion.first,
                    longest=verdict.exclusion.longest,
                    trial=trial,
                    reason=reason.slug,
                    detail=msgspec.json.encode(reason.fields).decode(),
                )

        await self._store.transact(work, name="exclusion")
        if not made:
            self._count(verdict.outcome)

    async def _conclude(self, slot: Slot, minted: _Minted, stamp: StampAnswer, era: str) -> None:
        reasoned = conclude(minted.answer, stamp, error=minted.error, tenant=slot.tenant)
        conclusion = reasoned.conclusion
        if conclusion is Conclusion.CLEAR_AND_FAIL:
            # After a lost commit the Pod may carry the stamp of a later offer: read the slot before clearing.
            unchanged = await self._store.is_unchanged(slot, in_era=era)
            within = self._settings.clear_within
            if not unchanged or not await self._stamper.clear(slot, within=within):
                conclusion = Conclusion.ABANDON  # a stamp may remain: the slot must not become idle
        self._count(conclusion.value)
        if conclusion is not Conclusion.ARM:
            self._log.warning(
                "no runner made",
                pod=slot.pod_name,
                job=slot.intended_job,
                **logged(reasoned.reason),
            )
        if conclusion is Conclusion.ARM and minted.runner_id is not None:
            await self._arm(slot, minted.runner_id, minted.jit, era)
        elif conclusion in (Conclusion.FAIL, Conclusion.CLEAR_AND_FAIL):
            failed = MintFailed(
                generation=slot.generation,
                reason=reasoned.reason,
                hold_job=minted.verdict.hold_job,
            )
            await self._store.apply_to_slot(slot.pod_uid, failed, name="mint failed", in_era=era)
        else:
            abandoned = MintAbandoned(
                generation=slot.generation,
                reason=reasoned.reason,
                runner_id=minted.runner_id,
                answered=minted.answered,
            )
            await self._store.apply_to_slot(
                slot.pod_uid, abandoned, name="mint abandoned", in_era=era
            )

    async def _arm(self, slot: Slot, runner_id: int, jit: str, era: str) -> None:
        sealed = self._seal.close(jit, pod_uid=slot.pod_uid)
        event = Arm(generation=slot.generation, runner_id=runner_id, jit=sealed, stamped=True)
        decision = await self._store.apply_to_known(slot, event, name="arm", in_era=era)
        if decision.refused is None:
            self._waiters.wake(slot.pod_uid, armed=decision.slot)
            await self._marker.mark(slot.pod_uid)
            return
        # The offer ended before its runner existed, so no Pod will start the runner: delete it. If that fails, the
        # search for ghost registrations finds it.
        self._log.info("late mint", pod=slot.pod_name, **logged(decision.refused))
        try:
            await self._deleter.registration(
                scope_of(slot),
                runner_id,
                name=slot.runner_name,
                reason=Deleting.LATE_MINT.because(),
            )
        except GitHubError as error:
            self._log.warning("late mint not deleted", pod=slot.pod_name, error=str(error))

    def _count(self, outcome: str) -> None:
        self._meter.inc(
            RUNYARD_ACTIONS_TOTAL,
            component=Component.SERVER,
            action="mint",
            outcome=slug_of(outcome),
        )


def scope_of(slot: Slot) -> Scope:
    """Where the slot's runner is registered."""
    return parse(slot.scope, installation_id=slot.installation_id)


def _unstampable(minted: _Minted) -> _Minted:
    """Exclude the account, whatever GitHub answered: its Pods cannot be stamped."""
    verdict = judge(Failure(kind="StampInvalid", scope="account"))
    return msgspec.structs.replace(minted, verdict=verdict)


def _failure(error: GitHubError, slot: Slot) -> Failure:
    return Failure(
        kind=type(error).__name__,
        scope=error.scope,
        retry_after=error.retry_after,
        at_org=slot.scope.startswith("orgs/"),
        definite=isinstance(error, Definite),
    )


def _error(error: GitHubError) -> MintError:
    """The slug of the error's class and GitHub's message."""
    return MintError(kind=error_slug(error), message=str(error)[:_MESSAGE])
