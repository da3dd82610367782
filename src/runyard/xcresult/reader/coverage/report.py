"""Reads the coverage report: a keyed archive (NSKeyedArchiver) in a binary property list.

A keyed archive is a flat list of objects that point at each other by index. Only the path that is
needed is followed (report, targets, files, functions), by the names of fields and not of classes, since
Xcode renamed the classes. So a cycle cannot be followed endlessly, and an index out of range is a damaged
report. The remaining attack is sharing: a small archive in which a thousand targets list the same
thousand files. A shared file is decoded once, and the number of references to files is limited.
"""

import plistlib
import struct

import msgspec

from runyard.xcresult.errors import BundleInvalid, TooLarge
from runyard.xcresult.reader.coverage.model import FileCoverage, Function, TargetCoverage
from runyard.xcresult.reader.plists import check_binary

BYTES = 32 * 2**20
"""Largest size of the report: a property list needs several times its size in memory."""
FILES = 500_000
"""Targets, files of all targets, and messages together, a shared one counted each time."""
FUNCTIONS = 600_000
"""Functions of all files together, a shared file counted each time."""
COUNT = struct.Struct("<I")
RECORD = struct.Struct("<IIIIQ")


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The decoded report."""

    covered: int
    executable: int
    targets: tuple[TargetCoverage, ...]
    complaints: tuple[str, ...] = ()
    """Xcode's messages about targets that it could not measure."""


def decode_report(data: bytes) -> Report:
    """Decode a report; raises BundleInvalid, and TooLarge for implausible sizes."""
    try:
        return _Decoder(_archive(data)).report()
    except (RecursionError, LookupError, TypeError, ValueError, struct.error) as error:
        raise BundleInvalid(
            f"the coverage report is damaged: {error or type(error).__name__}"
        ) from error


def _archive(data: bytes) -> dict[str, object]:
    if len(data) > BYTES:
        raise TooLarge(f"the coverage report is larger than {BYTES} bytes")
    check_binary(data)
    try:
        archive = plistlib.loads(data, fmt=plistlib.FMT_BINARY)
    except plistlib.InvalidFileException:
        raise BundleInvalid("the coverage report is not a binary property list") from None
    if not isinstance(archive, dict) or not isinstance(archive.get("$objects"), list):
        raise BundleInvalid("the coverage report is not a keyed archive")
    return archive


class _Decoder:
    def __init__(self, archive: dict[str, object]) -> None:
        objects = archive["$objects"]
        self._objects: list[object] = objects if isinstance(objects, list) else []
        self._root = self._dict(_dict(archive.get("$top")).get("root"))
        self._files: dict[int, FileCoverage] = {}
        self._named = 0
        self._functions = 0

    def report(self) -> Report:
        targets = tuple(
            self._target(self._dict(item))
            for item in self._counted(self._root.get("buildableCoverageObjects"))
        )
        complaints = (self._text(item) for item in self._counted(self._root.get("creationErrors")))
        return Report(
            covered=_number(self._root.get("coveredLines")),
            executable=_number(self._root.get("executableLines")),
            targets=targets,
            complaints=tuple(dict.fromkeys(complaint for complaint in complaints if complaint)),
        )

    def _target(self, target: dict[str, object]) -> TargetCoverage:
        return TargetCoverage(
            name=self._text(target.get("name")),
            identifier=self._text(target.get("buildableIdentifier")),
            product=self._text(target.get("productPath")),
            covered=_number(target.get("coveredLines")),
            executable=_number(target.get("executableLines")),
            files=tuple(self._file(item) for item in self._counted(target.get("sourceFiles"))),
        )

    def _file(self, item: object) -> FileCoverage:
        key = item.data if isinstance(item, plistlib.UID) else id(item)
        found = self._files.get(key)
        if found is None:
            found = self._files[key] = self._new_file(self._dict(item))
        self._functions += len(found.functions)
        if self._functions > FUNCTIONS:
            raise TooLarge(f"the coverage report names more than {FUNCTIONS} functions")
        return found

    def _new_file(self, fields: dict[str, object]) -> FileCoverage:
        return FileCoverage(
            name=self._text(fields.get("name")),
            path=self._text(fields.get("documentLocation")),
            covered=_number(fields.get("coveredLines")),
            executable=_number(fields.get("executableLines")),
            functions=decode_functions(self._bytes(fields.get("functions"))),
        )

    def _follow(self, value: object) -> object:
        return self._objects[value.data] if isinstance(value, plistlib.UID) else value

    def _dict(self, value: object) -> dict[str, object]:
        return _dict(self._follow(value))

    def _array(self, value: object) -> list[object]:
        found = self._follow(value)
        if isinstance(found, dict):
            found = found.get("NS.objects")
        if found is None or found == "$null":
            return []
        if not isinstance(found, list):
            raise TypeError("a list was expected")
        return found

    def _counted(self, value: object) -> list[object]:
        """A list, whose elements are counted before they are read: one object may be all of them."""
        found = self._array(value)
        self._named += len(found)
        if self._named > FILES:
            raise TooLarge(
                f"the coverage report names more than {FILES} files, targets and messages"
            )
        return found

    def _bytes(self, value: object) -> bytes:
        found = self._follow(value)
        if isinstance(found, dict):
            found = found.get("NS.data")
        return found if isinstance(found, bytes) else b""

    def _text(self, value: object) -> str:
        found = self._follow(value)
        if isinstance(found, dict):
            found = found.get("NS.string", found.get("NS.relative"))
            found = self._follow(found)
        return found if isinstance(found, str) and found != "$null" else ""


def decode_functions(data: bytes) -> tuple[Function, ...]:
    """Decode a file's functions: a count, that many records, that many names ended by NUL."""
    if not data:
        return ()
    (count,) = COUNT.unpack_from(data)
    names_at = COUNT.size + count * RECORD.size
    if names_at > len(data):
        raise ValueError(f"{count} functions do not fit in {len(data)} bytes")
    if count > FUNCTIONS:
        raise TooLarge(f"a file of the coverage report has more than {FUNCTIONS} functions")
    records = RECORD.iter_unpack(data[COUNT.size : names_at])
    names = data[names_at:].decode("utf-8", "replace").split("\0")
    if len(names) < count:
        raise ValueError(f"{count} functions have {len(names)} names")
    return tuple(
        Function(name=name, line=line, covered=covered, executable=executable, count=hits)
        for (covered, executable, line, _, hits), name in zip(records, names, strict=False)
    )


def _dict(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise TypeError("an object was expected")
    return value


def _number(value: object) -> int:
    if value is None:
        return 0
    if not isinstance(value, int) or value < 0:
        raise TypeError("a count was expected")
    return value
