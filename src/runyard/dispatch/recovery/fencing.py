"""The fence: delete the runner at GitHub, and hear from GitHub whether it is busy.

"Absent" is only an answer if something in the same scope could be read just now; a scope that we
have lost access to answers 404 for everything. Without a runner id (the mint's answer was lost) the
runner is looked up by its name, which was written down before the mint.

No answer frees nothing. It is asked for again, though not often where GitHub says for certain that it shows us nothing
(the App was uninstalled): that proves nothing of a runner. A fence that stays unanswered is a health condition.
"""

from runyard.dispatch.machine.events import FenceAnswer, Fenced, Inconclusive
from runyard.dispatch.machine.values import Slot
from runyard.dispatch.recovery.safe_delete import SafeDelete, Still
from runyard.github.api import GitHub
from runyard.github.errors import GitHubError, hidden
from runyard.github.scope import Scope, parse
from runyard.github.views import Removal
from runyard.telemetry.catalogue import RUNYARD_FENCES_TOTAL
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter

_ANSWERS = {
    Removal.DELETED: FenceAnswer.DELETED,
    Removal.BUSY: FenceAnswer.BUSY,
    Removal.ABSENT: FenceAnswer.ABSENT,
}
_HIDDEN_AGAIN = 300.0


class Fencer:
    """Asks GitHub to forget a slot's runner."""

    def __init__(self, github: GitHub, *, deleter: SafeDelete, meter: Meter, log: Logger) -> None:
        self._github = github
        self._deleter = deleter
        self._meter = meter
        self._log = log

    async def fence(self, slot: Slot) -> Fenced | Inconclusive:
        """GitHub's answer, if it could be had."""
        try:
            answer = await self._ask(slot)
        except GitHubError as error:
            self._meter.inc(RUNYARD_FENCES_TOTAL, answer="none")
            self._log.info("fence unanswered", pod=slot.pod_name, error=str(error))
            wait = _HIDDEN_AGAIN if hidden(error) else 0.0
            return Inconclusive(generation=slot.generation, wait=wait)
        self._meter.inc(RUNYARD_FENCES_TOTAL, answer=answer.value)
        return Fenced(generation=slot.generation, answer=answer, scope_read=True)

    async def fence_name(self, scope: Scope, name: str, *, still: Still) -> FenceAnswer | None:
        """The same for a runner that no slot speaks for, by its name.

        `still` is asked between the look-up and the deletion, which is by id: what was found before nobody spoke for
        that name is never the runner of somebody who does so later.
        """
        try:
            found = await self._github.find_runner(scope, name)
            if found is None:
                return FenceAnswer.ABSENT
            return await self._delete(scope, found.id, name) if await still() else None
        except GitHubError as error:
            self._log.info("fence unanswered", runner=name, error=str(error))
            return None

    async def _ask(self, slot: Slot) -> FenceAnswer:
        scope = parse(slot.scope, installation_id=slot.installation_id)
        if slot.runner_id is not None:
            answer = await self._delete(scope, slot.runner_id, slot.runner_name)
            if answer is not FenceAnswer.ABSENT:
                return answer
        # A successful look-up by name is the read that makes "absent" mean something.
        return await self._by_name(scope, slot.runner_name)

    async def _by_name(self, scope: Scope, name: str) -> FenceAnswer:
        found = await self._github.find_runner(scope, name)
        return FenceAnswer.ABSENT if found is None else await self._delete(scope, found.id, name)

    async def _delete(self, scope: Scope, runner_id: int, name: str) -> FenceAnswer:
        removal = await self._deleter.registration(scope, runner_id, name=name, reason="fence")
        return FenceAnswer.ABSENT if removal is None else _ANSWERS[removal]
