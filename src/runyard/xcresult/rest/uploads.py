"""Handles uploads of result bundles: announce a run, upload its bundle by a signed link, complete the upload.

The bundle goes to object storage by S3's own link or through our route; this server stores nothing of it. Completing
checks that the object exists, and queues the run in the same transaction that changes its state, so no run waits
without a delivery. If that fails the response is 503 and the client repeats the request; if it does not, `retention`
finds the upload later and queues it.

Invariants:
- Announcing and completing are idempotent by the client's id and shard; a repeated announcement changes nothing, and
  returns a new link while the upload is awaited.
- All shards of a run belong to one project; an id of another project is refused.
- An upload that is empty or larger than the limit is not processed.
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
from runyard.wire.problem_codes import ProblemCode
from runyard.wire.testruns import Accepted, NewRun, Upload
from runyard.xcresult.object_keys import upload_key
from runyard.xcresult.rest.problems import Refused, not_found
from runyard.xcresult.rest.settings import Settings
from runyard.xcresult.rest.tokens import Scope

SQL = load("runyard.xcresult.rest")
_EARLIEST, _AHEAD = (
    946_684_800.0,
    86_400.0,
)  # limits of `ran_at`: the year 2000, and a day in the future
_NOT_COPIED = frozenset(("id", "account", "project", "shard_index", "ran_at", "vcs_comment_params"))


class Enqueue(Protocol):
    """Queues a run in the caller's transaction; False if it is queued or being processed already."""

    def __call__(self, tx: Tx, *, run_id: str, shard: int = 0) -> Awaitable[bool]:
        """Queue the run."""
        ...


class UploadDeps(msgspec.Struct, frozen=True, kw_only=True):
    """The dependencies of `Uploads`."""

    database: Database
    blobs: Blobs
    links: Links
    clock: Clock
    rng: random.Random
    meter: Meter
    settings: Settings


class Uploads:
    """Handles announced, completed and repeated uploads."""

    def __init__(
        self,
        deps: UploadDeps,
        *,
        enqueue: Enqueue,
    ) -> None:
        self._database = deps.database
        self._blobs = deps.blobs
        self._links = deps.links
        self._enqueue = enqueue
        self._clock = deps.clock
        self._rng = deps.rng
        self._meter = deps.meter
        self._settings = deps.settings

    async def announce(self, new: NewRun, *, scope: Scope, base: str) -> Accepted:
        """Announce a run; returns where to upload its bundle."""
        run_id, account, project = new.id.lower(), new.account.lower(), new.project.lower()
        if not (scope.may_upload and scope.holds(account, project)):
            raise _outside_scope()
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
                ProblemCode.RUN_ID_IN_USE,
                reason="it belongs to a run of another project",
                fix="choose a new random UUID for each run",
            )
        self._count("announced")
        return await self._accepted(run_id, new.shard_index, row, base=base)

    async def complete(self, run_id: str, shard: int, *, scope: Scope) -> Accepted:
        """Queue a run whose upload is complete."""
        row = await self._shard(run_id, shard, scope)
        if row["state"] != "awaiting_upload":
            return Accepted(id=run_id, shard_index=shard, state=row["state"])
        found = await self._blobs.head(row["storage_key"])
        if found is None:
            self._count("missing")
            fix = "upload the bundle with the announced link, then repeat this request"
            raise Refused(
                409, ProblemCode.UPLOAD_MISSING, reason="the object does not exist", fix=fix
            )
        if not 0 < found.size <= self._settings.upload_limit:
            self._count("refused")
            await self._blobs.delete([found.key])
            reason = f"it has {found.size} bytes; 1 to {self._settings.upload_limit} are allowed"
            raise Refused(413, ProblemCode.UPLOAD_SIZE, reason=reason)
        state = await self.enqueue(run_id, shard, size=found.size)
        return _without_link(run_id, shard, state)

    async def enqueue(self, run_id: str, shard: int, *, size: int) -> str:
        """Queue an uploaded shard unless it is queued already; returns its state."""

        async def work(tx: Tx) -> str:
            held = await tx.one(SQL.shard_hold, run_id=run_id, shard=shard)
            if held is None:
                raise not_found("run")
            if held["state"] != "awaiting_upload":
                return str(held["state"])
            await tx.run(SQL.shard_uploaded, run_id=run_id, shard=shard, size=size)
            await self._enqueue(tx, run_id=run_id, shard=shard)
            return "queued"

        state = await self._database.transact(work, name="test run completed")
        self._count("completed")
        return state

    async def reprocess(self, run_id: str, shard: int, *, scope: Scope) -> Accepted:
        """Process an upload again."""
        row = await self._shard(run_id, shard, scope)
        if row["state"] == "awaiting_upload":
            raise Refused(409, ProblemCode.UPLOAD_INCOMPLETE, fix="complete the upload")

        async def work(tx: Tx) -> str:
            held = await tx.one(SQL.shard_hold, run_id=run_id, shard=shard)
            if held is None:
                raise not_found("run")
            if held["upload_gone"]:
                fix = "announce and upload it as a new run"
                raise Refused(410, ProblemCode.UPLOAD_DELETED, fix=fix)
            if held["state"] in ("processed", "failed_processing"):
                await self._enqueue(tx, run_id=run_id, shard=shard)
                return "queued"
            return str(held["state"])

        state = await self._database.transact(work, name="test run again")
        return _without_link(run_id, shard, state)

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
            raise not_found("run")
        if not scope.may_upload:
            raise _outside_scope()
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
            raise Refused(
                422, ProblemCode.RUN_TIME_INVALID, reason="ran_at is not a plausible time"
            )

    def _count(self, outcome: str) -> None:
        self._meter.inc(RUNYARD_TEST_UPLOADS_TOTAL, outcome=outcome)


def _without_link(run_id: str, shard: int, state: str) -> Accepted:
    return msgspec.convert({"id": run_id, "shard_index": shard, "state": state}, Accepted)


def _columns(new: NewRun, *, account: str, project: str, key: str) -> dict[str, object]:
    fields = msgspec.structs.asdict(new)
    return {
        **{name: value for name, value in fields.items() if name not in _NOT_COPIED},
        "run_id": new.id.lower(),
        "shard": new.shard_index,
        "account": account,
        "project": project,
        "storage_key": key,
        "ran_at": new.ran_at,
        "vcs_comment_params": msgspec.json.encode(new.vcs_comment_params).decode(),
    }


def _outside_scope() -> Refused:
    fix = "use a token that may upload to this account and project"
    return Refused(403, ProblemCode.RESULT_TOKEN_NARROW, fix=fix)


def base_of(host: str, *, secure: bool, public_url: str) -> str:
    """The base URL at which this client reaches this server."""
    if public_url:
        parts = urlsplit(public_url)
        return f"{parts.scheme}://{parts.netloc}"
    return f"{'https' if secure else 'http'}://{host}"
