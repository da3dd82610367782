"""Makes and checks signed links to our own blob route, for stores that cannot sign links themselves.

    /api/v1/blobs/KEY?method=PUT&until=1800000000&limit=5000000&signature=…
    /api/v1/blobs/KEY?method=GET&until=1800000000&name=Screenshot.png&signature=…

The holder of a link may do that one operation until the link expires.

Invariants:
- The signature covers method, key, expiry, limit and name, encoded so that two different links never have the same
  text to sign.
- Signatures are compared in constant time with every valid key; the first key signs. To rotate the key, put the new
  one first and remove the old one when its last link has expired.
- An expired link is refused, whatever its signature; time comes from the injected clock.
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
    """The operation that a link allows."""

    method: Method
    key: str
    until: int  # seconds since the epoch
    limit: int = 0  # largest number of bytes for PUT; ignored for GET
    name: str = ""  # file name of a download; ignored for PUT


class BadLink(Exception):
    """The link is malformed, has a wrong signature, or has expired; the message says which and contains no input."""


class Links:
    """Makes and checks signed links."""

    def __init__(self, keys: Sequence[bytes], *, clock: Clock) -> None:
        if not keys or any(len(key) < SHORTEST for key in keys):
            raise ValueError(f"a key for links has fewer than {SHORTEST} bytes")
        self._keys = tuple(
            hmac.new(key, _PURPOSE.encode(), hashlib.sha256).digest() for key in keys
        )
        self._clock = clock

    def put(self, key: str, *, lasts: float, limit: int) -> str:
        """Make a link to upload at most `limit` bytes: path and query."""
        return self._build(
            Link(method="PUT", key=check_key(key), until=self._expiry(lasts), limit=limit)
        )

    def get(self, key: str, *, lasts: float, name: str = "") -> str:
        """Make a link to download an object: path and query."""
        shown = name[:_LONGEST_NAME]
        return self._build(
            Link(method="GET", key=check_key(key), until=self._expiry(lasts), name=shown)
        )

    def verify(self, request: Request, key: str) -> Link:
        """Check the link of this request for that key; raises `BadLink`."""
        method: Method = "PUT" if request.method == "PUT" else "GET"
        until, limit = request.param("until"), request.param("limit") or "0"
        signature, name = request.param("signature"), request.param("name")
        if not (is_key(key) and _NUMBER.fullmatch(until) and _NUMBER.fullmatch(limit)):
            raise BadLink("a parameter is missing or malformed")
        if not _SIGNATURE.fullmatch(signature) or len(name) > _LONGEST_NAME:
            raise BadLink("a parameter is missing or malformed")
        link = Link(method=method, key=key, until=int(until), limit=int(limit), name=name)
        good = [hmac.compare_digest(signature, _signature(each, link)) for each in self._keys]
        if not any(good):
            raise BadLink("the signature is wrong")
        if link.until <= self._clock.now():
            raise BadLink("it has expired")
        return link

    def _expiry(self, lasts: float) -> int:
        return int(self._clock.now() + lasts)

    def _build(self, link: Link) -> str:
        parameters = {"method": link.method, "until": str(link.until)}
        if link.method == "PUT":
            parameters["limit"] = str(link.limit)
        if link.name:
            parameters["name"] = link.name
        query = urlencode({**parameters, "signature": _signature(self._keys[0], link)})
        return f"{BLOBS}/{link.key}?{query}"


def _signature(key: bytes, link: Link) -> str:
    signed = msgspec.json.encode((link.method, link.key, link.until, link.limit, link.name))
    return hmac.new(key, signed, hashlib.sha256).hexdigest()
