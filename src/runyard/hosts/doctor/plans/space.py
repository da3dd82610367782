"""Reads `df -P -k`: the same form on macOS and Linux."""

import re

from runyard.hosts.doctor.plans.findings import Output

_LINE = re.compile(r"\s(\d{1,18})\s+(-?\d{1,18})\s+(-?\d{1,18})\s+\d{1,3}%\s+/", re.ASCII)


def free_bytes(output: Output) -> int | None:
    """What the first file system has left; None if the text is not `df`'s."""
    lines = output.out.splitlines()[1:]
    found = _LINE.search(lines[0]) if lines and output.code == 0 else None
    return max(0, int(found[3])) * 1024 if found else None
