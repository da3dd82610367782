"""Selects the tests and attachments to export, and finds names that select nothing.

A name is that of a test (`Suite/test()`), of a suite or of a target, as `xcodebuild -only-testing` has them: with or
without the target, with or without the parentheses of a function without arguments.
"""

import difflib
from collections.abc import Iterable, Iterator

import msgspec

from runyard.xcresult.reader.model import Attachment, Case

_SIMILAR = 3
_COMPARED = 5_000
"""Largest number of names that are compared letter by letter."""


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """Which attachments to export."""

    only_failures: bool = False
    tests: tuple[str, ...] = ()
    """Identifiers of tests, or of suites (the part before a slash). Empty: all tests."""
    true_extensions: bool = False
    """Name HEIC pictures `.heic`, even if the bundle names them otherwise."""

    def case(self, case: Case) -> bool:
        """Whether this test is selected."""
        return not self.tests or any(_selects(one, case) for one in self.tests)

    def attachment(self, attachment: Attachment) -> bool:
        """Whether this attachment is selected, if its test is."""
        return attachment.on_failure or not self.only_failures


def unmatched(chosen: Chosen, cases: Iterable[Case]) -> tuple[str, ...]:
    """The names that select no test."""
    left = dict.fromkeys(chosen.tests)
    for case in cases:
        for name in [one for one in left if _selects(one, case)]:
            del left[name]
    return tuple(left)


def similar(name: str, cases: Iterable[Case]) -> tuple[str, ...]:
    """The identifiers that resemble a name the most: those that contain it, or else those with similar letters."""
    known = list(dict.fromkeys(f"{case.target}/{case.identifier}" for case in cases))
    wanted = name.strip("/").casefold()
    inside = [one for one in known if wanted and wanted in one.casefold()]
    if inside:
        return tuple(inside[:_SIMILAR])
    ends = {one.rpartition("/")[2]: one for one in known[:_COMPARED]}
    close = difflib.get_close_matches(name.rpartition("/")[2], ends, _SIMILAR)
    return tuple(ends[one] for one in close)


def _selects(selected: str, case: Case) -> bool:
    inside = selected.rstrip("/") + "/"
    return any(name == selected or name.startswith(inside) for name in _names(case))


def _names(case: Case) -> Iterator[str]:
    for name in (case.identifier, f"{case.target}/{case.identifier}"):
        yield name
        yield name.removesuffix("()")
    yield from (name for name in (case.identifier_url, case.name) if name)
