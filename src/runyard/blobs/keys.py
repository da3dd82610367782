"""Which texts are keys of objects.

A key becomes a path below a directory, a path of a URL and a name in a bucket. So it is made of what means itself in
all three: lower-case letters, digits, `.`, `_`, `=` and `-`, in segments parted by `/`. No segment is empty or begins
with a dot. There are no capitals, since a Mac's file system does not tell `A` from `a`.
"""

import re

from runyard.blobs.errors import BadKey

LONGEST = 512
_KEY = re.compile(r"[a-z0-9_=-][a-z0-9._=-]{0,199}(?:/[a-z0-9_=-][a-z0-9._=-]{0,199})*", re.ASCII)


def is_key(text: str) -> bool:
    """Whether an object may have this key."""
    return len(text) <= LONGEST and _KEY.fullmatch(text) is not None


def check_key(text: str) -> str:
    """The key; raises `BadKey`."""
    if not is_key(text):
        raise BadKey(
            "not a key: segments of a-z, 0-9, '.', '_', '=', '-' that do not begin with a dot"
        )
    return text


def check_prefix(text: str) -> str:
    """What keys may begin with, whole segments only; empty is every key. Raises `BadKey`."""
    return text if not text else check_key(text.removesuffix("/"))
