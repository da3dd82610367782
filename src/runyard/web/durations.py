"""Formats durations, times and counts for the dashboard."""

from runyard.wire.instants import to_rfc3339

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def format_duration(seconds: float | None) -> str:
    """Format `90.4` as `1 min 30 s`: the two largest units; None is a dash."""
    if seconds is None:
        return "–"
    if seconds < 1:
        return "under 1 s"
    left = int(seconds)
    parts: list[str] = []
    for size, unit in _UNITS:
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(filter(None, parts))


def format_age(moment: float | None, now: float) -> str:
    """Format the age of a moment in its largest unit: `3 min`. The page's script uses the same format."""
    if moment is None:
        return "–"
    seconds = max(0, int(now - moment))
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return "now"


def format_time(moment: float) -> str:
    """Format a moment as RFC 3339, for the `datetime` attribute and the tooltip."""
    return to_rfc3339(moment)


def pluralize(number: int, one: str, many: str = "") -> str:
    """Format a count with its noun: `1 host`, `2 hosts`."""
    return f"{number} {one if number == 1 else many or one + 's'}"
