"""Builds response headers that make a browser save a file and never display it.

A file that a test attached may be an HTML page with a script. So the response has a type that no browser displays or
guesses (`nosniff`), makes the browser save it, and forbids scripts in case something displays it all the same.
"""

import unicodedata
from urllib.parse import quote

from runyard.http.messages import Pairs

_LONGEST = 150
_BAD = frozenset("/\\:*?\"<>|%;'")
_UNSEEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))  # not printable, or reverses text


def safe_name(name: str) -> str:
    """Reduce a name to a file name that every system accepts: no path, no invisible character, no leading dot."""
    cleaned = "".join(
        "_" if each in _BAD or unicodedata.category(each) in _UNSEEN else each
        for each in unicodedata.normalize("NFC", name)
    )
    stem, dot, ending = cleaned.rpartition(".")
    if dot and len(ending) < 16:
        cleaned = stem[: _LONGEST - len(ending) - 1] + dot + ending
    return cleaned[:_LONGEST].strip(" .") or "download"


def headers(name: str) -> Pairs:
    """The headers of a response with this file."""
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
