"""Makes one attempt to process one run: download, read, upload, write. All files are in the attempt's workdir.

    download   the upload, if the disk has space for it
    read       in a child process (`child_process.py`): extract, parse, write the rows into a file
    upload     attachments, streamed from the extracted bundle
    write      all results and the run's row, in one transaction

Heartbeats renew the claim meanwhile. If another worker has taken the claim, the work is cancelled: the child is ended,
the workdir is deleted, nothing is written. While the database is unavailable the work continues: if another worker
took the run over, the fence rejects our write; if none did, no work is lost.
"""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from runyard.db.contract import CommitUnknown, DatabaseError, Unavailable
from runyard.telemetry.catalogue import RUNYARD_PROCESSOR_PHASE_SECONDS
from runyard.wire.reasons_results import ATTEMPTS, Unprocessed
from runyard.xcresult.plans.attempts import Decision, Outcome, decide
from runyard.xcresult.processor.child_process import read
from runyard.xcresult.processor.child_protocol import ReadAnswer, ReadRequest, Summary
from runyard.xcresult.processor.deps import Deps
from runyard.xcresult.processor.failures import line, outcome_of
from runyard.xcresult.processor.publishing import Fenced, publish
from runyard.xcresult.processor.resource_limits import cpu_limit
from runyard.xcresult.processor.run_claims import RunClaims
from runyard.xcresult.processor.scratch import Scratch, Workdir, WorkdirGone
from runyard.xcresult.processor.uploading import Uploader, Uploads
from runyard.xcresult.processor.xcresulttool import Checker
from runyard.xcresult.store import Claim

T = TypeVar("T")
_TRY_AGAIN = 1.0


class Tools(msgspec.Struct, frozen=True, kw_only=True):
    """The pieces of a processor that its attempts share."""

    claims: RunClaims
    scratch: Scratch
    uploader: Uploader
    checker: Checker


class NotRead(Exception):
    """The attempt ended without results."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.end)
        self.outcome = outcome


class Attempt:
    """Processes one claimed run."""

    def __init__(self, claim: Claim, deps: Deps, tools: Tools) -> None:
        self._claim = claim
        self._deps = deps
        self._tools = tools
        self._log = deps.log.bind(run=claim.run_id, shard=claim.shard, attempt=claim.attempt)
        self._held = False  # the writing transaction holds the row

    async def run(self) -> Decision | None:
        """Process the run; returns the decision that was written, or None if another worker took the claim."""
        outcome = await self._guarded()
        if outcome is None:
            return None
        decision = self._decide(outcome)
        if outcome.end == "done":
            return decision
        return decision if await self._ended(decision) else None

    async def release(self, outcome: Outcome) -> Decision | None:
        """End the attempt without processing, so that another worker gets the run."""
        decision = self._decide(outcome)
        return decision if await self._tools.claims.end(self._claim, decision) else None

    async def _guarded(self) -> Outcome | None:
        """Work and send heartbeats; None: the claim was lost."""
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
        except Exception as error:  # noqa: BLE001 - whatever fails, the attempt failed
            outcome = outcome_of(error)
            if outcome.reason is not None and outcome.reason.code is Unprocessed.DEFECT:
                self._log.error("attempt failed by a defect in runyard", exc_info=error)
            return outcome

    async def _beat(self, work: "asyncio.Task[Outcome | None]") -> None:
        settings, claims = self._deps.settings, self._tools.claims
        while True:
            await self._deps.clock.sleep(settings.beat)
            if self._held:
                continue  # our transaction locks the row: no worker can take it, and a heartbeat would block
            try:
                held = await claims.renew(self._claim)
            except DatabaseError as error:
                self._log.warning("heartbeat not written; retrying", error=str(error))
                continue
            if not held and await self._lost():
                work.cancel()
                return

    async def _lost(self) -> bool:
        """Whether the claim was lost; a claim whose results were just written was not."""
        try:
            return await self._tools.claims.outcome(self._claim) != "processed"
        except DatabaseError:
            return False

    async def _work(self) -> Outcome:
        with self._workdir() as workdir:
            try:
                await self._timed("download", self._download(workdir))
                answer = await self._timed("read", self._read(workdir))
                bundle = Path(answer.bundle)
                assert answer.summary is not None  # `read` returns a summary
                await self._tools.checker.check(workdir, bundle, log=self._log)
                uploads = await self._timed("upload", self._upload(workdir, bundle))
                await self._timed("write", self._publish(workdir, answer.summary, uploads))
            finally:
                await _emptied(workdir)
        return Outcome(end="done")

    @contextlib.contextmanager
    def _workdir(self) -> Iterator[Workdir]:
        claim, deps, tools = self._claim, self._deps, self._tools
        for _ in range(3):  # the sweep of another process may delete a lock file before it is held
            token = f"{deps.rng.getrandbits(32):08x}"
            with (
                contextlib.suppress(WorkdirGone),
                tools.scratch.workdir(
                    run_id=claim.run_id, shard=claim.shard, attempt=claim.attempt, token=token
                ) as workdir,
            ):
                yield workdir
                return
        raise NotRead(Outcome(end="released", reason=Unprocessed.WORKDIR_GONE.because()))

    async def _download(self, workdir: Workdir) -> None:
        claim, deps, scratch = self._claim, self._deps, self._tools.scratch
        found = await deps.blobs.head(claim.storage_key)
        if found is None:
            raise NotRead(Outcome(end="failed", reason=Unprocessed.UPLOAD_MISSING.because()))
        free = scratch.free()
        if free < found.size + deps.settings.reserve:
            full = Unprocessed.NO_SPACE_FOR_UPLOAD.because(size=found.size, free=free)
            raise NotRead(Outcome(end="no_space", reason=full))
        try:
            async with deps.clock.timeout(deps.settings.limit):
                await deps.blobs.download(claim.storage_key, workdir.archive)
        except TimeoutError:
            late = Unprocessed.DOWNLOAD_TIMEOUT.because(limit=deps.settings.limit)
            raise NotRead(Outcome(end="late", reason=late)) from None

    async def _read(self, workdir: Workdir) -> ReadAnswer:
        claim, settings = self._claim, self._deps.settings
        request = ReadRequest(
            workdir=str(workdir.path),
            run_id=claim.run_id,
            shard=claim.shard,
            account=claim.account,
            project=claim.project,
            memory=settings.memory,
            cpu=min(
                cpu_limit(workdir.archive.stat().st_size), int(settings.limit + settings.grace)
            ),
            reserve=settings.reserve,
            limits=settings.limits,
            parent=os.getpid(),
            compare=self._tools.checker.wanted,
            trace=self._deps.trace,
        )
        answer = await read(
            request, workdir, limit=settings.limit, grace=settings.grace, log=self._log
        )
        if isinstance(answer, Outcome):
            raise NotRead(answer)
        if answer.end != "read":
            raise NotRead(Outcome(end=answer.end, reason=ATTEMPTS.read(answer.code, answer.detail)))
        if answer.summary is not None and not answer.summary.modules:
            raise NotRead(Outcome(end="refused", reason=Unprocessed.NO_TESTS.because()))
        return answer

    async def _upload(self, workdir: Workdir, bundle: Path) -> Uploads:
        uploads = await self._tools.uploader.upload(self._claim, bundle=bundle, rows=workdir.rows)
        last = self._claim.spent + 1 >= self._deps.settings.retrying.attempts
        if uploads.away and not last:  # the last attempt keeps results without attachments
            away = Unprocessed.STORAGE_UNAVAILABLE.because(message=line(uploads.away))
            raise NotRead(Outcome(end="failed", reason=away))
        return uploads

    async def _publish(self, workdir: Workdir, summary: Summary, uploads: Uploads) -> None:
        """Write the results; retries while the database is unavailable."""
        decision = self._decide(Outcome(end="done"))
        until = self._deps.clock.monotonic() + self._deps.settings.patience
        while True:
            try:
                await self._write(workdir, summary, uploads, decision)
            except (Unavailable, CommitUnknown) as error:
                if await self._went_through():
                    return
                if self._deps.clock.monotonic() > until:
                    raise
                self._log.warning("results not written; retrying", error=str(error))
                await self._deps.clock.sleep(_TRY_AGAIN)
            except Fenced:
                if await self._went_through():
                    return  # an earlier commit whose outcome was unknown
                raise
            else:
                return

    async def _write(
        self, workdir: Workdir, summary: Summary, uploads: Uploads, decision: Decision
    ) -> None:
        def held() -> None:
            self._held = True

        try:
            await publish(
                self._deps.results,
                self._claim,
                decision,
                rows=workdir.rows,
                summary=summary,
                uploads=uploads,
                held=held,
            )
        finally:
            self._held = False

    async def _went_through(self) -> bool:
        try:
            return await self._tools.claims.outcome(self._claim) == "processed"
        except DatabaseError:
            return False

    async def _ended(self, decision: Decision) -> bool:
        """Write the end of the attempt. If that fails, the lease expires and a sweep ends the attempt."""
        until = self._deps.clock.monotonic() + self._deps.settings.patience
        while True:
            try:
                return await self._tools.claims.end(self._claim, decision)
            except DatabaseError as error:
                self._log.warning("end of the attempt not written; retrying", error=str(error))
                if self._deps.clock.monotonic() > until:
                    return False
                await self._deps.clock.sleep(_TRY_AGAIN)

    def _decide(self, outcome: Outcome) -> Decision:
        claim = self._claim
        rules = self._deps.settings.retrying
        return decide(outcome, claims=claim.claims, spent=claim.spent, settings=rules)

    async def _timed(self, phase: str, work: Awaitable[T]) -> T:
        started = self._deps.clock.monotonic()
        try:
            return await work
        finally:
            took = self._deps.clock.monotonic() - started
            self._deps.meter.observe(RUNYARD_PROCESSOR_PHASE_SECONDS, took, phase=phase)


async def _emptied(workdir: Workdir) -> None:
    """Delete the content of a workdir in a thread; completes even if this task is cancelled."""
    gone = asyncio.get_running_loop().run_in_executor(None, workdir.empty)
    cancelled: asyncio.CancelledError | None = None
    while not gone.done():
        try:
            await asyncio.wait((gone,))
        except asyncio.CancelledError as error:
            cancelled = error
    gone.result()
    if cancelled is not None:
        raise cancelled
