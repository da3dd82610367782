"""The route that signed links lead to: an upload goes through to the store, a download comes from it, both in pieces.

    PUT /api/v1/blobs/{key...}     what a link of `Links.put` allows
    GET /api/v1/blobs/{key...}     what a link of `Links.get` allows

The link is the credential: nothing else is asked for, and who has none learns nothing, not even what exists.

Invariants:
- An upload is judged by its head, before a byte of its body is asked for. It stops at the link's limit, at
  the end of patience, and when its sender goes; then nothing is stored.
- A download carries what keeps a browser from showing it (`downloads`).
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

_PATIENCE = 3600.0  # seconds for a whole upload
_AT_ONCE = 16  # uploads; each holds about 20 MB on its way, and those behind wait unread
_LINK = (
    ("until", "when the link ends, in seconds since the epoch"),
    ("signature", "of all that the link says"),
)
_REFUSED: Answers = {
    403: ("The link is not ours, or has ended.", Problem),
    503: ("The store cannot be used.", Problem),
}


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """An upload that is whole."""

    size: int


class BlobRoutes:
    """Answers who has a link."""

    def __init__(self, blobs: Blobs, *, links: Links, clock: Clock, log: Logger) -> None:
        self._blobs = blobs
        self._links = links
        self._clock = clock
        self._log = log
        self._room = asyncio.Semaphore(_AT_ONCE)

    def routes(self) -> tuple[Route, ...]:
        """Everything that can be asked here."""
        path = BLOBS + "/{key...}"
        return (
            Route(
                "PUT",
                path,
                self._put,
                summary="Upload what a signed link allows.",
                answers={
                    200: ("It is stored.", Stored),
                    400: ("The body broke off.", Problem),
                    413: ("There is more than the link allows.", Problem),
                    **_REFUSED,
                },
                query=(*_LINK, ("limit", "bytes that the link allows")),
            ),
            Route(
                "GET",
                path,
                self._get,
                summary="Download what a signed link allows, as a file to be saved.",
                answers={
                    200: ("The file.", None),
                    404: ("It is no longer there.", Problem),
                    **_REFUSED,
                },
                query=(*_LINK, ("name", "what the file is to be called")),
                media="application/octet-stream",
            ),
        )

    async def _put(self, request: Request, key: str) -> Response:
        try:
            link = self._links.judge(request, key)
        except BadLink as error:
            return _forbidden(error)
        told = request.header("content-length")
        if told.isascii() and told.isdecimal() and len(told) < 16 and int(told) > link.limit:
            return _too_large(link.limit)
        content = request.content if request.content is not None else request.body
        try:
            async with self._room, self._clock.timeout(_PATIENCE):
                size = await self._blobs.put(key, content, limit=link.limit)
        except BlobTooLarge:
            return _too_large(link.limit)
        except ConnectionError:
            return problem(400, "the upload broke off")
        except TimeoutError:
            return problem(408, "the upload did not arrive in time")
        except BlobError as error:
            return self._failed(error)
        return json_response(200, Stored(size=size))

    async def _get(self, request: Request, key: str) -> Response | Stream:
        try:
            link = self._links.judge(request, key)
            reading = await self._blobs.get(key)
        except BadLink as error:
            return _forbidden(error)
        except NoSuchBlob:
            return problem(404, "it is no longer there", fix="what is old is removed")
        except BlobError as error:
            return self._failed(error)
        return Stream(aiter(reading), headers=downloads.headers(link.name))

    def _failed(self, error: BlobError) -> Response:
        self._log.warning("object storage", error=str(error))
        return problem(503, "object storage cannot be used", fix="try again later")


def _forbidden(error: BadLink) -> Response:
    fix = "ask the server for a new link"
    return problem(403, "the link is not good", reason=str(error), fix=fix)


def _too_large(limit: int) -> Response:
    return problem(413, "the body is too large", reason=f"the link allows {limit} bytes")
