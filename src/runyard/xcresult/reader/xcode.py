"""Finds the version of Xcode: it is in the first line of a test session's log.

Nothing else in a bundle has it. The log is in the diagnostics tree, which is most of a large bundle; so a few
directories are searched and one log is read to the end of its first line. If the tree was removed or is damaged, the
version is unknown, without a warning: it is not part of the test result.
"""

import re

import msgspec

from runyard.xcresult.errors import XcresultError
from runyard.xcresult.reader.objects import ObjectProblem, Objects

VISITS = 24
"""Largest number of directories that are searched."""
LISTING = 1 << 20
"""Largest listing that is searched, in bytes."""

_VERSION = re.compile(rb"Xcode version: ([^\n]{1,64})\n")


class Entry(msgspec.Struct, frozen=True):
    """One line of a directory listing; its i-th entry is the i-th reference."""

    name: str
    type: int


def xcode_version(objects: Objects, diagnostics_id: str) -> str:
    """Return the version, for example `26.0.1 (17A400)`; empty if unknown."""
    waiting = [diagnostics_id] if diagnostics_id else []
    for _ in range(VISITS):
        if not waiting:
            break
        found: list[str] = []
        for name, object_id, is_directory in _listing(objects, waiting.pop()):
            if is_directory:
                found.append(object_id)
            elif name.startswith("Session-") and (version := _first_line(objects, object_id)):
                return version
        waiting.extend(reversed(found[:VISITS]))
    return ""


def _listing(objects: Objects, directory: str) -> list[tuple[str, str, bool]]:
    try:
        if not objects.has(directory):
            return []
        data = next(objects.stream(directory), b"")
        entries = msgspec.json.decode(data, type=list[Entry]) if len(data) < LISTING else []
        references = objects.refs(directory)
    except (ObjectProblem, XcresultError, msgspec.DecodeError, UnicodeDecodeError):
        return []
    return [
        (entry.name, object_id, entry.type == 2)
        for entry, object_id in zip(entries, references, strict=False)
    ]


def _first_line(objects: Objects, object_id: str) -> str:
    try:
        head = next(objects.stream(object_id), b"") if objects.has(object_id) else b""
    except (ObjectProblem, XcresultError):
        return ""
    found = _VERSION.match(head)
    return found[1].decode("utf-8", "replace") if found else ""
