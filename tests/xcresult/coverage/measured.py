"""Builds coverage as Xcode writes it: reports, archives, and a store that contains them."""

import plistlib
import struct
from collections.abc import Sequence

from tests.xcresult.memory import Memory

from runyard.xcresult.reader.model import Action

UID = plistlib.UID
EXECUTABLE = 0x8000


def functions(*records: tuple[str, int, int, int, int]) -> bytes:
    """(name, line, covered, executable, count) as the report packs them."""
    packed = b"".join(
        struct.pack("<IIIIQ", covered, executable, line, executable, count)
        for _, line, covered, executable, count in records
    )
    names = b"".join(name.encode() + b"\0" for name, *_ in records)
    return struct.pack("<I", len(records)) + packed + names


def keyed(objects: list[object], root: object = UID(1)) -> bytes:
    """A keyed archive of these objects."""
    archive = {
        "$version": 100000,
        "$archiver": "NSKeyedArchiver",
        "$top": {"root": root},
        "$objects": objects,
    }
    return plistlib.dumps(archive, fmt=plistlib.FMT_BINARY, sort_keys=False)


class Report:
    """Builds a report target by target."""

    def __init__(self) -> None:
        self.objects: list[object] = ["$null", {}]
        self.targets: list[UID] = []
        self.covered = self.executable = 0

    def add(self, value: object) -> UID:
        self.objects.append(value)
        return UID(len(self.objects) - 1)

    def array(self, items: Sequence[object]) -> UID:
        return self.add({"NS.objects": list(items)})

    def file(self, path: str, packed: bytes, covered: int, executable: int) -> UID:
        return self.add(
            {
                "name": self.add(path.rpartition("/")[2]),
                "documentLocation": self.add(path),
                "coveredLines": covered,
                "executableLines": executable,
                "functions": self.add({"NS.data": packed}),
            }
        )

    def target(self, name: str, files: Sequence[UID], covered: int, executable: int) -> None:
        self.covered += covered
        self.executable += executable
        self.targets.append(
            self.add(
                {
                    "name": self.add(name),
                    "buildableIdentifier": self.add(f"{name}:primary"),
                    "productPath": self.add(f"/build/{name}"),
                    "coveredLines": covered,
                    "executableLines": executable,
                    "sourceFiles": self.array(files),
                }
            )
        )

    def data(self, complaints: Sequence[str] = ()) -> bytes:
        self.objects[1] = {
            "name": self.add("all"),
            "coveredLines": self.covered,
            "executableLines": self.executable,
            "buildableCoverageObjects": self.array(self.targets),
            "creationErrors": self.array([self.add(text) for text in complaints]),
        }
        return keyed(self.objects)


def run(count: int | None, length: int = 1) -> int:
    """A run of lines; None for lines that cannot be executed."""
    flag = EXECUTABLE if count is not None else 0
    return ((flag | (length - 1)) << 48) | (count or 0)


def counts(runs: Sequence[int], ranges: Sequence[tuple[int, int, int, int]] = ()) -> bytes:
    """One file's part of `Coverage`."""
    return (
        struct.pack(f"<I{len(runs)}Q", len(runs), *runs)
        + struct.pack("<I", len(ranges))
        + b"".join(struct.pack("<IIIQ", *each) for each in ranges)
    )


def archive(files: dict[str, bytes]) -> tuple[bytes, bytes]:
    """`Index` and `Coverage` of these files."""
    header = 4 + 16 * len(files)
    entries, names, data = b"", b"", b""
    for path, part in files.items():
        entries += struct.pack("<QQ", header + len(names), len(data))
        names += struct.pack("<H", len(path.encode())) + path.encode()
        data += part
    return struct.pack("<I", len(files)) + entries + names, data


class Store(Memory):
    """Objects in dictionaries, with any text as id."""

    def measured(
        self, name: str, report: bytes | None, lines: tuple[bytes, bytes] | None
    ) -> Action:
        """Build an action with this coverage."""
        if report is not None:
            self.payloads[f"{name}-report"] = report
        if lines is not None:
            self.payloads[f"{name}-archive"] = (
                b'[{"name":"Coverage","type":1},{"name":"Index","type":1},'
                b'{"name":"Metadata.plist","type":1}]'
            )
            self.payloads[f"{name}-index"], self.payloads[f"{name}-counts"] = lines
            self.references[f"{name}-archive"] = (f"{name}-counts", f"{name}-index", "metadata")
        return Action(
            coverage_report_id="" if report is None else f"{name}-report",
            coverage_archive_id="" if lines is None else f"{name}-archive",
        )
