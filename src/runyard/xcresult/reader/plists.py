"""Property lists of strangers: the standard library reads them, and lets all sorts of exceptions escape."""

import plistlib
from xml.parsers.expat import ExpatError

_ESCAPING = (
    ExpatError,
    ValueError,  # plistlib's own is one
    TypeError,
    LookupError,
    AttributeError,
    OverflowError,
    RecursionError,
)


class PlistDamaged(ValueError):
    """The bytes are no property list."""


def load_plist(data: bytes) -> object:
    """What a property list says, in either of its formats."""
    try:
        return plistlib.loads(data)
    except _ESCAPING as error:
        cause = " ".join(str(error).split())[:200]
        raise PlistDamaged(cause or type(error).__name__) from error
