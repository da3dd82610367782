"""Durations and moments in words, for people."""

from runyard.wire.instants import to_rfc3339

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def lasted(seconds: float | None) -> str:
    """`90.4` is `1 min 30 s`: the two largest units, nothing after that. None is a dash."""
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


def ago(moment: float | None, now: float) -> str:
    """How long ago, coarsely: `3 min`. The page counts on in the same words."""
    if moment is None:
        return "–"
    seconds = max(0, int(now - moment))
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return "now"


def stamp(moment: float) -> str:
    """The moment itself, for machines and for the pointer that rests on it."""
    return to_rfc3339(moment)


def count(number: int, one: str, many: str = "") -> str:
    """`1 host`, `2 hosts`."""
    return f"{number} {one if number == 1 else many or one + 's'}"
