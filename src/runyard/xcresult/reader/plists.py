"""Reads untrusted property lists: the standard library parses them, and may raise any exception.

A binary property list is a table of positions, one for each object. The standard library does not mind when objects
overlap, so a file of some kilobytes may declare a thousand lists that share the bytes of a million elements. So the
sizes of all objects are added first: a file whose objects have more bytes than the file is refused.
"""

import plistlib
import struct
from xml.parsers.expat import ExpatError

_ESCAPING = (
    ExpatError,
    ValueError,  # includes the exception of plistlib
    TypeError,
    LookupError,
    AttributeError,
    OverflowError,
    RecursionError,
)


OBJECTS = 1_000_000
"""Largest number of objects of a binary property list."""
_MAGIC = b"bplist"
_TRAILER = struct.Struct(">6xBBQQQ")
_UNITS = {4: 1, 5: 1, 6: 2, 8: 0, 10: 0, 12: 0, 13: 0}
"""Bytes of one element by kind of object: data, texts; 0 for elements that are references."""


class PlistDamaged(ValueError):
    """The bytes are not a property list."""


def load_plist(data: bytes) -> object:
    """Parse a binary or XML property list."""
    try:
        if data.startswith(_MAGIC):
            check_binary(data)
        return plistlib.loads(data)
    except _ESCAPING as error:
        cause = " ".join(str(error).split())[:200]
        raise PlistDamaged(cause or type(error).__name__) from error


def check_binary(data: bytes) -> None:
    """Raise ValueError if the objects of a binary property list are too many, or overlap.

    Damage of other kinds is left to the parser.
    """
    if len(data) < _TRAILER.size:
        raise PlistDamaged("the property list is cut short")
    width, reference, count, _, table = _TRAILER.unpack_from(data, len(data) - _TRAILER.size)
    if count > OBJECTS:
        raise PlistDamaged(f"more than {OBJECTS} objects in a property list")
    if not 1 <= width <= 8 or table + count * width > len(data):
        raise PlistDamaged("the property list is cut short")
    total = 0
    for start in range(table, table + count * width, width):
        at = int.from_bytes(data[start : start + width], "big")
        total += _size(data, at, reference)
        if total > len(data):
            raise PlistDamaged("the objects of the property list overlap")


def _size(data: bytes, at: int, reference: int) -> int:
    """The bytes of the object at this position."""
    if at >= len(data):
        raise PlistDamaged("an object lies outside the property list")
    kind, low = data[at] >> 4, data[at] & 0x0F
    if kind not in _UNITS:
        return 1 if kind == 0 else 1 + (1 << low)
    count, head = low, 1
    if low == 0x0F:
        width = 1 << (data[at + 1] & 3) if at + 1 < len(data) else 1
        count, head = int.from_bytes(data[at + 2 : at + 2 + width], "big"), 2 + width
    return head + count * (_UNITS[kind] or reference)
