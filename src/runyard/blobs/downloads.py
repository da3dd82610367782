"""How strangers' files are given out: always to be saved, never to be shown.

What a test left may be a page with a script in it. So a browser is told that it is no page (its type says nothing, and
may not be guessed), that it is to be saved, and, should something show it all the same, that it may do nothing there.
"""

import unicodedata
from urllib.parse import quote

from runyard.http.messages import Pairs

_LONGEST = 150
_BAD = frozenset("/\\:*?\"<>|%;'")
_UNSEEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))  # also what turns text around


def safe_name(name: str) -> str:
    """A name to save under that is one, on every system: no path, nothing unseen, no leading dot."""
    kept = "".join(
        "_" if each in _BAD or unicodedata.category(each) in _UNSEEN else each
        for each in unicodedata.normalize("NFC", name)
    )
    stem, dot, ending = kept.rpartition(".")
    if dot and len(ending) < 16:
        kept = stem[: _LONGEST - len(ending) - 1] + dot + ending
    return kept[:_LONGEST].strip(" .") or "download"


def headers(name: str) -> Pairs:
    """What goes with such a file."""
    safe = safe_name(name)
    plain = "".join(each if " " <= each < "\x7f" else "_" for each in safe)
    return (
        ("content-type", "application/octet-stream"),
        (
            "content-disposition",
            f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(safe, safe='')}",
        ),
        ("x-content-type-options", "nosniff"),
        ("content-security-policy", "sandbox; default-src 'none'"),
        ("cross-origin-resource-policy", "same-origin"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "private, no-store"),
    )
