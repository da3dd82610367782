"""Where a page ended, as a text that the client hands back: numbers and ids joined by `_`.

It is checked like any other text of a stranger, and says nothing that the page itself did not.
"""

import base64
import binascii
import re

from runyard.xcresult.people.refusing import Refused, bad

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)
_MICROS = re.compile(r"-?[0-9]{1,16}", re.ASCII)
_MOST = 4_000_000_000_000_000  # microseconds: the year 2096


def numbers(cursor: str, count: int) -> tuple[int, ...]:
    """So many numbers; -1 each at the beginning."""
    if not cursor:
        return (-1,) * count
    parts = cursor.split("_")
    if len(parts) != count or not all(_NUMBER.fullmatch(part) for part in parts):
        raise _bad()
    return tuple(int(part) for part in parts)


def moment(cursor: str, count: int = 0) -> tuple[int | None, str | None, tuple[int, ...]]:
    """A moment in microseconds, an id, and so many numbers; nothing at the beginning."""
    if not cursor:
        return None, None, (-1,) * count
    micros, _, rest = cursor.partition("_")
    run, _, more = rest.partition("_")
    if not (_MICROS.fullmatch(micros) and abs(int(micros)) < _MOST and UUID.fullmatch(run)):
        raise _bad()
    return int(micros), run, numbers(more, count) if count or more else ()


def uuid(cursor: str) -> str | None:
    """An id; nothing at the beginning."""
    if cursor and not UUID.fullmatch(cursor):
        raise _bad()
    return cursor or None


def texts(cursor: str) -> tuple[str, str]:
    """Two texts."""
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
    """The cursor of two texts that have no NUL in them."""
    return base64.urlsafe_b64encode(f"{first}\0{second}".encode()).decode()


def of(*parts: object) -> str:
    """The cursor of these parts."""
    return "_".join(str(part) for part in parts)


def _bad() -> Refused:
    return bad("cursor", "the `next` of the page before")
