"""Signed links to our own route, for stores that make none: whoever has one may do that one thing until it ends.

    /api/v1/blobs/KEY?method=PUT&until=1800000000&limit=5000000&signature=…
    /api/v1/blobs/KEY?method=GET&until=1800000000&name=Screenshot.png&signature=…

Invariants:
- The signature is over everything that the link says: method, key, end, limit and name, each in its own place, so that
  no two different links have the same text to sign.
- Signatures are compared in constant time, against every key that is valid; the first key signs. A key is changed by
  putting the new one first, and taking the old one away when its last link has ended.
- Time is the clock's, and a link that ended is worth nothing, whatever its signature.
"""

import hashlib
import hmac
import re
from collections.abc import Sequence
from urllib.parse import urlencode

import msgspec

from runyard.blobs.contract import Method
from runyard.blobs.keys import check_key, is_key
from runyard.clock import Clock
from runyard.http.messages import Request
from runyard.wire.paths import BLOBS

SHORTEST = 16  # bytes of a key
_PURPOSE = "runyard blob link 1"
_NUMBER = re.compile(r"[0-9]{1,15}", re.ASCII)
_SIGNATURE = re.compile(r"[0-9a-f]{64}", re.ASCII)
_LONGEST_NAME = 200


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that may be done."""

    method: Method
    key: str
    until: int  # seconds since the epoch
    limit: int = 0  # bytes that may be put; of no meaning for GET
    name: str = ""  # what a download is called; of no meaning for PUT


class BadLink(Exception):
    """The link is not one of ours, or is over; the message says which, and repeats nothing."""


class Links:
    """Makes links and judges them."""

    def __init__(self, keys: Sequence[bytes], *, clock: Clock) -> None:
        if not keys or any(len(key) < SHORTEST for key in keys):
            raise ValueError(f"links need a key of {SHORTEST} bytes or more")
        self._keys = tuple(
            hmac.new(key, _PURPOSE.encode(), hashlib.sha256).digest() for key in keys
        )
        self._clock = clock

    def put(self, key: str, *, lasts: float, limit: int) -> str:
        """A link that takes at most so many bytes: path and query."""
        return self._made(
            Link(method="PUT", key=check_key(key), until=self._end(lasts), limit=limit)
        )

    def get(self, key: str, *, lasts: float, name: str = "") -> str:
        """A link to read an object by: path and query."""
        shown = name[:_LONGEST_NAME]
        return self._made(
            Link(method="GET", key=check_key(key), until=self._end(lasts), name=shown)
        )

    def judge(self, request: Request, key: str) -> Link:
        """What this request may do with that key; raises `BadLink`."""
        method: Method = "PUT" if request.method == "PUT" else "GET"
        until, limit = request.param("until"), request.param("limit") or "0"
        signature, name = request.param("signature"), request.param("name")
        if not (is_key(key) and _NUMBER.fullmatch(until) and _NUMBER.fullmatch(limit)):
            raise BadLink("it is not whole")
        if not _SIGNATURE.fullmatch(signature) or len(name) > _LONGEST_NAME:
            raise BadLink("it is not whole")
        link = Link(method=method, key=key, until=int(until), limit=int(limit), name=name)
        good = [hmac.compare_digest(signature, _signature(each, link)) for each in self._keys]
        if not any(good):
            raise BadLink("its signature is not ours")
        if link.until <= self._clock.now():
            raise BadLink("it has ended")
        return link

    def _end(self, lasts: float) -> int:
        return int(self._clock.now() + lasts)

    def _made(self, link: Link) -> str:
        said = {"method": link.method, "until": str(link.until)}
        if link.method == "PUT":
            said["limit"] = str(link.limit)
        if link.name:
            said["name"] = link.name
        query = urlencode({**said, "signature": _signature(self._keys[0], link)})
        return f"{BLOBS}/{link.key}?{query}"


def _signature(key: bytes, link: Link) -> str:
    told = msgspec.json.encode((link.method, link.key, link.until, link.limit, link.name))
    return hmac.new(key, told, hashlib.sha256).hexdigest()
