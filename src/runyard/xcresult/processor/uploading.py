"""Uploads attachments from the bundle to object storage: each payload once per project, streamed.

First every payload gets its row, or an existing row is touched: so every object has a row, and no object that will be
referenced is deleted. Then payloads not known to be stored are uploaded in pieces. A failed upload loses that payload
only. After several failures in a row the store counts as unavailable and the attempt is retried later.

Invariants:
- Memory depends neither on the size nor on the number of attachments.
- A database outage delays the attempt and does not cost one.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec

from runyard.blobs.errors import BlobError, BlobsRefused, BlobsUnavailable
from runyard.db.contract import CommitUnknown, Tx, Unavailable
from runyard.telemetry.catalogue import RUNYARD_PROCESSOR_ATTACHMENTS_TOTAL
from runyard.xcresult.bundle.directory import Directory
from runyard.xcresult.errors import XcresultError
from runyard.xcresult.object_keys import payload_key
from runyard.xcresult.processor.deps import Deps
from runyard.xcresult.processor.rows_file import batches
from runyard.xcresult.reader.objects import ObjectProblem
from runyard.xcresult.store import SQL, Claim

_EXPECTED = (BlobError, ObjectProblem, XcresultError, TimeoutError, OSError)
_THE_STORES = (BlobsUnavailable, BlobsRefused, TimeoutError)
_TRY_AGAIN = 1.0
Known = tuple[str, str, str, bool]
"""A payload's row: id, content id, key, and whether it is stored already."""


class Payload(msgspec.Struct, frozen=True):
    """One payload of a bundle, as the child reported it."""

    payload_id: str
    content_id: str
    size: int


class Uploads(msgspec.Struct, frozen=True, kw_only=True):
    """Which of a run's payloads are stored, by id."""

    stored: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    away: str = ""
    """Why the store is unavailable; empty if it works or there was nothing to upload."""


class _Store:
    """Tracks whether the store accepts the payloads of one run."""

    def __init__(self, patience: int) -> None:
        self._patience = patience
        self._took = False
        self._in_a_row = 0
        self.refusal = ""
        self.hopeless = False
        """Whether as many uploads failed in a row as run at once: no more uploads are sent."""

    @property
    def away(self) -> str:
        """Why the attempt must be retried later; empty if not."""
        return self.refusal if self.hopeless or not self._took else ""

    def record(self, failure: Exception | None) -> None:
        """Record the result of an upload; a failure to read the payload does not count against the store."""
        if failure is None:
            self._took, self._in_a_row = True, 0
        elif isinstance(failure, _THE_STORES):
            self._in_a_row += 1
            self.hopeless = self.hopeless or self._in_a_row >= self._patience
            self.refusal = self.refusal or str(failure) or "no response in time"


class Uploader:
    """Uploads the payloads of one run."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps

    async def upload(self, claim: Claim, *, bundle: Path, rows: Path) -> Uploads:
        """Store every payload of the run, as far as possible."""
        objects = Directory(bundle, limits=self._deps.settings.limits)
        store = _Store(self._deps.settings.uploads)
        stored: list[str] = []
        dropped: list[str] = []
        for _, text in batches(rows, "payloads"):
            wanted = msgspec.json.decode(text, type=tuple[Payload, ...])
            known = await self._reserved(claim, wanted)
            slots = asyncio.Semaphore(self._deps.settings.uploads)
            async with asyncio.TaskGroup() as group:
                tasks = {
                    payload_id: group.create_task(self._one(objects, content_id, key, slots, store))
                    for payload_id, content_id, key, there in known
                    if not there
                }
            for payload_id, _, _, there in known:
                good = there or tasks[payload_id].result()
                self._count("known" if there else "uploaded" if good else "dropped")
                (stored if good else dropped).append(payload_id)
        return Uploads(stored=tuple(stored), dropped=tuple(dropped), away=store.away)

    async def _reserved(self, claim: Claim, wanted: tuple[Payload, ...]) -> list[Known]:
        """Write each payload's row; retries while the database is unavailable."""
        until = self._deps.clock.monotonic() + self._deps.settings.patience
        while True:
            try:
                return await self._reserve(claim, wanted)
            except (
                Unavailable,
                CommitUnknown,
            ) as error:  # safe to retry: the statement is idempotent
                if self._deps.clock.monotonic() > until:
                    raise
                self._deps.log.warning("rows of payloads not written; retrying", error=str(error))
                await self._deps.clock.sleep(_TRY_AGAIN)

    async def _reserve(self, claim: Claim, wanted: tuple[Payload, ...]) -> list[Known]:
        rows = [
            {
                "payload_id": each.payload_id,
                "content_id": each.content_id,
                "size": each.size,
                "storage_key": payload_key(
                    claim.account,
                    claim.project,
                    content_id=each.content_id,
                    nonce=f"{self._deps.rng.getrandbits(64):016x}",
                ),
            }
            for each in wanted
        ]
        text = msgspec.json.encode(rows).decode()

        async def work(tx: Tx) -> list[Known]:
            found = await tx.all(
                SQL.payloads_reserve, account=claim.account, project=claim.project, rows=text
            )
            return [
                (row["payload_id"], row["content_id"], row["storage_key"], row["uploaded"])
                for row in found
            ]

        return await self._deps.database.transact(work, name="xcresult payloads")

    async def _one(
        self, objects: Directory, content_id: str, key: str, slots: asyncio.Semaphore, store: _Store
    ) -> bool:
        """Upload one payload; returns whether it is stored."""
        async with slots:
            if store.hopeless:
                return False
            try:
                async with self._deps.clock.timeout(self._deps.settings.upload_within):
                    pieces = _pieces(objects, content_id)
                    await self._deps.blobs.put(
                        key, pieces, limit=self._deps.settings.limits.entry_bytes
                    )
            except _EXPECTED as error:
                store.record(error)
                cause = str(error) or type(error).__name__
                self._deps.log.warning(
                    "attachment not uploaded", content_id=content_id, error=cause
                )
                return False
        store.record(None)
        return True

    def _count(self, outcome: str) -> None:
        self._deps.meter.inc(RUNYARD_PROCESSOR_ATTACHMENTS_TOTAL, outcome=outcome)


async def _pieces(objects: Directory, content_id: str) -> AsyncIterator[bytes]:
    """The payload, read and decompressed in a thread."""
    pieces: Iterator[bytes] = objects.stream(content_id)
    while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
        yield piece
