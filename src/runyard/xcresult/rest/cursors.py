"""Encodes where a page ended as a text that the client sends back: numbers and ids joined by `_`.

The text is untrusted input and validated; it contains nothing that the page itself did not show.
"""

import base64
import binascii
import re

from runyard.xcresult.rest.problems import Refused, bad

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)
_MICROS = re.compile(r"-?[0-9]{1,16}", re.ASCII)
_MOST = 4_000_000_000_000_000  # microseconds: the year 2096


def numbers(cursor: str, count: int) -> tuple[int, ...]:
    """Parse `count` numbers; -1 each for an empty cursor."""
    if not cursor:
        return (-1,) * count
    parts = cursor.split("_")
    if len(parts) != count or not all(_NUMBER.fullmatch(part) for part in parts):
        raise _bad()
    return tuple(int(part) for part in parts)


def moment(cursor: str, count: int = 0) -> tuple[int | None, str | None, tuple[int, ...]]:
    """Parse a moment in microseconds, an id, and `count` numbers; None for an empty cursor."""
    if not cursor:
        return None, None, (-1,) * count
    micros, _, rest = cursor.partition("_")
    run, _, more = rest.partition("_")
    if not (_MICROS.fullmatch(micros) and abs(int(micros)) < _MOST and UUID.fullmatch(run)):
        raise _bad()
    return int(micros), run, numbers(more, count) if count or more else ()


def uuid(cursor: str) -> str | None:
    """Parse an id; None for an empty cursor."""
    if cursor and not UUID.fullmatch(cursor):
        raise _bad()
    return cursor or None


def texts(cursor: str) -> tuple[str, str]:
    """Parse two texts."""
    if not cursor:
        return "", ""
    try:
        first, zero, second = base64.urlsafe_b64decode(cursor.encode()).decode().partition("\0")
    except (binascii.Error, ValueError):
        raise _bad() from None
    if not zero or "\0" in second:
        raise _bad()
    return first, second


def of_texts(first: str, second: str) -> str:
    """A cursor of two texts without NUL."""
    return base64.urlsafe_b64encode(f"{first}\0{second}".encode()).decode()


def of(*parts: object) -> str:
    """A cursor of these parts."""
    return "_".join(str(part) for part in parts)


def _bad() -> Refused:
    return bad("cursor", "the `next` of the previous page")
