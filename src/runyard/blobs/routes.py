"""Serves signed links: uploads are streamed to the store, downloads are streamed from it.

    PUT /api/v1/blobs/{key...}     with a link of `Links.put`
    GET /api/v1/blobs/{key...}     with a link of `Links.get`

The link is the only credential. A request without a valid link learns nothing, not even whether an object exists.

Invariants:
- An upload is checked by its headers before its body is read. It is aborted at the link's limit, after an hour,
  and when the client disconnects; then nothing is stored.
- A download has headers that keep a browser from displaying it (`downloads`).
"""

import asyncio

import msgspec

from runyard.blobs import downloads
from runyard.blobs.contract import Blobs
from runyard.blobs.errors import BlobError, BlobTooLarge, NoSuchBlob
from runyard.blobs.links import BadLink, Links
from runyard.clock import Clock
from runyard.http.messages import Request, Response, Stream, json_response
from runyard.http.problems import Problem, problem
from runyard.http.routes import Answers, Route
from runyard.telemetry.log import Logger
from runyard.wire.paths import BLOBS
from runyard.wire.problem_codes import ProblemCode

_UPLOAD_TIMEOUT = 3600.0  # seconds for a whole upload
# Uploads at the same time: each uses about 20 MB of memory. Further ones wait with their body unread.
_AT_ONCE = 16
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

    def __init__(self, blobs: Blobs, *, links: Links, clock: Clock, log: Logger) -> None:
        self._blobs = blobs
        self._links = links
        self._clock = clock
        self._log = log
        self._uploads = asyncio.Semaphore(_AT_ONCE)

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
                    413: ("The body is larger than the link allows.", Problem),
                    **_REFUSED,
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
        content = request.content if request.content is not None else request.body
        try:
            async with self._uploads, self._clock.timeout(_UPLOAD_TIMEOUT):
                size = await self._blobs.put(key, content, limit=link.limit)
        except BlobTooLarge:
            return _too_large(link.limit)
        except ConnectionError:
            return problem(400, ProblemCode.UPLOAD_CUT)
        except TimeoutError:
            return problem(408, ProblemCode.UPLOAD_LATE)
        except BlobError as error:
            return self._failed(error)
        return json_response(200, Stored(size=size))

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
        return Stream(aiter(reading), headers=downloads.headers(link.name))

    def _failed(self, error: BlobError) -> Response:
        self._log.warning("object storage request failed", error=str(error))
        return problem(503, ProblemCode.STORAGE_UNAVAILABLE, fix="try again later")


def _forbidden(error: BadLink) -> Response:
    fix = "request a new link from the server"
    return problem(403, ProblemCode.LINK_INVALID, reason=str(error), fix=fix)


def _too_large(limit: int) -> Response:
    return problem(413, ProblemCode.BODY_TOO_LARGE, reason=f"the link allows {limit} bytes")
