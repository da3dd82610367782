"""Parses and encodes request targets, and checks whether a host is loopback.

Invariants:
- The decoded path and query equal what the client sent: spaces, unicode, `..`, a literal `%2F`, `//`,
  the order of query parameters, empty values. Nothing is normalised on the way, on either side.
- A target that is not UTF-8 once decoded is a `ValueError`; replacing its bytes would make two names one.
"""

import ipaddress
import re
from urllib.parse import quote, unquote, unquote_plus

from runyard.http.messages import Pairs

_UNESCAPED_IN_PATH = "/:@!$&'()*,;=~"
_UNESCAPED_IN_QUERY = "/:@!$'()*,;~"
_ABSOLUTE = re.compile(r"https?://[^/?#]*", re.IGNORECASE)


def is_loopback(host: str) -> bool:
    """Return whether a host is a loopback address or `localhost`.

    Names that only resemble them (`127.evil.example`, `localhost.example`) are not loopback.
    """
    if host.lower() in ("localhost", "localhost."):
        return True
    try:
        address = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def encode_target(path: str, query: Pairs) -> str:
    """The request target of a decoded path and its query; `ValueError` if it cannot be written."""
    if not path.startswith("/"):
        raise ValueError(f"a path starts with a slash, this does not: {path!r}")
    target = quote(path, safe=_UNESCAPED_IN_PATH)
    if not query:
        return target
    return target + "?" + "&".join(f"{_escape(key)}={_escape(value)}" for key, value in query)


def decode_target(target: str) -> tuple[str, Pairs]:
    """The decoded path and query of a request target; `ValueError` if it is none."""
    absolute = _ABSOLUTE.match(target)
    if absolute:  # a client of a proxy sends an absolute URL
        target = target[absolute.end() :] or "/"
    target = target.partition("#")[0]
    raw, _, query = target.partition("?")
    if not raw.startswith("/"):
        raise ValueError("the request target is not a path")
    raw.encode("utf-8")  # bytes that are no text have become surrogates by now
    return unquote(raw, errors="strict") if "%" in raw else raw, _pairs(query) if query else ()


def _pairs(query: str) -> Pairs:
    query.encode("utf-8")
    pairs: list[tuple[str, str]] = []
    for part in query.split("&"):
        if part:
            key, _, value = part.partition("=")
            pairs.append((_plain(key), _plain(value)))
    return tuple(pairs)


def _escape(text: str) -> str:
    return quote(text, safe=_UNESCAPED_IN_QUERY)


def _plain(text: str) -> str:
    if "%" in text or "+" in text:
        return unquote_plus(text, errors="strict")
    return text
