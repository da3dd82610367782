"""How a result bundle gets in: a run is announced, its bundle is uploaded by a signed link, the upload is completed.

The bundle goes to object storage, by S3's own link or through our route; this server holds nothing of it. Completing
looks whether the object is there, and puts the run to work in the transaction that says so: no run waits for ever
because the queue was not told. If that fails, the answer is 503 and the run still awaits its completion: the client
asks again, and one that does not is made up for by `retention`, which finds the upload.

Invariants:
- Announcing, completing and their repetitions are idempotent by the client's id and shard; a repeated announcement
  changes nothing, and gives a new link while the upload is awaited.
- All shards of a run belong to one project; an id that is somebody else's is refused.
- What is larger than the limit, or empty, is not processed.
"""

import random
from collections.abc import Awaitable
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from runyard.blobs.contract import Blobs
from runyard.blobs.links import Links
from runyard.clock import Clock
from runyard.db.contract import Database, Row, Tx
from runyard.db.statements import load
from runyard.telemetry.catalogue import RUNYARD_TEST_UPLOADS_TOTAL
from runyard.telemetry.meter import Meter
from runyard.wire.testruns import Accepted, NewRun, Upload
from runyard.xcresult.people.refusing import Refused, nothing
from runyard.xcresult.people.settings import Settings
from runyard.xcresult.people.tokens import Scope
from runyard.xcresult.places import upload_key

SQL = load("runyard.xcresult.people")
_EARLIEST, _AHEAD = (
    946_684_800.0,
    86_400.0,
)  # of `ran_at`: the year 2000, and a clock that is a day fast
_SAID = frozenset(("id", "account", "project", "shard_index", "ran_at", "vcs_comment_params"))


class Enqueue(Protocol):
    """Puts a run to work, in the caller's transaction; False if it waits or is worked on already."""

    def __call__(self, tx: Tx, *, run_id: str, shard: int = 0) -> Awaitable[bool]:
        """Put it to work."""
        ...


class Uploads:
    """Takes bundles in."""

    def __init__(
        self,
        database: Database,
        *,
        blobs: Blobs,
        links: Links,
        enqueue: Enqueue,
        clock: Clock,
        rng: random.Random,
        meter: Meter,
        settings: Settings,
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._links = links
        self._enqueue = enqueue
        self._clock = clock
        self._rng = rng
        self._meter = meter
        self._settings = settings

    async def announce(self, new: NewRun, *, scope: Scope, base: str) -> Accepted:
        """A run that will be uploaded, and where to."""
        run_id, account, project = new.id.lower(), new.account.lower(), new.project.lower()
        if not (scope.may_upload and scope.holds(account, project)):
            raise _not_yours()
        self._check_time(new)
        nonce = f"{self._rng.getrandbits(64):016x}"
        key = upload_key(account, project, run_id=run_id, shard=new.shard_index, nonce=nonce)

        async def work(tx: Tx) -> Row | None:
            await tx.one(SQL.run_guard, run_id=run_id)
            owner = await tx.one(SQL.run_owner, run_id=run_id)
            if owner is not None and (owner["account"], owner["project"]) != (account, project):
                return None
            await tx.run(SQL.run_create, **_columns(new, account=account, project=project, key=key))
            return await tx.one(SQL.shard_hold, run_id=run_id, shard=new.shard_index)

        row = await self._database.transact(work, name="test run announced")
        if row is None:
            raise Refused(
                409,
                "the id is taken",
                reason="a run of another project has it",
                fix="choose a new random UUID for each run",
            )
        self._count("announced")
        return await self._accepted(run_id, new.shard_index, row, base=base)

    async def complete(self, run_id: str, shard: int, *, scope: Scope) -> Accepted:
        """The upload is whole: process it."""
        row = await self._shard(run_id, shard, scope)
        if row["state"] != "awaiting_upload":
            return Accepted(id=run_id, shard_index=shard, state=row["state"])
        found = await self._blobs.head(row["storage_key"])
        if found is None:
            self._count("missing")
            fix = "upload the bundle by the link of the announcement, then complete it"
            raise Refused(409, "nothing was uploaded", reason="there is no such object", fix=fix)
        if not 0 < found.size <= self._settings.upload_limit:
            self._count("refused")
            await self._blobs.delete([found.key])
            reason = f"{found.size} bytes; 1 to {self._settings.upload_limit} are taken"
            raise Refused(413, "the upload is empty or too large", reason=reason)
        state = await self.enqueue(run_id, shard, size=found.size)
        return _told(run_id, shard, state)

    async def enqueue(self, run_id: str, shard: int, *, size: int) -> str:
        """Put an uploaded shard to work, unless somebody has; its state."""

        async def work(tx: Tx) -> str:
            held = await tx.one(SQL.shard_hold, run_id=run_id, shard=shard)
            if held is None:
                raise nothing("run")
            if held["state"] != "awaiting_upload":
                return str(held["state"])
            await tx.run(SQL.shard_uploaded, run_id=run_id, shard=shard, size=size)
            await self._enqueue(tx, run_id=run_id, shard=shard)
            return "queued"

        state = await self._database.transact(work, name="test run completed")
        self._count("completed")
        return state

    async def reprocess(self, run_id: str, shard: int, *, scope: Scope) -> Accepted:
        """Read an upload once more that was read, or could not be."""
        row = await self._shard(run_id, shard, scope)
        if row["state"] == "awaiting_upload":
            raise Refused(409, "it was not uploaded yet", fix="complete the upload")

        async def work(tx: Tx) -> str:
            held = await tx.one(SQL.shard_hold, run_id=run_id, shard=shard)
            if held is None:
                raise nothing("run")
            if held["upload_gone"]:
                fix = "announce and upload it as a new run"
                raise Refused(410, "its upload was removed: it is too old", fix=fix)
            if held["state"] in ("processed", "failed_processing"):
                await self._enqueue(tx, run_id=run_id, shard=shard)
                return "queued"
            return str(held["state"])

        state = await self._database.transact(work, name="test run again")
        return _told(run_id, shard, state)

    async def _shard(self, run_id: str, shard: int, scope: Scope) -> Row:
        async def work(tx: Tx) -> Row | None:
            return await tx.one(
                SQL.shard_of,
                run_id=run_id,
                shard=shard,
                account=scope.account,
                project=scope.project,
            )

        row = await self._database.transact(work, name="test run")
        if row is None:
            raise nothing("run")
        if not scope.may_upload:
            raise _not_yours()
        return row

    async def _accepted(self, run_id: str, shard: int, row: Row, *, base: str) -> Accepted:
        upload = None
        if row["state"] == "awaiting_upload":
            upload = Upload(
                method="PUT",
                url=await self._link(row["storage_key"], base),
                expires_at=self._clock.now() + self._settings.upload_lasts,
                limit=self._settings.upload_limit,
            )
        return Accepted(id=run_id, shard_index=shard, state=row["state"], upload=upload)

    async def _link(self, key: str, base: str) -> str:
        lasts, limit = self._settings.upload_lasts, self._settings.upload_limit
        direct = ""
        if self._settings.direct_uploads:
            direct = await self._blobs.presign("PUT", key, lasts=lasts)
        return direct or base + self._links.put(key, lasts=lasts, limit=limit)

    def _check_time(self, new: NewRun) -> None:
        if new.ran_at is None:
            return
        if not _EARLIEST < new.ran_at.timestamp() < self._clock.now() + _AHEAD:
            raise Refused(422, "the body is not what is asked for", reason="ran_at is no time")

    def _count(self, outcome: str) -> None:
        self._meter.inc(RUNYARD_TEST_UPLOADS_TOTAL, outcome=outcome)


def _told(run_id: str, shard: int, state: str) -> Accepted:
    return msgspec.convert({"id": run_id, "shard_index": shard, "state": state}, Accepted)


def _columns(new: NewRun, *, account: str, project: str, key: str) -> dict[str, object]:
    said = msgspec.structs.asdict(new)
    return {
        **{name: value for name, value in said.items() if name not in _SAID},
        "run_id": new.id.lower(),
        "shard": new.shard_index,
        "account": account,
        "project": project,
        "storage_key": key,
        "ran_at": new.ran_at,
        "vcs_comment_params": msgspec.json.encode(new.vcs_comment_params).decode(),
    }


def _not_yours() -> Refused:
    fix = "use a token that may upload to this account and project"
    return Refused(403, "this token does not allow it", fix=fix)


def base_of(host: str, *, secure: bool, public_url: str) -> str:
    """How the client that asks reaches this server."""
    if public_url:
        parts = urlsplit(public_url)
        return f"{parts.scheme}://{parts.netloc}"
    return f"{'https' if secure else 'http'}://{host}"
