"""The child process that reads one bundle: `python -m runyard.xcresult.processor.child`.

It gets a `ReadRequest` on standard input, extracts the upload, reads the bundle, writes the rows to load into a file in
its workdir, and prints a `ReadAnswer` as one JSON object. It has no access to the database or to object storage.

It writes only below its workdir (a test traces that). A full disk is reported as such and never as a damaged bundle: a
partial extraction is not read.
"""

import base64
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from runyard.wire.reasons import Reason
from runyard.wire.reasons_results import Unprocessed
from runyard.xcresult.archives.extracting import extract, needed_bytes
from runyard.xcresult.bundle.directory import Directory
from runyard.xcresult.bundle.opening import find_bundle
from runyard.xcresult.bundle.reading import read_bundle
from runyard.xcresult.coverage_encoding import pack
from runyard.xcresult.errors import XcresultError
from runyard.xcresult.formats import apple
from runyard.xcresult.plans.rows import Owner, Row, Rows
from runyard.xcresult.processor.child_protocol import ReadAnswer, ReadRequest, Summary
from runyard.xcresult.processor.failures import because, is_full, line, refusal
from runyard.xcresult.processor.resource_limits import apply_limits
from runyard.xcresult.processor.rows_file import RowsFile, bounded, clean
from runyard.xcresult.processor.scratch import Scratch, Workdir, WorkdirGone, occupied
from runyard.xcresult.processor.tracing import trace
from runyard.xcresult.reader.budget import LINE, Budget
from runyard.xcresult.reader.coverage.model import Coverage, FileLines
from runyard.xcresult.reader.coverage.reading import read_all_coverage
from runyard.xcresult.reader.crashes import read_crashes
from runyard.xcresult.reader.ids import content_id
from runyard.xcresult.reader.model import Result
from runyard.xcresult.reader.objects import ObjectProblem
from runyard.xcresult.reader.report import report
from runyard.xcresult.reader.report_model import Quarantined, Report

QUARANTINE = "quarantined_tests.json"
_QUARANTINE_BYTES = 4 * 1024 * 1024
_MOST = 500  # warnings, build issues and errors kept of one bundle
_TEXT = 2000


def main() -> None:
    """Execute the request on standard input."""
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=ReadRequest)
    apply_limits(memory=request.memory, cpu=request.cpu, parent=request.parent)
    answer = execute(request)
    sys.stdout.buffer.write(msgspec.json.encode(answer))
    sys.stdout.buffer.flush()


def execute(request: ReadRequest) -> ReadAnswer:
    """Read the bundle; returns how that ended. Unexpected exceptions end the process with a traceback."""
    workdir = Workdir(path=Path(request.workdir))
    try:
        with occupied(workdir):
            if request.trace:
                trace(Path(request.trace))
            return _read(request, workdir)
    except WorkdirGone:
        return _unread("failed", Unprocessed.WORKDIR_GONE.because())
    except XcresultError as error:
        return _unread("refused", because(refusal(error), error))
    except MemoryError:
        return _unread("exhausted", Unprocessed.MEMORY_EXCEEDED.because(limit=request.memory))
    except OSError as error:
        if is_full(error):
            return _unread("no_space", because(Unprocessed.NO_SPACE, error))
        traceback.print_exc()
        return _unread("failed", because(Unprocessed.IO_ERROR, error))


def _unread(
    end: Literal["refused", "exhausted", "failed", "no_space"], reason: Reason
) -> ReadAnswer:
    return ReadAnswer(end=end, code=reason.slug, detail=reason.fields)


def _read(request: ReadRequest, workdir: Workdir) -> ReadAnswer:
    needed = needed_bytes(workdir.archive, limits=request.limits)
    free = Scratch(workdir.path).free()
    if free < needed + request.reserve:
        return _unread("no_space", Unprocessed.NO_SPACE_FOR_BUNDLE.because(size=needed, free=free))
    workdir.bundle.mkdir()
    budget = request.limits.budget(uploaded=workdir.archive.stat().st_size)
    extract(workdir.archive, workdir.bundle, limits=request.limits, budget=budget)
    workdir.archive.unlink()  # frees its space
    bundle = find_bundle(workdir.bundle, limits=request.limits)
    result = read_bundle(bundle, limits=request.limits, budget=budget)
    if request.compare:
        workdir.expected.write_bytes(msgspec.json.encode(apple.apple_tests(result)))
    return ReadAnswer(
        end="read", bundle=str(bundle), summary=_written(request, workdir, bundle, result, budget)
    )


def _written(
    request: ReadRequest, workdir: Workdir, bundle: Path, result: Result, budget: Budget
) -> Summary:
    """Write the rows; returns their summary."""
    objects = Directory(bundle, limits=request.limits, budget=budget)
    quarantine, complaint = _quarantine(bundle)
    crashes = read_crashes(objects, result.cases, budget=budget)
    found = report(result, quarantine=quarantine, crashes=crashes, budget=budget)
    owner = Owner(
        account=request.account, project=request.project, run_id=request.run_id, shard=request.shard
    )
    coverage = read_all_coverage(objects, result.actions, budget=budget)
    rows = Rows(found, owner, unsound=_unsound(objects, found))
    with RowsFile(workdir.rows, budget=budget) as file:
        for table, lines in rows.tables():
            file.add(table, lines)
        if coverage is not None:
            file.add("coverage_targets", _coverage_targets(coverage))
            file.add("coverage_files", _coverage_files(coverage, budget))
    return _summary(found, result, coverage, complaint)


def _quarantine(bundle: Path) -> tuple[tuple[Quarantined, ...], str]:
    """The tests whose failures do not count, and what is wrong with the list (empty if nothing)."""
    path = bundle / QUARANTINE
    if path.is_symlink() or not path.is_file():
        return (), ""
    if path.stat().st_size > _QUARANTINE_BYTES:
        return (), f"{QUARANTINE} is ignored: it has more than {_QUARANTINE_BYTES} bytes"
    try:
        return msgspec.json.decode(path.read_bytes(), type=tuple[Quarantined, ...]), ""
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return (), f"{QUARANTINE} is ignored: {line(str(error))}"


def _unsound(objects: Directory, found: Report) -> frozenset[str]:
    """Payloads whose bytes do not match their id: other runs must not share them."""
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


def _coverage_files(coverage: Coverage, budget: Budget) -> Iterator[Row]:
    files = (
        (number, file)
        for number, target in enumerate(coverage.targets, start=1)
        for file in target.files
    )
    for place, (number, file) in enumerate(files, start=1):
        lines = coverage.source.lines(file.path) or FileLines()
        budget.spend(len(lines.lines) * LINE)
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
        test_plan=_text(found.test_plan_name or ""),
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


if __name__ == "__main__":
    main()
