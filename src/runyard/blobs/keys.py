"""Decides which texts are valid keys of objects.

A key becomes a path below a directory, a path of a URL and a name in a bucket. So it consists of characters that need
no escaping in any of them: lower-case letters, digits, `.`, `_`, `=` and `-`, in segments separated by `/`. No segment
is empty or begins with a dot. Capitals are excluded because a Mac's file system treats `A` and `a` as the same name.
"""

import re

from runyard.blobs.errors import BadKey

LONGEST = 512
_KEY = re.compile(r"[a-z0-9_=-][a-z0-9._=-]{0,199}(?:/[a-z0-9_=-][a-z0-9._=-]{0,199})*", re.ASCII)


def is_key(text: str) -> bool:
    """Whether the text is a valid key."""
    return len(text) <= LONGEST and _KEY.fullmatch(text) is not None


def check_key(text: str) -> str:
    """Return the key if it is valid; raises `BadKey`."""
    if not is_key(text):
        raise BadKey(
            "not a valid key. Use segments of a-z, 0-9, '.', '_', '=', '-' that do not begin with a dot"
        )
    return text


def check_prefix(text: str) -> str:
    """Return a prefix of whole segments if it is valid; empty matches every key. Raises `BadKey`."""
    return text if not text else check_key(text.removesuffix("/"))
