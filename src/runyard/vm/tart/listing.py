"""Reads what `tart list` and `tart get` print. Pure.

There are two generations: before tart 2.31 an element had `SizeOnDisk` and no `Accessed`. Sizes are gigabytes: whole
numbers in `list`, and a text with three decimals in `get`. Keys that are not known are ignored, and Swift's formatting
(a blank line in an empty list, escaped slashes) is plain JSON.
"""

from datetime import datetime
from typing import Any

import msgspec

from runyard.vm.contract import DriverFailed

GB = 1_000_000_000
RUNNING = "running"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One VM or image of `tart list`."""

    name: str
    local: bool  # a VM of this host; otherwise an image of a registry
    running: bool = False
    bytes: int = 0  # on disk
    accessed: float | None = None


class _Listed(msgspec.Struct, frozen=True):
    Name: str
    Source: str
    Running: bool | None = None
    State: str = ""
    Size: Any = None
    SizeOnDisk: Any = None
    Accessed: Any = None


_list = msgspec.json.Decoder(list[_Listed])


def parse_list(output: bytes) -> tuple[Entry, ...]:
    """Every VM and image; raises `DriverFailed` when the output is something else."""
    try:
        return tuple(map(_entry, _list.decode(output)))
    except (msgspec.MsgspecError, ValueError) as error:
        raise DriverFailed(
            f"tart list printed something that is not its list ({error}): is tart 2.20 or later installed?"
        ) from error


def _entry(listed: _Listed) -> Entry:
    if listed.Running is None and not listed.State:
        raise ValueError(f"{listed.Name} has neither Running nor State")
    size = listed.Size if listed.SizeOnDisk is None else listed.SizeOnDisk
    return Entry(
        name=listed.Name,
        local=listed.Source.lower() == "local",
        running=listed.State == RUNNING if listed.State else bool(listed.Running),
        bytes=_bytes(size),
        accessed=_time(listed.Accessed),
    )


def _bytes(size: object) -> int:
    """Gigabytes as a number or as a text; 0 when unknown."""
    try:
        return max(0, int(float(size) * GB)) if isinstance(size, int | float | str) else 0
    except (ValueError, OverflowError):
        return 0


def _time(text: object) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp() if isinstance(text, str) else None
    except (ValueError, OverflowError):
        return None
