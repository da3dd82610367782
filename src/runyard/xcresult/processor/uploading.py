"""Attachments on their way from the bundle to object storage: each payload once a project, streamed.

First every payload gets its row, or touches the one that is there: so no object is without a row, and none that is
about to be referred to is removed. Then those that are not known to be stored are uploaded, a piece at a time. One that
fails costs that payload and nothing else; a store that takes nothing any more is not asked for all the rest, and the
attempt as a whole is for later.

Invariants:
- Memory depends neither on the size of attachments nor on their number.
- A database that is away costs time and no attempt, as everywhere.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec

from runyard.blobs.contract import Blobs
from runyard.blobs.errors import BlobError, BlobsRefused, BlobsUnavailable
from runyard.clock import Clock
from runyard.db.contract import CommitUnknown, Database, Tx, Unavailable
from runyard.telemetry.catalogue import RUNYARD_PROCESSOR_ATTACHMENTS_TOTAL
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter
from runyard.xcresult.bundle.directory import Directory
from runyard.xcresult.errors import XcresultError
from runyard.xcresult.places import payload_key
from runyard.xcresult.processor.rowsfile import batches
from runyard.xcresult.reader.objects import ObjectProblem
from runyard.xcresult.settings import Settings
from runyard.xcresult.store import SQL, Claim

_EXPECTED = (BlobError, ObjectProblem, XcresultError, TimeoutError, OSError)
_THE_STORES = (BlobsUnavailable, BlobsRefused, TimeoutError)
_TRY_AGAIN = 1.0
Known = tuple[str, str, str, bool]
"""A payload's row: its id, its content id, its key, and whether it is stored already."""


class Payload(msgspec.Struct, frozen=True):
    """One payload of a bundle, as the child told it."""

    payload_id: str
    content_id: str
    size: int


class Uploads(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a run's payloads, by id."""

    stored: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    away: str = ""
    """Why the store takes nothing; empty if it does, or if there was nothing to take."""


class _Store:
    """What the store did with the payloads of one run, so far."""

    def __init__(self, patience: int) -> None:
        self._patience = patience
        self._took = False
        self._in_a_row = 0
        self.refusal = ""
        self.hopeless = False
        """As many failed one after the other as are uploaded at once: it is not asked again."""

    @property
    def away(self) -> str:
        """Why the attempt is for later."""
        return self.refusal if self.hopeless or not self._took else ""

    def answered(self, failure: Exception | None) -> None:
        """An upload was taken, or failed; what is wrong with the payload says nothing about the store."""
        if failure is None:
            self._took, self._in_a_row = True, 0
        elif isinstance(failure, _THE_STORES):
            self._in_a_row += 1
            self.hopeless = self.hopeless or self._in_a_row >= self._patience
            self.refusal = self.refusal or str(failure) or "it did not answer in time"


class Uploader:
    """Uploads what one run needs."""

    def __init__(
        self,
        *,
        blobs: Blobs,
        database: Database,
        clock: Clock,
        rng: random.Random,
        settings: Settings,
        meter: Meter,
        log: Logger,
    ) -> None:
        self._blobs = blobs
        self._database = database
        self._clock = clock
        self._rng = rng
        self._settings = settings
        self._meter = meter
        self._log = log

    async def upload(self, claim: Claim, *, bundle: Path, rows: Path) -> Uploads:
        """See to it that every payload of the run is stored, as far as that is possible."""
        objects = Directory(bundle, limits=self._settings.limits)
        store = _Store(self._settings.uploads)
        stored: list[str] = []
        dropped: list[str] = []
        for _, text in batches(rows, "payloads"):
            wanted = msgspec.json.decode(text, type=tuple[Payload, ...])
            known = await self._reserved(claim, wanted)
            slots = asyncio.Semaphore(self._settings.uploads)
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
        """Each payload's row, however long the database takes to write them."""
        until = self._clock.monotonic() + self._settings.patience
        while True:
            try:
                return await self._reserve(claim, wanted)
            except (Unavailable, CommitUnknown) as error:  # twice is as good as once
                if self._clock.monotonic() > until:
                    raise
                self._log.warning("payloads could not be written yet", error=str(error))
                await self._clock.sleep(_TRY_AGAIN)

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
                    nonce=f"{self._rng.getrandbits(64):016x}",
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

        return await self._database.transact(work, name="xcresult payloads")

    async def _one(
        self, objects: Directory, content_id: str, key: str, slots: asyncio.Semaphore, store: _Store
    ) -> bool:
        """Upload one payload; whether it is stored."""
        async with slots:
            if store.hopeless:
                return False
            try:
                async with self._clock.timeout(self._settings.upload_within):
                    pieces = _pieces(objects, content_id)
                    await self._blobs.put(key, pieces, limit=self._settings.limits.entry_bytes)
            except _EXPECTED as error:
                store.answered(error)
                told = str(error) or type(error).__name__
                self._log.warning("an attachment was dropped", content_id=content_id, error=told)
                return False
        store.answered(None)
        return True

    def _count(self, outcome: str) -> None:
        self._meter.inc(RUNYARD_PROCESSOR_ATTACHMENTS_TOTAL, outcome=outcome)


async def _pieces(objects: Directory, content_id: str) -> AsyncIterator[bytes]:
    """The payload, read and decompressed beside the loop."""
    pieces: Iterator[bytes] = objects.stream(content_id)
    while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
        yield piece
