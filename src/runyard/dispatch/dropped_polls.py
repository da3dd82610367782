"""Records polls whose connections were cut before their answers: their Pods do not ask for work any more.

The server notices a closed connection at once, so a runner that was killed while it waited does not count as idle until
its last poll is too old. A guest that lives polls again within seconds, and that poll renews the Pod's beat: so
whatever is recorded here is about one poll only, costs polls nothing, and is visible to all replicas.

Invariants:
- It only says which runners count as idle. The matcher claims for Pods whose polls are open at its replica, and does
  not read it; deadlines and recovery do not either.
- A poll that the Pod has made since, at any replica, is not marked: the row's beat is compared with the time of the
  last one that the dropped poll has made. Guests pause for longer between two polls than that comparison is inexact.
"""

import asyncio

from runyard.clock import Clock
from runyard.db.contract import Database, Row, Tx
from runyard.dispatch.store import SQL
from runyard.dispatch.waiters import Waiters

_MARGIN = (
    0.2  # seconds by which the database's clock may seem to be behind ours while it works on this
)


class DroppedPolls:
    """The polls that were dropped at this replica and are not recorded yet."""

    def __init__(
        self, database: Database, *, waiters: Waiters, clock: Clock, asking_within: float
    ) -> None:
        self._database = database
        self._waiters = waiters
        self._clock = clock
        self._asking_within = asking_within
        self._beats: dict[str, float] = {}  # by uid: when its last beat was answered, monotonic
        self.wakeup = asyncio.Event()

    def add(self, pod_uid: str, *, beat: float) -> None:
        """Note that a poll was cut off whose last beat was answered at that monotonic time."""
        self._beats[pod_uid] = beat
        self.wakeup.set()

    async def step(self) -> None:
        """Record what was noted since the last step; if that fails, it is tried again while it matters."""
        self._beats = {uid: beat for uid, beat in self._beats.items() if self._matters(uid, beat)}
        if not self._beats:
            return

        async def work(tx: Tx) -> list[list[Row]]:
            # Here, because the wait for a connection may have been long enough for another poll.
            now = self._clock.monotonic()
            beats = {uid: beat for uid, beat in written.items() if self._matters(uid, beat)}
            ages = [max(0.0, now - beat - _MARGIN) for beat in beats.values()]
            params = {"pod_uids": list(beats), "ages": ages}
            return await tx.finish((SQL.commit_later, {}), (SQL.polls_dropped, params), alone=True)

        written = dict(self._beats)
        await self._database.transact(work, name="polls dropped")
        self._beats = {uid: beat for uid, beat in self._beats.items() if written.get(uid) != beat}

    def _matters(self, uid: str, beat: float) -> bool:
        """Whether the Pod would still count as idle, and does not poll here again."""
        young = self._clock.monotonic() - beat <= self._asking_within
        return young and not self._waiters.is_waiting(uid)
