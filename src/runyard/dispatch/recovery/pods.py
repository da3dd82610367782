"""Pods against slots, both ways, three times a minute, by one replica at a time.

One way: an open slot whose Pod is not in the list, or has ended, is a hint, and the proof is asked for. The other way:
a Pod that runs and does not ask for work holds a seat for nothing and is retired (`plans.silent`).
"""

from runyard.clock import Clock
from runyard.dispatch.plans.kinds import of_missing
from runyard.dispatch.plans.missing import OpenSlot, missing
from runyard.dispatch.plans.silent import Watched, judge_silence
from runyard.dispatch.recovery.closing import Closer
from runyard.dispatch.recovery.looking import Look, Lookout
from runyard.dispatch.recovery.reconciling import WORLD, Desk, Finding
from runyard.dispatch.recovery.retiring import Retirer
from runyard.dispatch.settings import Settings
from runyard.dispatch.turns import Turns


class PodsAgainstSlots:
    """Compares the cluster's runner Pods with the slots."""

    def __init__(
        self,
        *,
        lookout: Lookout,
        closer: Closer,
        retirer: Retirer,
        desk: Desk,
        turns: Turns,
        clock: Clock,
        settings: Settings,
    ) -> None:
        self._lookout = lookout
        self._closer = closer
        self._retirer = retirer
        self._desk = desk
        self._turns = turns
        self._clock = clock
        self._settings = settings
        self._watched: tuple[Watched, ...] = ()
        self._asked = ""  # whom the last tick ended with, each way
        self._retired = ""

    async def step(self) -> None:
        """One comparison."""
        watched, self._watched = (
            self._watched,
            (),
        )  # a look that fails, or is not ours, starts every count anew
        if self._desk.off:
            return
        if not await self._turns.mine("pods against slots", every=1.5 * self._settings.pods_every):
            return
        look = await self._lookout.look()
        if look is None:
            return
        limit = self._settings.recover_limit
        for slot in missing(look.pods, look.opened, limit=limit, after=self._asked):
            await self._close(slot)
            self._asked = slot.pod_uid
        await self._retire(look, watched)

    async def _close(self, slot: OpenSlot) -> None:
        """Ask for one proof; a Pod that cannot be looked at does not keep the others from it."""
        finding = Finding(pod=slot.pod_name, reason="its Pod is not listed", age=slot.age)
        if self._desk.dry:
            self._desk.would(finding, "ask for the proof and close its slot")
            return
        try:
            closed = await self._closer.close_if_gone(pod_name=slot.pod_name, pod_uid=slot.pod_uid)
        except WORLD as error:
            self._desk.failed(finding, error)
            return
        if closed is not None:
            self._desk.healed(finding, kind=of_missing(closed.before))

    async def _retire(self, look: Look, watched: tuple[Watched, ...]) -> None:
        grace = self._settings.silent_grace
        verdict = judge_silence(
            look.pods,
            look.slots,
            watched=watched,
            now=self._clock.monotonic(),
            grace=grace,
            limit=self._settings.silent_limit,
            after=self._retired,
        )
        for leak in verdict.leaks:
            await self._retirer.retire(
                leak, desk=self._desk, kind="silent_pod", grace=grace, era=look.era
            )
            self._retired = leak.uid
        self._watched = verdict.watched
