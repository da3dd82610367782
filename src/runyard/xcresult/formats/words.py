"""How a result is spoken of: durations, places, counts, the names of runs.

Invariant: what a bundle says is passed on as it is, or cut; making it fit for a terminal, for XML or for
Markdown is the business of whoever writes there.
"""

from math import isfinite

from runyard.xcresult.reader.aggregation import RETRY
from runyard.xcresult.reader.model import Case, Device, Failure, Place, Repetition, Run
from runyard.xcresult.reader.report import repetition_name

LONG = 64 * 1024
"""Characters of one message that any format repeats."""
TOP_LEVEL = "Top-level Tests"
"""What Apple calls the suite of functions that are in none."""


def lasted(seconds: float | None) -> str:
    """`0.0031` is `3.1 ms`, `75.2` is `1 min 15 s`; nothing when it is not known, or cannot be."""
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
    """The file's own name, of a path of whatever machine."""
    return path.replace("\\", "/").rstrip("/").rpartition("/")[2]


def short_place(place: Place | None) -> str:
    """`File.swift:12`; empty when it is not known."""
    if place is None or not place.path:
        return ""
    return f"{base_name(place.path)}:{place.line}" if place.line else base_name(place.path)


def long_place(place: Place | None, root: str = "") -> str:
    """`Tests/File.swift:12`, the path below `root` when it lies there."""
    if place is None or not place.path:
        return ""
    path = below(place.path, root)
    return f"{path}:{place.line}" if place.line else path


def below(path: str, root: str) -> str:
    """The path as seen from `root`, when it lies below it; else the path itself."""
    base = root.rstrip("/")
    if base and path.startswith(base + "/"):
        return path[len(base) + 1 :].lstrip("/")
    return path


def told(failure: Failure) -> str:
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
    """The failures that speak for a run: the top-level ones, or whatever there is."""
    top = tuple(failure for failure in run.failures if failure.top_level)
    return top or run.failures
