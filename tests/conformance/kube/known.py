"""The list of known differences, read from the table in docs/embedded-kubernetes.md.

A row names the request and the place in its answer by patterns, so that the page and the test cannot disagree.
"""

import re
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec
from tests.conformance.kube.replay import Difference

PAGE = Path(__file__).parents[3] / "docs" / "embedded-kubernetes.md"
MOST = 1  # the list may become shorter; to make it longer, raise this number
_ROW = re.compile(
    r"^\| (?P<id>[a-z][a-z-]*) \| `(?P<request>[^`]+)` \| `(?P<path>[^`]+)` \|", re.MULTILINE
)


class Known(msgspec.Struct, frozen=True):
    """One known difference."""

    id: str
    request: str
    path: str

    def covers(self, found: Difference) -> bool:
        return fnmatchcase(found.request, self.request) and fnmatchcase(
            found.path.replace("[]", ""), self.path
        )


def read(page: Path = PAGE) -> tuple[Known, ...]:
    """The rows of the table, in its order."""
    return tuple(
        Known(row["id"], row["request"], row["path"])
        for row in _ROW.finditer(page.read_text(encoding="utf-8"))
    )
