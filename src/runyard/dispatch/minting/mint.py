"""The mint: make a runner for an offered slot and stamp its Pod, side by side, then arm the slot.

Runs in a task of the server, never in a request: a client that hangs up does not stop it, and a
client that asks again waits for the same result. It ends within the offered state's deadline;
whatever it leaves half done, the deadline's fence tidies up. When GitHub makes no runner, `plans.refusals` says who is
passed over for a while, so that what cannot be served costs the others nothing.
"""

import asyncio

import msgspec

from runyard.clock import Clock
from runyard.db.contract import DatabaseError, Tx
from runyard.dispatch.guards import SHIPPED, Guards
from runyard.dispatch.machine.events import Arm, MintAbandoned, MintFailed
from runyard.dispatch.machine.values import Slot
from runyard.dispatch.minting.stamp import Stamper
from runyard.dispatch.plans.mint import Conclusion, MintAnswer, StampAnswer, conclude
from runyard.dispatch.plans.refusals import Failure, Verdict, judge
from runyard.dispatch.recovery.safe_delete import SafeDelete
from runyard.dispatch.seal import Seal
from runyard.dispatch.settings import Settings
from runyard.dispatch.store import SQL, Store
from runyard.dispatch.waiting import Waiters
from runyard.github.api import GitHub
from runyard.github.errors import Definite, GitHubError
from runyard.github.scope import Scope, parse
from runyard.telemetry.catalogue import RUNYARD_ACTIONS_TOTAL
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter

_ONLY_GROUP = 1  # of a repository
_WORK_FOLDERS = {"macos": "/Users/runner/work", "linux": "/home/runner/work"}


class _Minted(msgspec.Struct, frozen=True, kw_only=True):
    answer: MintAnswer
    runner_id: int | None = None
    jit: str = ""
    detail: str = ""
    verdict: Verdict = Verdict(outcome="retry", hold_job=5.0)


class Minter:
    """Completes offers."""

    def __init__(
        self,
        *,
        store: Store,
        github: GitHub,
        deleter: SafeDelete,
        stamper: Stamper,
        seal: Seal,
        waiters: Waiters,
        clock: Clock,
        meter: Meter,
        log: Logger,
        settings: Settings,
        guards: Guards = SHIPPED,
    ) -> None:
        self._guards = guards
        self._store = store
        self._github = github
        self._deleter = deleter
        self._stamper = stamper
        self._seal = seal
        self._waiters = waiters
        self._clock = clock
        self._meter = meter
        self._log = log
        self._settings = settings

    async def complete(
        self,
        slot: Slot,
        labels: tuple[str, ...],
        *,
        repository: str = "",
        era: str = "",
        trial: str = "",
    ) -> None:
        """Bring an offered slot to armed, or back, or leave it to the fence. Never raises for the world's faults.

        `trial`: the exclusion (`kind:name`) of which this mint tries whether it must still hold.
        """
        try:
            minted, stamp = await self._both(slot, labels)
            if stamp is StampAnswer.INVALID:
                minted = _unstampable(minted, slot)
            await self._learn(slot, minted, repository=repository, trial=trial)
            await self._conclude(slot, minted, stamp, era)
        except DatabaseError as error:
            self._count("database")
            self._log.warning("offer left to its deadline", pod=slot.pod_name, error=str(error))
        finally:
            self._waiters.wake(slot.pod_uid)

    async def _both(self, slot: Slot, labels: tuple[str, ...]) -> tuple[_Minted, StampAnswer]:
        async with asyncio.TaskGroup() as group:
            minting = group.create_task(self._mint(slot, labels))
            stamping = group.create_task(
                self._stamper.stamp(slot, within=self._settings.mint_within)
            )
        return minting.result(), stamping.result()

    async def _mint(self, slot: Slot, labels: tuple[str, ...]) -> _Minted:
        scope = scope_of(slot)
        try:
            async with self._clock.timeout(self._settings.mint_within):
                made = await self._github.generate_jit(
                    scope,
                    name=slot.runner_name,
                    labels=labels,
                    group_id=self._settings.runner_group if scope.kind == "orgs" else _ONLY_GROUP,
                    work_folder=_WORK_FOLDERS.get(slot.platform, "_work"),
                )
        except TimeoutError:
            slow = judge(Failure(kind="NoAnswer", definite=False))
            return _Minted(answer=MintAnswer.UNCLEAR, detail="no answer in time", verdict=slow)
        except GitHubError as error:
            definite = isinstance(error, Definite)
            answer = MintAnswer.REFUSED if definite else MintAnswer.UNCLEAR
            return _Minted(
                answer=answer, detail=_named(error), verdict=judge(_failure(error, slot))
            )
        return _Minted(
            answer=MintAnswer.MINTED, runner_id=made.runner_id, jit=made.encoded_jit_config
        )

    async def _learn(self, slot: Slot, minted: _Minted, *, repository: str, trial: str) -> None:
        """Write down who is to be passed over, or that nobody need be any more."""
        verdict = minted.verdict
        made = minted.answer is MintAnswer.MINTED and verdict.passing is None
        if made and not trial:
            return

        async def work(tx: Tx) -> None:
            if made:
                await tx.run(SQL.exclusion_clear, repository=repository, tenant=slot.tenant)
            elif verdict.to_repositories:
                await tx.run(SQL.tenant_at_repositories, tenant=slot.tenant)
            elif verdict.passing is not None and self._guards.exclude_failing:
                names = {"repository": repository, "account": slot.tenant, "github": ""}
                await tx.run(
                    SQL.exclusion_note,
                    kind=verdict.passing.kind,
                    name=names[verdict.passing.kind],
                    first=verdict.passing.first,
                    longest=verdict.passing.longest,
                    trial=trial,
                    why=minted.detail,
                )

        await self._store.transact(work, name="whom to pass over")
        if not made:
            self._count(verdict.outcome)

    async def _conclude(self, slot: Slot, minted: _Minted, stamp: StampAnswer, era: str) -> None:
        reasoned = conclude(minted.answer, stamp, detail=minted.detail)
        conclusion = reasoned.conclusion
        if conclusion is Conclusion.CLEAR_AND_FAIL:
            # After a lost commit the Pod may carry the stamp of a later offer: look before clearing.
            ours = await self._store.still(slot, asked_in=era)
            within = self._settings.clear_within
            if not ours or not await self._stamper.clear(slot, within=within):
                conclusion = Conclusion.ABANDON  # a stamp may remain: the Pod must not look idle
        self._count(conclusion.value)
        if conclusion is not Conclusion.ARM:
            self._log.warning(
                "no runner made", pod=slot.pod_name, job=slot.intended_job, why=reasoned.reason
            )
        if conclusion is Conclusion.ARM and minted.runner_id is not None:
            await self._arm(slot, minted.runner_id, minted.jit, era)
        elif conclusion in (Conclusion.FAIL, Conclusion.CLEAR_AND_FAIL):
            failed = MintFailed(
                generation=slot.generation,
                why=reasoned.reason,
                hold_job=minted.verdict.hold_job,
            )
            await self._store.about_slot(slot.pod_uid, failed, name="mint failed", asked_in=era)
        else:
            abandoned = MintAbandoned(
                generation=slot.generation, why=reasoned.reason, runner_id=minted.runner_id
            )
            await self._store.about_slot(
                slot.pod_uid, abandoned, name="mint abandoned", asked_in=era
            )

    async def _arm(self, slot: Slot, runner_id: int, jit: str, era: str) -> None:
        sealed = self._seal.close(jit, pod_uid=slot.pod_uid)
        event = Arm(generation=slot.generation, runner_id=runner_id, jit=sealed, stamped=True)
        decision = await self._store.about_slot(slot.pod_uid, event, name="arm", asked_in=era)
        if not decision.refused:
            self._waiters.wake(slot.pod_uid)
            await self._stamper.mark_committed(slot)
            return
        # The offer was over before its runner existed. Nobody will ever take it up: delete it. If that
        # fails, the sweep for registrations that nobody speaks for finds it.
        self._log.info("late mint", pod=slot.pod_name, why=decision.refused)
        try:
            await self._deleter.registration(
                scope_of(slot), runner_id, name=slot.runner_name, reason="late mint"
            )
        except GitHubError as error:
            self._log.warning("late mint not deleted", pod=slot.pod_name, error=_named(error))

    def _count(self, outcome: str) -> None:
        self._meter.inc(RUNYARD_ACTIONS_TOTAL, room="dispatch", action="mint", outcome=outcome)


def scope_of(slot: Slot) -> Scope:
    """Where the slot's runner is registered."""
    return parse(slot.scope, installation_id=slot.installation_id)


def _unstampable(minted: _Minted, slot: Slot) -> _Minted:
    """Whatever GitHub said: no runner of this account can be had while its Pods cannot be stamped."""
    said = f"; GitHub: {minted.detail}" if minted.detail else ""
    return msgspec.structs.replace(
        minted,
        detail=f"Kubernetes does not take {slot.tenant!r} as a stamp{said}"[:300],
        verdict=judge(Failure(kind="StampInvalid", scope="account")),
    )


def _failure(error: GitHubError, slot: Slot) -> Failure:
    return Failure(
        kind=type(error).__name__,
        scope=error.scope,
        retry_after=error.retry_after,
        at_org=slot.scope.startswith("orgs/"),
        definite=isinstance(error, Definite),
    )


def _named(error: GitHubError) -> str:
    return f"{type(error).__name__}: {error}"[:300]
