"""Writes code coverage: the report (a keyed archive) and the archive of line counts.

The figures are made up and agree with each other: each file has two functions, and a file's, a target's and
the whole's totals are sums of them.
"""

import plistlib
import struct

import msgspec
from tests.xcresult.writer.storing import Entry, Store
from tests.xcresult.writer.texts import source_file

TARGET = "Shop.app"
LINES = 20
EXECUTABLE = 0x8000


class File(msgspec.Struct, frozen=True):
    """A source file with the count of each line; None for a line that cannot be executed."""

    path: str
    counts: tuple[int | None, ...]

    @property
    def name(self) -> str:
        """Without its directories."""
        return self.path.rpartition("/")[2]

    @property
    def executable(self) -> int:
        """Number of executable lines."""
        return sum(count is not None for count in self.counts)

    @property
    def covered(self) -> int:
        """Number of executed lines."""
        return sum(bool(count) for count in self.counts)


def files(count: int) -> tuple[File, ...]:
    """Generate files; every third line cannot be executed, some others were not executed."""
    return tuple(
        File(
            source_file("Shop", f"Source{number}"),
            tuple(None if line % 3 == 0 else (line + number) % 4 for line in range(LINES)),
        )
        for number in range(count)
    )


def write_report(store: Store, sources: tuple[File, ...]) -> str:
    """The report: totals by target, file and function."""
    archive = _Archive()
    listed = [archive.instance("XCTHCodeCoverageFile", **_file(each)) for each in sources]
    totals = _totals(sources)
    target = archive.instance(
        "XCTHCodeCoverageTarget",
        name=TARGET,
        buildableIdentifier=f"{TARGET}:primary",
        productPath=f"/Users/builder/Build/Products/{TARGET}/Shop",
        sourceFiles=archive.array(listed),
        **totals,
    )
    root = archive.instance(
        "XCTHCodeCoverage", buildableCoverageObjects=archive.array([target]), version=2, **totals
    )
    return store.put(archive.data(root))


def write_archive(store: Store, sources: tuple[File, ...]) -> str:
    """The archive: line counts by file, and ranges inside of lines."""
    coverage = bytearray()
    offsets = []
    for each in sources:
        offsets.append(len(coverage))
        coverage += _runs(each)
    metadata = plistlib.dumps({"formatVersion": 1})
    names = {
        "Coverage": bytes(coverage),
        "Index": _index(sources, offsets),
        "Metadata.plist": metadata,
    }
    return store.put_directory({name: Entry(store.put(data)) for name, data in names.items()})


def _totals(sources: tuple[File, ...]) -> dict[str, int]:
    return {
        "coveredLines": sum(each.covered for each in sources),
        "executableLines": sum(each.executable for each in sources),
    }


def _file(source: File) -> dict[str, object]:
    return {
        "name": source.name,
        "documentLocation": source.path,
        "functions": _functions(source),
        **_totals((source,)),
    }


def _functions(source: File) -> bytes:
    """The upper and the lower half of the file."""
    half = len(source.counts) // 2
    records, names = b"", b""
    for number, (begin, end) in enumerate(((0, half), (half, len(source.counts)))):
        part = File(source.path, source.counts[begin:end])
        ran = max((count or 0 for count in part.counts), default=0)
        lines = (part.covered, part.executable, begin + 1, part.executable)
        records += struct.pack("<IIIIQ", *lines, ran)
        names += f"{source.name.removesuffix('.swift')}.part{number}()".encode() + b"\0"
    return struct.pack("<I", 2) + records + names


def _runs(source: File) -> bytes:
    """Encode runs of lines with the same count, then one range inside the second line."""
    runs: list[tuple[int | None, int]] = []
    for count in source.counts:
        if runs and runs[-1][0] == count:
            runs[-1] = (count, runs[-1][1] + 1)
        else:
            runs.append((count, 1))
    packed = b"".join(
        struct.pack(
            "<Q", (count or 0) | ((length - 1) | (EXECUTABLE if count is not None else 0)) << 48
        )
        for count, length in runs
    )
    inside = struct.pack("<IIIQ", 2, 5, 12, source.counts[1] or 0)
    return struct.pack("<I", len(runs)) + packed + struct.pack("<I", 1) + inside


def _index(sources: tuple[File, ...], offsets: list[int]) -> bytes:
    names, places = b"", []
    begin = 4 + 16 * len(sources)
    for source in sources:
        places.append(begin + len(names))
        path = source.path.encode()
        names += struct.pack("<H", len(path)) + path
    pairs = zip(places, offsets, strict=True)
    return (
        struct.pack("<I", len(sources))
        + b"".join(struct.pack("<QQ", *pair) for pair in pairs)
        + names
    )


class _Archive:
    """Builds what NSKeyedArchiver writes: a list of objects that reference each other by index."""

    def __init__(self) -> None:
        self._objects: list[object] = ["$null"]
        self._classes: dict[str, plistlib.UID] = {}

    def instance(self, name: str, /, **fields: object) -> plistlib.UID:
        """Numbers are stored in place, everything else by reference."""
        kept = {key: self._kept(value) for key, value in fields.items()}
        return self._add({"$class": self._class(name), **kept})

    def _kept(self, value: object) -> object:
        if isinstance(value, int | plistlib.UID):
            return value
        if isinstance(value, bytes):
            value = {"$class": self._class("NSMutableData"), "NS.data": value}
        return self._add(value)

    def array(self, members: list[plistlib.UID]) -> plistlib.UID:
        return self._add({"$class": self._class("NSArray"), "NS.objects": members})

    def data(self, root: plistlib.UID) -> bytes:
        whole = {
            "$archiver": "NSKeyedArchiver",
            "$version": 100_000,
            "$top": {"root": root},
            "$objects": self._objects,
        }
        return plistlib.dumps(whole, fmt=plistlib.FMT_BINARY)

    def _class(self, name: str) -> plistlib.UID:
        if name not in self._classes:
            self._classes[name] = self._add({"$classname": name, "$classes": [name, "NSObject"]})
        return self._classes[name]

    def _add(self, value: object) -> plistlib.UID:
        self._objects.append(value)
        return plistlib.UID(len(self._objects) - 1)
