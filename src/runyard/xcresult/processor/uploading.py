"""Attachments on their way from the bundle to object storage: each payload once a project, streamed.

First every payload gets its row, or touches the one that is there: so no object is without a row, and none that is
about to be referred to is removed. Then those that are not known to be stored are uploaded, a piece at a time. One that
fails costs that payload and nothing else; when the store takes nothing at all, the attempt as a whole is for later.

Invariant: memory depends neither on the size of attachments nor on their number.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec

from runyard.blobs.contract import Blobs
from runyard.blobs.errors import BlobError, BlobsRefused, BlobsUnavailable
from runyard.clock import Clock
from runyard.db.contract import Database, Tx
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
    """Why the store took none of them at all; empty if it took one, or if there was none to take."""


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
        stored: list[str] = []
        dropped: list[str] = []
        refusals: list[str] = []
        for _, text in batches(rows, "payloads"):
            wanted = msgspec.json.decode(text, type=tuple[Payload, ...])
            known = await self._reserve(claim, wanted)
            slots = asyncio.Semaphore(self._settings.uploads)
            async with asyncio.TaskGroup() as group:
                tasks = {
                    payload_id: group.create_task(self._one(objects, content_id, key, slots))
                    for payload_id, content_id, key, there in known
                    if not there
                }
            for payload_id, _, _, there in known:
                failure = None if there else tasks[payload_id].result()
                self._count("known" if there else "dropped" if failure else "uploaded")
                (dropped if failure else stored).append(payload_id)
                if isinstance(failure, BlobsUnavailable | BlobsRefused):
                    refusals.append(str(failure))
        none = bool(refusals) and not stored
        return Uploads(
            stored=tuple(stored), dropped=tuple(dropped), away=refusals[0] if none else ""
        )

    async def _reserve(
        self, claim: Claim, wanted: tuple[Payload, ...]
    ) -> list[tuple[str, str, str, bool]]:
        """Each payload's row: its id, its content id, its key, and whether it is stored already."""
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

        async def work(tx: Tx) -> list[tuple[str, str, str, bool]]:
            found = await tx.all(
                SQL.payloads_reserve, account=claim.account, project=claim.project, rows=text
            )
            return [
                (row["payload_id"], row["content_id"], row["storage_key"], row["uploaded"])
                for row in found
            ]

        return await self._database.transact(work, name="xcresult payloads")

    async def _one(
        self, objects: Directory, content_id: str, key: str, slots: asyncio.Semaphore
    ) -> Exception | None:
        """Upload one payload; why it could not be."""
        async with slots:
            try:
                async with self._clock.timeout(self._settings.upload_within):
                    pieces = _pieces(objects, content_id)
                    await self._blobs.put(key, pieces, limit=self._settings.limits.entry_bytes)
            except _EXPECTED as error:
                told = str(error) or type(error).__name__
                self._log.warning("an attachment was dropped", content_id=content_id, error=told)
                return error
        return None

    def _count(self, outcome: str) -> None:
        self._meter.inc(RUNYARD_PROCESSOR_ATTACHMENTS_TOTAL, outcome=outcome)


async def _pieces(objects: Directory, content_id: str) -> AsyncIterator[bytes]:
    """The payload, read and decompressed beside the loop."""
    pieces: Iterator[bytes] = objects.stream(content_id)
    while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
        yield piece
