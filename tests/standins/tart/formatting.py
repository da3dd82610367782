"""tart's output: tables, and JSON as Swift's encoder prints it, in both generations.

Swift puts a space before the colon, escapes slashes, orders keys as it likes and prints an empty list as `[`, a blank
line and `]`. Before 2.31 an image had `SizeOnDisk` and no `Accessed`.
"""

import json
import time

from tests.standins.tart.errors import say
from tests.standins.tart.knobs import Knobs
from tests.standins.tart.storage import Vm

GB = 1000**3
Row = dict[str, object]


def listed(vm: Vm, source: str) -> Row:
    """One element of `tart list`."""
    state = vm.state
    return {
        "Size": vm.allocated() // GB,
        "Name": vm.name,
        "Running": state == "running",
        "Disk": vm.logical() // GB,
        "Source": source,
        "State": state,
        "Accessed": timestamp(vm.accessed()),
    }


def timestamp(moment: float) -> str:
    """A time as Swift encodes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))


def described(vm: Vm) -> Row:
    """The answer of `tart get`: its `Size` is a string."""
    config = vm.config()
    display = config["display"]
    assert isinstance(display, dict)
    state = vm.state
    return {
        "OS": config["os"],
        "CPU": config["cpuCount"],
        "Memory": int(str(config["memorySize"])) >> 20,
        "Disk": vm.logical() // GB,
        "DiskFormat": config.get("diskFormat", "raw"),
        "Size": f"{vm.allocated() / GB:.3f}",
        "Display": f"{display['width']}x{display['height']}{display.get('unit', '')}",
        "Running": state == "running",
        "State": state,
    }


def old(row: Row) -> Row:
    """An element as versions before 2.31 printed it."""
    kept = {key: value for key, value in row.items() if key not in {"Accessed", "DiskFormat"}}
    if "Source" in kept:
        kept["SizeOnDisk"] = kept["Size"]
    return kept


def swift(value: list[Row] | Row) -> str:
    """JSON as Swift prints it."""
    if value == []:
        return "[\n\n]"
    text = json.dumps(value, indent=2, separators=(",", " : "), ensure_ascii=False)
    return text.replace("/", "\\/")


def print_json(knobs: Knobs, value: list[Row] | Row) -> None:
    """Print JSON, or what the knobs make of it."""
    if knobs.on("old-json"):
        value = [old(row) for row in value] if isinstance(value, list) else old(value)
    text = swift(value)
    broken = knobs.take("bad-json")
    if broken == "cut":
        text = text[: len(text) // 2]
    elif broken == "empty":
        return
    elif broken == "types":
        text = text.replace(" : true", ' : "yes"').replace(" : false", ' : "no"')
    elif broken is not None:
        text = broken
    say(text)


def print_table(rows: list[Row], columns: list[str]) -> None:
    """Print a table with a heading, as tart does for a terminal."""
    cells = [columns, *([str(row[column]) for column in columns] for row in rows)]
    widths = [max(len(line[number]) for line in cells) for number in range(len(columns))]
    for line in cells:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        say(" ".join(padded).rstrip())
