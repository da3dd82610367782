"""Fences a slot: deletes its runner at GitHub, which refuses if the runner is busy.

"Absent" counts only if something in the same scope could be read just now: a scope without access answers 404 for
everything. Without a runner id (the mint's answer was lost) the runner is found by its name, which is stored before the
mint.

Without an answer nothing is freed, and the fence is tried again; less often where GitHub denies access for certain (the
App was uninstalled), because that proves nothing about a runner. A fence that stays unanswered is a health condition.
"""

from runyard.dispatch.machine.events import FenceAnswer, Fenced, Inconclusive
from runyard.dispatch.machine.values import Slot
from runyard.dispatch.recovery.safe_delete import SafeDelete, StillValid
from runyard.github.client import GitHub
from runyard.github.errors import GitHubError, hidden
from runyard.github.scope import Scope, parse
from runyard.github.views import Removal
from runyard.telemetry.catalogue import RUNYARD_FENCES_TOTAL
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter
from runyard.wire.reasons import Reason
from runyard.wire.reasons_dispatch import Deleting, Left

_ANSWERS = {
    Removal.DELETED: FenceAnswer.DELETED,
    Removal.BUSY: FenceAnswer.BUSY,
    Removal.ABSENT: FenceAnswer.ABSENT,
}
_HIDDEN_AGAIN = 300.0


class Fencer:
    """Deletes runners of slots at GitHub."""

    def __init__(self, github: GitHub, *, deleter: SafeDelete, meter: Meter, log: Logger) -> None:
        self._github = github
        self._deleter = deleter
        self._meter = meter
        self._log = log

    async def fence(self, slot: Slot) -> Fenced | Inconclusive:
        """Delete the runner of a slot at GitHub; `Inconclusive` if GitHub did not answer."""
        try:
            answer = await self._delete_runner(slot)
        except GitHubError as error:
            self._meter.inc(RUNYARD_FENCES_TOTAL, answer="none")
            self._log.info("fence unanswered", pod=slot.pod_name, error=str(error))
            wait = _HIDDEN_AGAIN if hidden(error) else 0.0
            return Inconclusive(generation=slot.generation, wait=wait)
        self._meter.inc(RUNYARD_FENCES_TOTAL, answer=answer.value)
        return Fenced(generation=slot.generation, answer=answer, scope_read=True)

    async def fence_name(
        self, scope: Scope, name: str, *, still_valid: StillValid
    ) -> Reason | None:
        """Fence a runner without a slot, by its name; returns why it may be busy, or None if it is certainly not.

        `still_valid` is checked between the lookup and the deletion, which is by id, so a later
        claim's runner with the same name is never deleted.
        """
        try:
            found = await self._github.find_runner(scope, name)
            if found is None:
                return None
            if not await still_valid():
                return Left.MOVED_ON.because()
            answer = await self.fence_found(scope, found.id, name)
        except GitHubError as error:
            self._log.info("fence unanswered", runner=name, error=str(error))
            if hidden(error):
                return Left.SCOPE_UNREADABLE.because(scope=str(scope), message=str(error))
            return Left.RUNNER_MAY_BE_BUSY.because()
        busy = answer is FenceAnswer.BUSY
        return Left.RUNNER_BUSY.because(scope=str(scope)) if busy else None

    async def fence_found(self, scope: Scope, runner_id: int, name: str) -> FenceAnswer:
        """Delete a runner that was just found in this scope. Raises `GitHubError`."""
        removal = await self._deleter.registration(
            scope, runner_id, name=name, reason=Deleting.FENCE.because()
        )
        return FenceAnswer.ABSENT if removal is None else _ANSWERS[removal]

    async def _delete_runner(self, slot: Slot) -> FenceAnswer:
        scope = parse(slot.scope, installation_id=slot.installation_id)
        if slot.runner_id is not None:
            answer = await self.fence_found(scope, slot.runner_id, slot.runner_name)
            if answer is not FenceAnswer.ABSENT:
                return answer
        # A successful lookup by name is the read that makes "absent" count.
        return await self._by_name(scope, slot.runner_name)

    async def _by_name(self, scope: Scope, name: str) -> FenceAnswer:
        found = await self._github.find_runner(scope, name)
        return (
            FenceAnswer.ABSENT if found is None else await self.fence_found(scope, found.id, name)
        )
