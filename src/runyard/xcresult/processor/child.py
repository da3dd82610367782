"""The child that reads one bundle: `python -m runyard.xcresult.processor.child`, its order on standard input.

It extracts the upload, reads the bundle, and writes what is to be loaded into a file in its room; on standard output it
says how that went, in one JSON object. It knows neither the database nor object storage, and holds no credential.

Whatever it writes is below its room (a test traces that). A full disk is told as such, never as a damaged bundle: an
extraction that ended early is not read.
"""

import base64
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import msgspec

from runyard.xcresult.archives.extracting import extract, needed_bytes
from runyard.xcresult.bundle.directory import Directory
from runyard.xcresult.bundle.opening import find_bundle
from runyard.xcresult.bundle.reading import read_bundle
from runyard.xcresult.errors import XcresultError
from runyard.xcresult.formats import apple
from runyard.xcresult.packing import pack
from runyard.xcresult.plans.rows import Owner, Row, Rows
from runyard.xcresult.processor.confining import confine
from runyard.xcresult.processor.failures import is_full
from runyard.xcresult.processor.order import Answer, Order, Summary
from runyard.xcresult.processor.rowsfile import RowsFile, bounded, clean
from runyard.xcresult.processor.scratch import Room, RoomGone, Scratch, occupied
from runyard.xcresult.processor.tracing import trace
from runyard.xcresult.reader.coverage.model import Coverage, FileLines
from runyard.xcresult.reader.coverage.reading import read_all_coverage
from runyard.xcresult.reader.crashes import read_crashes
from runyard.xcresult.reader.ids import content_id
from runyard.xcresult.reader.model import Result
from runyard.xcresult.reader.objects import ObjectProblem
from runyard.xcresult.reader.report import report
from runyard.xcresult.reader.reportmodel import Quarantined, Report

QUARANTINE = "quarantined_tests.json"
_QUARANTINE_BYTES = 16 * 1024 * 1024
_MOST = 500  # warnings, build issues and errors that are kept of one bundle
_TEXT = 2000


def main() -> None:
    """Carry out the order on standard input."""
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    confine(memory=order.memory, cpu=order.cpu, parent=order.parent)
    answer = carry_out(order)
    sys.stdout.buffer.write(msgspec.json.encode(answer))
    sys.stdout.buffer.flush()


def carry_out(order: Order) -> Answer:
    """Read, and say how it went. What is none of the expected failures is told with its trace on standard error."""
    room = Room(path=Path(order.room))
    try:
        with occupied(room):
            if order.trace:
                trace(Path(order.trace))
            return _read(order, room)
    except RoomGone:
        return Answer(end="failed", code="room_gone", reason="the room was swept")
    except XcresultError as error:
        return Answer(end="refused", code=error.code, reason=_line(error))
    except MemoryError:
        return Answer(
            end="failed",
            code="out_of_memory",
            reason=f"reading it takes more than {order.memory} bytes of memory",
        )
    except OSError as error:
        if is_full(error):
            return Answer(end="no_room", code="no_space", reason=_line(error))
        traceback.print_exc()
        return Answer(end="failed", code="io_error", reason=_line(error))


def _read(order: Order, room: Room) -> Answer:
    needed = needed_bytes(room.archive, limits=order.limits)
    free = Scratch(room.path).free()
    if free < needed + order.reserve:
        told = f"the bundle takes about {needed} bytes and the scratch has {free}"
        return Answer(end="no_room", code="no_space", reason=told)
    room.bundle.mkdir()
    extract(room.archive, room.bundle, limits=order.limits)
    room.archive.unlink()  # its room is needed
    bundle = find_bundle(room.bundle, limits=order.limits)
    result = read_bundle(bundle, limits=order.limits)
    if order.compare:
        room.expected.write_bytes(msgspec.json.encode(apple.apple_tests(result)))
    return Answer(end="read", bundle=str(bundle), summary=_written(order, room, bundle, result))


def _written(order: Order, room: Room, bundle: Path, result: Result) -> Summary:
    """Write the rows, and sum them up."""
    objects = Directory(bundle, limits=order.limits)
    quarantine, complaint = _quarantine(bundle)
    found = report(result, quarantine=quarantine, crashes=read_crashes(objects, result.cases))
    owner = Owner(
        account=order.account, project=order.project, run_id=order.run_id, shard=order.shard
    )
    coverage = read_all_coverage(objects, result.actions)
    rows = Rows(found, owner, unsound=_unsound(objects, found))
    with RowsFile(room.rows) as file:
        for table, lines in rows.tables():
            file.add(table, lines)
        if coverage is not None:
            file.add("coverage_targets", _coverage_targets(coverage))
            file.add("coverage_files", _coverage_files(coverage))
    return _summary(found, result, coverage, complaint)


def _quarantine(bundle: Path) -> tuple[tuple[Quarantined, ...], str]:
    """The tests whose failures do not count, and what is wrong with the list."""
    path = bundle / QUARANTINE
    if path.is_symlink() or not path.is_file():
        return (), ""
    if path.stat().st_size > _QUARANTINE_BYTES:
        return (), f"{QUARANTINE} has more than {_QUARANTINE_BYTES} bytes and was not read"
    try:
        return msgspec.json.decode(path.read_bytes(), type=tuple[Quarantined, ...]), ""
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return (), f"{QUARANTINE} was not read: {_line(error)}"


def _unsound(objects: Directory, found: Report) -> frozenset[str]:
    """Payloads that are not what their id says: they must not stand for the real ones in other runs."""
    wanted = {
        each.payload_id
        for module in found.test_modules
        for case in module.test_cases
        for each in case.attachments
    }
    return frozenset(each for each in wanted if not _sound(objects, each))


def _sound(objects: Directory, object_id: str) -> bool:
    try:
        return content_id(objects.refs(object_id), objects.blocks(object_id)) == object_id
    except (ObjectProblem, XcresultError):
        return False


def _coverage_targets(coverage: Coverage) -> Iterator[Row]:
    for number, target in enumerate(coverage.targets, start=1):
        yield {
            "target": number,
            "name": target.name,
            "covered_lines": target.covered,
            "executable_lines": target.executable,
        }


def _coverage_files(coverage: Coverage) -> Iterator[Row]:
    files = (
        (number, file)
        for number, target in enumerate(coverage.targets, start=1)
        for file in target.files
    )
    for place, (number, file) in enumerate(files, start=1):
        lines = coverage.source.lines(file.path) or FileLines()
        counts = {line.number: max(line.count, 0) for line in lines.lines if line.number > 0}
        yield {
            "file": place,
            "target": number,
            "path": file.path,
            "covered_lines": file.covered,
            "executable_lines": file.executable,
            "lines": base64.b64encode(pack(sorted(counts.items()))).decode(),
        }


def _summary(found: Report, result: Result, coverage: Coverage | None, complaint: str) -> Summary:
    cases = [case for module in found.test_modules for case in module.test_cases]
    warnings = [(each.object_id, each.message) for each in result.warnings]
    if coverage is not None:
        warnings += [(each.object_id, each.message) for each in coverage.warnings]
    if complaint:
        warnings.append(("", complaint))
    return Summary(
        status=found.status,
        duration_ms=bounded(
            found.duration or sum(module.duration for module in found.test_modules)
        ),
        test_plan=_text(found.test_plan_name),
        format=result.format,
        source=result.source,
        modules=len(found.test_modules),
        cases=len(cases),
        failed=sum(case.status == "failure" for case in cases),
        skipped=sum(case.status == "skipped" for case in cases),
        flaky=sum(case.is_flaky for case in cases),
        destinations=tuple(
            {
                "name": _text(each.name),
                "platform": each.platform,
                "os_version": _text(each.os_version),
            }
            for each in found.run_destinations[:_MOST]
        ),
        errors=tuple(
            {"target": _text(each.target or ""), "message": _text(each.message)}
            for each in found.errors[:_MOST]
        ),
        warnings=tuple(
            {"object_id": _text(where), "message": _text(what)} for where, what in warnings[:_MOST]
        ),
        build_issues=tuple(
            {
                "kind": each.kind,
                "message": _text(each.message),
                "issue_type": _text(each.issue_type),
                "target": _text(each.target),
                "path": _text(each.place.path) if each.place else "",
                "line_number": each.place.line if each.place else 0,
            }
            for each in result.build_issues[:_MOST]
        ),
        covered_lines=None if coverage is None else bounded(coverage.covered),
        executable_lines=None if coverage is None else bounded(coverage.executable),
    )


def _text(text: str) -> str:
    return clean(text[:_TEXT])


def _line(error: BaseException) -> str:
    return clean(" ".join((str(error) or type(error).__name__).split())[:500])


if __name__ == "__main__":
    main()
