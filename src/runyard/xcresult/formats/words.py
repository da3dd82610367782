"""Formats durations, locations, counts and names of runs as text.

Invariant: text of a bundle is not changed, only cut; the caller makes it safe for a terminal, XML or Markdown.
"""

from math import isfinite

from runyard.xcresult.formats.sources import Sources
from runyard.xcresult.reader.aggregation import RETRY
from runyard.xcresult.reader.model import Case, Device, Failure, Place, Repetition, Run
from runyard.xcresult.reader.report import repetition_name

LONG = 64 * 1024
"""Largest number of characters of a message in any format."""
BUILD_FAILED = "The build failed and recorded no error."
TOP_LEVEL = "Top-level Tests"
"""Apple's name for the suite of functions without a suite."""


def duration_text(seconds: float | None) -> str:
    """Format seconds: `0.0031` is `3.1 ms`, `75.2` is `1 min 15 s`; empty if unknown or not a valid duration."""
    if seconds is None or not isfinite(seconds):
        return ""
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms" if seconds < 0.0995 else f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def count(number: int, one: str, many: str = "") -> str:
    """`1 test`, `2 tests`."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def cut(text: str, limit: int = LONG) -> str:
    """The text, or its beginning with a note of how much is missing."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… ({len(text) - limit} more characters)"


def line_of(text: str, limit: int = 300) -> str:
    """The text on one line."""
    return cut(" ".join(text.split()), limit)


def base_name(path: str) -> str:
    """The last component of a path of any operating system."""
    return path.replace("\\", "/").rstrip("/").rpartition("/")[2]


def short_place(place: Place | None) -> str:
    """`File.swift:12`; empty if unknown."""
    if place is None or not place.path:
        return ""
    return f"{base_name(place.path)}:{place.line}" if place.line else base_name(place.path)


def long_place(place: Place | None, sources: Sources = Sources()) -> str:  # noqa: B008  (frozen)
    """`Tests/File.swift:12`, with the path in the repository if it is there."""
    if place is None or not place.path:
        return ""
    path = sources.shown(place.path)
    return f"{path}:{place.line}" if place.line else path


def located_message(failure: Failure) -> str:
    """Place and message, as Apple's tool writes them: `File.swift:12: message`."""
    place = short_place(failure.place)
    return f"{place}: {failure.message}" if place else failure.message


def device(one: Device) -> str:
    """`iPhone 17 (iOS Simulator 26.0)`."""
    system = " ".join(part for part in (one.platform, one.os_version) if part)
    if one.name and system:
        return f"{one.name} ({system})"
    return one.name or system or "an unknown device"


def repetition(one: Repetition | None) -> str:
    """`First Run`, `Retry 1`, `Repetition 3 of 5`; empty for a run that was not repeated."""
    if one is None:
        return ""
    if one.mode not in {"", RETRY}:
        return (
            f"Repetition {one.iteration} of {one.total}"
            if one.total
            else f"Repetition {one.iteration}"
        )
    return repetition_name(one.iteration)


def path_of(case: Case) -> str:
    """`Target / Suite / test()`."""
    return " / ".join((case.target, *case.suites, case.name))


def shown_failures(run: Run) -> tuple[Failure, ...]:
    """The failures to show for a run: the top-level ones, or else all."""
    top = tuple(failure for failure in run.failures if failure.top_level)
    return top or run.failures
