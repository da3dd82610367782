"""One attempt at one run: download, read, upload, write. Everything on disk is in its room.

    download   the upload, if there is room for it
    read       in a child process (`reading.py`): extract, parse, rows into a file
    upload     attachments, streamed from the extracted bundle
    write      all results and the row, in one transaction

Beside it beats the heart of the claim. When the claim turns out to be somebody else's, the work is cancelled: the child
is ended, the room is gone, nothing was written. When the database does not answer, the work goes on: whoever took the
run over meanwhile is protected by the fence, and if nobody did, nothing is lost.
"""

import asyncio
import contextlib
import os
import random
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from runyard.blobs.contract import Blobs
from runyard.blobs.errors import NoSuchBlob
from runyard.clock import Clock
from runyard.db.contract import CommitUnknown, Database, DatabaseError, Unavailable
from runyard.telemetry.catalogue import RUNYARD_PROCESSOR_PHASE_SECONDS
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter
from runyard.xcresult.plans.attempts import Decision, Outcome, decide
from runyard.xcresult.processor.checking import Checker
from runyard.xcresult.processor.failures import sorted_out
from runyard.xcresult.processor.ledger import Ledger
from runyard.xcresult.processor.order import Answer, Order, Summary
from runyard.xcresult.processor.publishing import Fenced, publish
from runyard.xcresult.processor.reading import read
from runyard.xcresult.processor.scratch import Room, RoomGone, Scratch
from runyard.xcresult.processor.uploading import Uploader, Uploads
from runyard.xcresult.settings import Settings
from runyard.xcresult.store import Claim

T = TypeVar("T")
_TRY_AGAIN = 1.0


class Tools(msgspec.Struct, frozen=True, kw_only=True):
    """What every attempt of a processor works with."""

    ledger: Ledger
    results: Database
    """For the transactions that write results: they may last longer than others."""
    blobs: Blobs
    scratch: Scratch
    uploader: Uploader
    checker: Checker
    clock: Clock
    rng: random.Random
    settings: Settings
    meter: Meter
    log: Logger
    trace: str = ""


class NotRead(Exception):
    """The attempt is over without results."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome


class Attempt:
    """Carries one claim through to its end."""

    def __init__(self, claim: Claim, tools: Tools) -> None:
        self._claim = claim
        self._tools = tools
        self._log = tools.log.bind(run=claim.run_id, shard=claim.shard, attempt=claim.attempt)
        self._held = False  # by the transaction that writes

    async def run(self) -> Decision | None:
        """What became of the run, and is written; None if it was somebody else's in the end."""
        outcome = await self._guarded()
        if outcome is None:
            return None
        decision = self._decide(outcome)
        if outcome.end == "done":
            return decision
        return decision if await self._ended(decision) else None

    async def release(self, outcome: Outcome) -> Decision | None:
        """End the attempt without having tried: another worker shall."""
        decision = self._decide(outcome)
        return decision if await self._tools.ledger.end(self._claim, decision) else None

    async def _guarded(self) -> Outcome | None:
        """Work with a beating heart; None: the claim was lost."""
        async with asyncio.TaskGroup() as group:
            work = group.create_task(self._caught())
            heart = group.create_task(self._beat(work))
            await asyncio.wait((work,))
            heart.cancel()
        return None if work.cancelled() else work.result()

    async def _caught(self) -> Outcome | None:
        try:
            return await self._work()
        except Fenced:
            return None
        except NotRead as end:
            return end.outcome
        except Exception as error:  # noqa: BLE001 - an attempt that fails in any way is an attempt that failed
            outcome = sorted_out(error)
            if outcome.code == "defect":
                self._log.error("an attempt failed by a defect of ours", exc_info=error)
            return outcome

    async def _beat(self, work: "asyncio.Task[Outcome | None]") -> None:
        settings, ledger = self._tools.settings, self._tools.ledger
        while True:
            await self._tools.clock.sleep(settings.beat)
            if self._held:
                continue  # we lock the row ourselves: nobody can take it, and a heartbeat would wait in vain
            try:
                held = await ledger.renew(self._claim)
            except DatabaseError as error:
                self._log.warning("a heartbeat did not get through", error=str(error))
                continue
            if not held and await self._lost():
                work.cancel()
                return

    async def _lost(self) -> bool:
        """A claim whose results were just written was not lost: that is written of it."""
        try:
            return await self._tools.ledger.settled(self._claim) != "processed"
        except DatabaseError:
            return False

    async def _work(self) -> Outcome:
        with self._room() as room:
            try:
                await self._timed("download", self._download(room))
                answer = await self._timed("read", self._read(room))
                bundle = Path(answer.bundle)
                assert answer.summary is not None  # it was read
                await self._tools.checker.check(room, bundle, log=self._log)
                uploads = await self._timed("upload", self._upload(room, bundle))
                await self._timed("write", self._publish(room, answer.summary, uploads))
            finally:
                await _emptied(room)
        return Outcome(end="done")

    @contextlib.contextmanager
    def _room(self) -> Iterator[Room]:
        claim, tools = self._claim, self._tools
        for _ in range(3):  # a sweeper of another process may take a new lock for an old one
            token = f"{tools.rng.getrandbits(32):08x}"
            with (
                contextlib.suppress(RoomGone),
                tools.scratch.room(
                    run_id=claim.run_id, shard=claim.shard, attempt=claim.attempt, token=token
                ) as room,
            ):
                yield room
                return
        raise NotRead(Outcome(end="released", code="room_gone", reason="the scratch was swept"))

    async def _download(self, room: Room) -> None:
        claim, tools = self._claim, self._tools
        found = await tools.blobs.head(claim.storage_key)
        if found is None:
            raise NoSuchBlob("there is no upload: it was never completed, or was removed")
        if tools.scratch.free() < found.size + tools.settings.reserve:
            told = f"the upload has {found.size} bytes and the scratch {tools.scratch.free()}"
            raise NotRead(Outcome(end="no_room", code="no_space", reason=told))
        try:
            async with tools.clock.timeout(tools.settings.limit):
                await tools.blobs.download(claim.storage_key, room.archive)
        except TimeoutError:
            told = f"not downloaded within {tools.settings.limit:g} s"
            raise NotRead(Outcome(end="late", code="timeout", reason=told)) from None

    async def _read(self, room: Room) -> Answer:
        claim, settings = self._claim, self._tools.settings
        order = Order(
            room=str(room.path),
            run_id=claim.run_id,
            shard=claim.shard,
            account=claim.account,
            project=claim.project,
            memory=settings.memory,
            cpu=int(settings.limit + settings.grace),
            reserve=settings.reserve,
            limits=settings.limits,
            parent=os.getpid(),
            compare=self._tools.checker.wanted,
            trace=self._tools.trace,
        )
        answer = await read(order, room, limit=settings.limit, grace=settings.grace, log=self._log)
        if isinstance(answer, Outcome):
            raise NotRead(answer)
        if answer.end != "read":
            raise NotRead(Outcome(end=answer.end, code=answer.code, reason=answer.reason))
        if answer.summary is not None and not answer.summary.modules:
            raise NotRead(
                Outcome(end="refused", code="no_tests", reason="the bundle holds no test module")
            )
        return answer

    async def _upload(self, room: Room, bundle: Path) -> Uploads:
        uploads = await self._tools.uploader.upload(self._claim, bundle=bundle, rows=room.rows)
        last = self._claim.spent + 1 >= self._tools.settings.retrying.attempts
        if (
            uploads.away and not last
        ):  # at the end, results without attachments are better than none
            raise NotRead(Outcome(end="failed", code="storage_unavailable", reason=uploads.away))
        return uploads

    async def _publish(self, room: Room, summary: Summary, uploads: Uploads) -> None:
        """Write the results, however often that takes while the database is away."""
        decision = self._decide(Outcome(end="done"))
        until = self._tools.clock.monotonic() + self._tools.settings.patience
        while True:
            try:
                await self._write(room, summary, uploads, decision)
            except (Unavailable, CommitUnknown) as error:
                if await self._went_through():
                    return
                if self._tools.clock.monotonic() > until:
                    raise
                self._log.warning("the results could not be written yet", error=str(error))
                await self._tools.clock.sleep(_TRY_AGAIN)
            except Fenced:
                if await self._went_through():
                    return  # the commit of which we did not hear
                raise
            else:
                return

    async def _write(
        self, room: Room, summary: Summary, uploads: Uploads, decision: Decision
    ) -> None:
        def held() -> None:
            self._held = True

        try:
            await publish(
                self._tools.results,
                self._claim,
                decision,
                rows=room.rows,
                summary=summary,
                uploads=uploads,
                held=held,
            )
        finally:
            self._held = False

    async def _went_through(self) -> bool:
        try:
            return await self._tools.ledger.settled(self._claim) == "processed"
        except DatabaseError:
            return False

    async def _ended(self, decision: Decision) -> bool:
        """Write the end down. If the database does not take it, the sweep will: the lease runs out."""
        until = self._tools.clock.monotonic() + self._tools.settings.patience
        while True:
            try:
                return await self._tools.ledger.end(self._claim, decision)
            except DatabaseError as error:
                self._log.warning("an end could not be written yet", error=str(error))
                if self._tools.clock.monotonic() > until:
                    return False
                await self._tools.clock.sleep(_TRY_AGAIN)

    def _decide(self, outcome: Outcome) -> Decision:
        claim = self._claim
        rules = self._tools.settings.retrying
        return decide(outcome, claims=claim.claims, spent=claim.spent, settings=rules)

    async def _timed(self, phase: str, work: Awaitable[T]) -> T:
        started = self._tools.clock.monotonic()
        try:
            return await work
        finally:
            took = self._tools.clock.monotonic() - started
            self._tools.meter.observe(RUNYARD_PROCESSOR_PHASE_SECONDS, took, phase=phase)


async def _emptied(room: Room) -> None:
    """Remove what is in a room beside the loop; all of it, even if we are cancelled meanwhile."""
    gone = asyncio.get_running_loop().run_in_executor(None, room.empty)
    cancelled: asyncio.CancelledError | None = None
    while not gone.done():
        try:
            await asyncio.wait((gone,))
        except asyncio.CancelledError as error:
            cancelled = error
    gone.result()
    if cancelled is not None:
        raise cancelled
