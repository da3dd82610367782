"""Serves signed links: uploads are streamed to the store, downloads are streamed from it.

    PUT /api/v1/blobs/{key...}     with a link of `Links.put`
    GET /api/v1/blobs/{key...}     with a link of `Links.get`

The link is the only credential. A request without a valid link learns nothing, not even whether an object exists.

Invariants:
- An upload is checked by its headers before its body is read. It is aborted at the link's limit, below the least rate,
  after `Limits.longest` seconds, when others need its slot (`slots`), and when the client disconnects; then nothing is
  stored.
- A download has headers that keep a browser from displaying it (`downloads`). A client that reads it below the least
  rate is cut off.
"""

from collections.abc import Callable

import msgspec

from runyard.blobs import downloads
from runyard.blobs.contract import Blobs
from runyard.blobs.errors import BlobError, BlobsUnavailable, BlobTooLarge, NoSuchBlob
from runyard.blobs.links import BadLink, Links
from runyard.blobs.plans.slots import Client, Limits
from runyard.blobs.slots import Ended, Slots, StoreStalled
from runyard.clock import Clock
from runyard.http.messages import Request, Response, Stream, json_response
from runyard.http.pace import TooSlow
from runyard.http.problems import Problem, problem, problem_of
from runyard.http.routes import Answers, Route
from runyard.telemetry.catalogue import RUNYARD_UPLOADS_ENDED_TOTAL
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter
from runyard.wire.paths import BLOBS
from runyard.wire.problem_codes import ProblemCode
from runyard.wire.reasons import Reason
from runyard.wire.reasons_results import Yielded

_FASTER = "repeat the upload over a faster line, or upload fewer bundles at the same time"
_RETRY = "10"  # seconds after which a refused upload may be repeated
_LINK = (
    ("until", "when the link expires, in seconds since the epoch"),
    ("signature", "signature over all other parameters"),
)
_REFUSED: Answers = {
    403: ("The link is invalid or has expired.", Problem),
    503: ("Object storage is unavailable.", Problem),
}


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A completed upload."""

    size: int


class BlobRoutes:
    """Handles requests with signed links."""

    def __init__(
        self,
        blobs: Blobs,
        *,
        links: Links,
        clock: Clock,
        meter: Meter,
        log: Logger,
        client_of: Callable[[str], Client],
        limits: Limits,
    ) -> None:
        """`client_of` returns the client to which the key of a link belongs."""
        self._blobs = blobs
        self._links = links
        self._meter = meter
        self._log = log
        self._client_of = client_of
        self._slots = Slots(limits, clock=clock, meter=meter)

    def routes(self) -> tuple[Route, ...]:
        """The routes of this class."""
        path = BLOBS + "/{key...}"
        return (
            Route(
                "PUT",
                path,
                self._put,
                summary="Upload an object by a signed link.",
                answers={
                    200: ("The object is stored.", Stored),
                    400: ("The body ended early.", Problem),
                    408: ("The body arrives too slowly.", Problem),
                    413: ("The body is larger than the link allows.", Problem),
                    **_REFUSED,
                    503: (
                        "Object storage is unavailable, or other uploads are served first; see Retry-After.",
                        Problem,
                    ),
                },
                query=(*_LINK, ("limit", "largest number of bytes")),
            ),
            Route(
                "GET",
                path,
                self._get,
                summary="Download an object by a signed link, as a file to save.",
                answers={
                    200: ("The file.", None),
                    404: ("The object does not exist (any more).", Problem),
                    **_REFUSED,
                },
                query=(*_LINK, ("name", "the file name")),
                media="application/octet-stream",
            ),
        )

    async def _put(self, request: Request, key: str) -> Response:
        try:
            link = self._links.verify(request, key)
        except BadLink as error:
            return _forbidden(error)
        length = request.header("content-length")
        if (
            length.isascii()
            and length.isdecimal()
            and len(length) < 16
            and int(length) > link.limit
        ):
            return _too_large(link.limit)
        return await self._store(request, key, link.limit)

    async def _store(self, request: Request, key: str, limit: int) -> Response:
        try:
            size = await self._hold_and_put(request, key, limit)
        except BlobTooLarge:
            return _too_large(limit)
        except BlobError as error:
            self._count(ProblemCode.STORAGE_UNAVAILABLE)
            return self._failed(error)
        except Ended as ended:
            self._count(ended.reason.slug)
            return _ended(ended.reason)
        except ConnectionError:
            self._count(ProblemCode.UPLOAD_CUT)
            return problem(400, ProblemCode.UPLOAD_CUT)
        except TooSlow:
            self._count(ProblemCode.UPLOAD_SLOW)
            return problem(408, ProblemCode.UPLOAD_SLOW, fix=_FASTER)
        except TimeoutError:
            self._count(ProblemCode.UPLOAD_LATE)
            return problem(408, ProblemCode.UPLOAD_LATE, fix=_FASTER)
        return json_response(200, Stored(size=size))

    async def _hold_and_put(self, request: Request, key: str, limit: int) -> int:
        async with self._slots.hold(self._client_of(key)) as upload:
            content = request.body if request.content is None else upload.pieces(request.content)
            try:
                async with upload.storing():
                    return await self._blobs.put(key, content, limit=limit)
            except StoreStalled as stalled:
                raise BlobsUnavailable(f"put {key}: {stalled}") from None

    def _count(self, slug: str) -> None:
        self._meter.inc(RUNYARD_UPLOADS_ENDED_TOTAL, reason=slug)

    async def _get(self, request: Request, key: str) -> Response | Stream:
        try:
            link = self._links.verify(request, key)
            reading = await self._blobs.get(key)
        except BadLink as error:
            return _forbidden(error)
        except NoSuchBlob:
            return problem(
                404,
                ProblemCode.OBJECT_UNKNOWN,
                fix="old objects are deleted; see the retention settings",
            )
        except BlobError as error:
            return self._failed(error)
        return Stream(aiter(reading), headers=downloads.headers(link.name), paced=True)

    def _failed(self, error: BlobError) -> Response:
        self._log.warning("object storage request failed", error=str(error))
        return problem(503, ProblemCode.STORAGE_UNAVAILABLE, fix="try again later")


def _ended(reason: Reason) -> Response:
    """The refusal of an upload that was ended for others, or never started."""
    if reason.code is Yielded.UPLOAD_SLOWEST:
        return problem_of(408, reason, fix=_FASTER)
    fix = "repeat the upload after the seconds of Retry-After, or upload fewer bundles at the same time"
    return problem_of(503, reason, fix=fix, headers=(("retry-after", _RETRY),))


def _forbidden(error: BadLink) -> Response:
    fix = "request a new link from the server"
    return problem(403, ProblemCode.LINK_INVALID, reason=str(error), fix=fix)


def _too_large(limit: int) -> Response:
    return problem(413, ProblemCode.BODY_TOO_LARGE, reason=f"the link allows {limit} bytes")
