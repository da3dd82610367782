"""Reads untrusted property lists: the standard library parses them, and may raise any exception."""

import plistlib
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


class PlistDamaged(ValueError):
    """The bytes are not a property list."""


def load_plist(data: bytes) -> object:
    """Parse a binary or XML property list."""
    try:
        return plistlib.loads(data)
    except _ESCAPING as error:
        cause = " ".join(str(error).split())[:200]
        raise PlistDamaged(cause or type(error).__name__) from error
