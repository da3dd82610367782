"""Reads the coverage of an action.

A bundle with damaged coverage is still readable. So a part that cannot be read is a warning of
the coverage and never an error: the report without lines, lines without a report, or neither.
"""

from collections.abc import Iterable

import msgspec

from runyard.xcresult.errors import XcresultError
from runyard.xcresult.reader.budget import JSON_KIB, Budget
from runyard.xcresult.reader.coverage.archive import Archive
from runyard.xcresult.reader.coverage.merging import merge
from runyard.xcresult.reader.coverage.model import Coverage, LineSource, NoLines
from runyard.xcresult.reader.coverage.report import Report, decode_report
from runyard.xcresult.reader.model import Action, Warning  # noqa: A004  (of the bundle)
from runyard.xcresult.reader.objects import ObjectProblem, Objects
from runyard.xcresult.reader.plists import PlistDamaged, load_plist

INDEX, COUNTS, METADATA = "Index", "Coverage", "Metadata.plist"
VERSION = 1
LISTING = 1 << 20
"""Largest listing of an archive, in bytes; a real one has three entries."""
HELD_BYTES = 4
"""Memory for each byte of a report or an index, decoded."""


class _Entry(msgspec.Struct, frozen=True, gc=False):
    name: str
    type: int = 0


def read_coverage(
    objects: Objects, action: Action, *, budget: Budget | None = None
) -> Coverage | None:
    """Read the coverage of one action; None if it has none. It stays in memory, as a part of `budget`."""
    if not action.coverage_report_id and not action.coverage_archive_id:
        return None
    warnings: list[Warning] = []
    budget = budget or Budget()
    report = _report(objects, action.coverage_report_id, warnings, budget)
    source = _source(objects, action.coverage_archive_id, warnings, budget)
    if report is None:
        return Coverage(source=source, warnings=tuple(warnings))
    warnings += [Warning(message=f"coverage: {text}") for text in report.complaints]
    return Coverage(
        covered=report.covered,
        executable=report.executable,
        targets=report.targets,
        source=source,
        warnings=tuple(warnings),
    )


def read_all_coverage(
    objects: Objects, actions: Iterable[Action], *, budget: Budget | None = None
) -> Coverage | None:
    """Read and merge the coverage of all actions. Actions that reference the same objects are read once."""
    measured = {
        (action.coverage_report_id, action.coverage_archive_id): action for action in actions
    }
    read = (read_coverage(objects, action, budget=budget) for action in measured.values())
    return merge([coverage for coverage in read if coverage is not None])


def _report(
    objects: Objects, object_id: str, warnings: list[Warning], budget: Budget
) -> Report | None:
    if not object_id:
        return None
    try:
        data = objects.read(object_id)
        budget.spend_kib(len(data), JSON_KIB)
        budget.hold(HELD_BYTES * len(data))
        return decode_report(data)
    except (ObjectProblem, XcresultError) as error:
        warnings.append(Warning(message=f"coverage report: {error}", object_id=object_id))
        return None


def _source(
    objects: Objects, object_id: str, warnings: list[Warning], budget: Budget
) -> LineSource:
    if not object_id:
        return NoLines()
    try:
        parts = _parts(objects, object_id)
        version = _version(objects, parts.get(METADATA, ""))
        if version != VERSION:
            raise ObjectProblem(object_id, f"is of the unknown version {version}")
        index, counts = (objects.read(parts[name]) for name in (INDEX, COUNTS))
        budget.hold(HELD_BYTES * len(index) + len(counts))
        return Archive(index, counts)
    except KeyError as error:
        problem = f"coverage archive: the directory has no {error.args[0]}"
        warnings.append(Warning(message=problem, object_id=object_id))
    except (ObjectProblem, XcresultError) as error:
        warnings.append(Warning(message=f"coverage archive: {error}", object_id=object_id))
    return NoLines()


def _parts(objects: Objects, object_id: str) -> dict[str, str]:
    """Return ids by name: the i-th entry of a directory is its i-th reference."""
    try:
        data = objects.read(object_id)
        if len(data) > LISTING:
            raise ObjectProblem(object_id, f"a directory of more than {LISTING} bytes")
        entries = msgspec.json.decode(data, type=tuple[_Entry, ...])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ObjectProblem(object_id, f"is not a directory: {error}") from error
    return {
        entry.name: found for entry, found in zip(entries, objects.refs(object_id), strict=False)
    }


def _version(objects: Objects, object_id: str) -> object:
    """The archive's declared format; if it is missing, the known one is assumed."""
    try:
        metadata = load_plist(objects.read(object_id)) if objects.has(object_id) else None
    except (ObjectProblem, XcresultError, PlistDamaged):
        return VERSION
    return metadata.get("formatVersion", VERSION) if isinstance(metadata, dict) else VERSION
