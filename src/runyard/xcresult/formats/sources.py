"""Maps the paths of a bundle, which are those of the machine that ran the tests, to files of the repository.

A file is searched by its path below `root`, and then by the longest end of its path that is a file of the repository:
`/Users/ci/checkout/Tests/CartTests.swift` is `Tests/CartTests.swift`, wherever the checkout was.

Invariant: a mapped path is relative and has no `..`, so a link made of it stays below its base.
"""

import posixpath
from collections.abc import Iterator
from unicodedata import normalize
from urllib.parse import quote

import msgspec

from runyard.xcresult.reader.model import Place

_DEEP = 100
"""Components of a path that are compared; more than any repository has."""
_URL = ":/?#[]@!$&*+,;=%~"
"""Characters that stay in a base URL. Parentheses, quotes and brackets would end a link."""


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """The sources of the tests."""

    root: str = ""
    """Their directory on the machine that ran the tests; empty if unknown."""
    files: frozenset[str] = frozenset()
    """The files of the repository, relative to its directory; empty if unknown."""
    url: str = ""
    """Base of links to them; empty: no links."""

    def mapped(self, path: str) -> str | None:
        """The path in the repository; None if it is not there."""
        clean = posixpath.normpath(path) if path else ""
        if self.files:
            # macOS may write an accent as a character of its own; git writes the letter that has it.
            spellings = dict.fromkeys((clean, normalize("NFC", clean)))
            ends = (end for each in spellings for end in _ends(each, _below(each, self.root)))
            return next((end for end in ends if end in self.files), None)
        inside = _below(clean, self.root)
        if inside is not None:
            return inside
        return None if clean.startswith(("/", "..")) or not clean else clean

    def shown(self, path: str) -> str:
        """The path in the repository, or else below `root`, or else the path itself."""
        return self.mapped(path) or _below(posixpath.normpath(path), self.root) or path

    def link(self, place: Place | None) -> str:
        """The URL of the line, as GitHub, GitLab and Gitea have them; empty if there is none."""
        path = self.mapped(place.path) if place is not None and self.url else None
        if path is None or place is None:
            return ""
        line = f"#L{place.line}" if place.line else ""
        return f"{base_url(self.url)}/{quote(path, errors='replace')}{line}"


def base_url(url: str) -> str:
    """A URL to append a path to, safe inside a link of Markdown and inside an attribute of HTML."""
    return quote(url.rstrip("/"), safe=_URL, errors="replace")


def _ends(path: str, inside: str | None) -> Iterator[str]:
    """What may be the file: the path below the root, then the longest end first."""
    if inside is not None:
        yield inside
    parts = path.split("/")[-_DEEP:]
    yield from ("/".join(parts[start:]) for start in range(len(parts)))


def _below(path: str, root: str) -> str | None:
    base = posixpath.normpath(root).rstrip("/") if root else None
    if base is None or not path.startswith(base + "/"):
        return None
    inside = path[len(base) :].lstrip("/")
    return inside if inside and inside.split("/")[0] != ".." else None
