"""Turns a report into the rows of each table.

Modules, suites and cases are numbered in the report's order. The id of a test is a digest of (account, project,
module, identifier), so it is the same in every run. No row needs an id that the database assigned to another one, and
processing a run again produces the same rows.

Invariant: every number and id depends only on the report and the run.
"""

import hashlib
from collections.abc import Collection, Iterator

import msgspec

from runyard.xcresult.reader.crashes import SUFFIX
from runyard.xcresult.reader.report_model import (
    Module,
    Report,
    ReportCase,
    ReportFailure,
    ReportRepetition,
)

Row = dict[str, object]


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """The run, account and project that the rows belong to."""

    account: str
    project: str
    run_id: str
    shard: int


def digest(*parts: object) -> str:
    """A deterministic id of these parts, in the form of a UUID."""
    encoded = "".join(f"{len(text)}:{text}" for text in map(str, parts))
    found = hashlib.blake2b(encoded.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{found[:8]}-{found[8:12]}-{found[12:16]}-{found[16:20]}-{found[20:]}"


def case_id(owner: Owner, case: ReportCase) -> str:
    """The id of a test; the same in every run of the project."""
    within = case.identifier or f"{case.test_suite_name or ''}/{case.name}"
    return digest("case", owner.account, owner.project, case.module, within)


class Rows:
    """The rows of one report, table by table. `unsound` are payloads whose bytes do not match their content id."""

    def __init__(self, report: Report, owner: Owner, *, unsound: Collection[str] = ()) -> None:
        self._report = report
        self._owner = owner
        self._unsound = frozenset(unsound)
        self._cases = [
            (number, module, case)
            for number, (module, case) in enumerate(
                (pair for pair in _cases(report.test_modules)), start=1
            )
        ]

    def tables(self) -> Iterator[tuple[str, Iterator[Row]]]:
        """Each table with its rows, in an order that satisfies the foreign keys."""
        yield "modules", self._modules()
        yield "suites", self._suites()
        yield "cases", self._tests()
        yield "case_runs", self._case_runs()
        yield "arguments", self._arguments()
        yield "repetitions", self._repetitions()
        yield "failures", self._failures()
        yield "payloads", self._payloads()
        yield "attachments", self._attachments()
        yield "crashes", self._crashes()

    def payload_id(self, content_id: str) -> str:
        """The id of a payload: shared by the runs of a project, except for unsound payloads."""
        owner = self._owner
        apart = (owner.run_id, owner.shard) if content_id in self._unsound else ()
        return digest("payload", owner.account, owner.project, content_id, *apart)

    def _modules(self) -> Iterator[Row]:
        for number, module in enumerate(self._report.test_modules, start=1):
            yield {
                "module": number,
                "name": module.name,
                "status": "failure" if module.status == "failure" else "success",
                "duration_ms": module.duration,
                "suites": len(module.test_suites),
                **_counts(module.test_cases),
            }

    def _suites(self) -> Iterator[Row]:
        numbers = self._suite_numbers()
        for module_number, module in enumerate(self._report.test_modules, start=1):
            inside: dict[str, list[ReportCase]] = {}
            for case in module.test_cases:
                inside.setdefault(case.test_suite_name or "", []).append(case)
            for suite in {suite.name: suite for suite in module.test_suites}.values():
                yield {
                    "suite": numbers[module_number, suite.name],
                    "module": module_number,
                    "name": suite.name,
                    "status": suite.status,
                    "duration_ms": suite.duration,
                    **_counts(inside.get(suite.name, ())),
                }

    def _suite_numbers(self) -> dict[tuple[int, str], int]:
        found = (
            (number, suite.name)
            for number, module in enumerate(self._report.test_modules, start=1)
            for suite in module.test_suites
        )
        return {key: number for number, key in enumerate(dict.fromkeys(found), start=1)}

    def _tests(self) -> Iterator[Row]:
        """Each test once, sorted by id, so that concurrent transactions lock tests in the same order."""
        tests = {case_id(self._owner, case): case for _, _, case in self._cases}
        for test, case in sorted(tests.items()):
            yield {
                "case_id": test,
                "module": case.module,
                "suite": case.test_suite_name or "",
                "name": case.name,
                "identifier": case.identifier,
            }

    def _case_runs(self) -> Iterator[Row]:
        suites = self._suite_numbers()
        for number, module, case in self._cases:
            yield {
                "number": number,
                "case_id": case_id(self._owner, case),
                "module": module,
                "suite": suites.get((module, case.test_suite_name or "")),
                "name": case.name,
                "status": case.status,
                "duration_ms": case.duration,
                "is_flaky": case.is_flaky,
                "is_quarantined": case.is_quarantined,
            }

    def _arguments(self) -> Iterator[Row]:
        for number, _, case in self._cases:
            for place, argument in enumerate(case.arguments, start=1):
                yield {
                    "number": number,
                    "argument": place,
                    "name": argument.name,
                    "status": argument.status,
                    "duration_ms": argument.duration,
                }

    def _repeated(self) -> Iterator[tuple[int, int, int, ReportRepetition]]:
        """(case, argument (0: none), position, repetition)."""
        for number, _, case in self._cases:
            groups = [(0, case.repetitions)]
            groups += [(at, one.repetitions) for at, one in enumerate(case.arguments, start=1)]
            for argument, repetitions in groups:
                for place, repetition in enumerate(repetitions, start=1):
                    yield number, argument, place, repetition

    def _repetitions(self) -> Iterator[Row]:
        for number, argument, place, repetition in self._repeated():
            yield {
                "number": number,
                "argument": argument,
                "repetition": place,
                "repetition_number": _small(repetition.repetition_number),
                "name": repetition.name,
                "status": repetition.status,
                "duration_ms": repetition.duration,
            }

    def _failures(self) -> Iterator[Row]:
        for number, _, case in self._cases:
            yield from _failed(number, 0, 0, case.failures)
            for place, argument in enumerate(case.arguments, start=1):
                yield from _failed(number, place, 0, argument.failures)
        for number, at, place, repetition in self._repeated():
            yield from _failed(number, at, place, repetition.failures)

    def _payloads(self) -> Iterator[Row]:
        seen: set[str] = set()
        for _, _, case in self._cases:
            for each in case.attachments:
                if each.payload_id not in seen:
                    seen.add(each.payload_id)
                    yield {
                        "payload_id": self.payload_id(each.payload_id),
                        "content_id": each.payload_id,
                        "size": each.size,
                    }

    def _attachment_id(self, number: int, place: int) -> str:
        return digest("attachment", self._owner.run_id, self._owner.shard, number, place)

    def _attachments(self) -> Iterator[Row]:
        for number, _, case in self._cases:
            for place, each in enumerate(case.attachments, start=1):
                yield {
                    "attachment_id": self._attachment_id(number, place),
                    "number": number,
                    "place": place,
                    "payload_id": self.payload_id(each.payload_id),
                    "file_name": each.file_name,
                    "uniform_type": each.uniform_type,
                    "size": each.size,
                    "repetition_number": None
                    if each.repetition_number is None
                    else _small(each.repetition_number),
                    "argument_name": each.argument_name,
                }

    def _crashes(self) -> Iterator[Row]:
        for number, _, case in self._cases:
            if case.crash_report is None:
                continue
            place, name = _crash_file(case)
            yield {
                "number": number,
                "crash": 1,
                "attachment_id": self._attachment_id(number, place) if place else None,
                "file_name": name,
                "exception_type": case.crash_report.exception_type or "",
                "exception_subtype": case.crash_report.exception_subtype or "",
                "signal": case.crash_report.signal or "",
                "triggered_thread_frames": case.crash_report.triggered_thread_frames or "",
            }


def _cases(modules: tuple[Module, ...]) -> Iterator[tuple[int, ReportCase]]:
    for number, module in enumerate(modules, start=1):
        for case in module.test_cases:
            yield number, case


def _counts(cases: Collection[ReportCase]) -> Row:
    durations = [case.duration for case in cases if case.duration is not None]
    return {
        "cases": len(cases),
        "failed": sum(case.status == "failure" for case in cases),
        "skipped": sum(case.status == "skipped" for case in cases),
        "flaky": sum(case.is_flaky for case in cases),
        "average_case_ms": sum(durations) // len(durations) if durations else 0,
    }


def _small(number: int) -> int:
    """Limit a number of an untrusted bundle to the range of its column."""
    return max(min(number, 2**31 - 1), -(2**31))


def _failed(
    number: int, argument: int, repetition: int, failures: tuple[ReportFailure, ...]
) -> Iterator[Row]:
    for place, failure in enumerate(failures, start=1):
        yield {
            "number": number,
            "argument": argument,
            "repetition": repetition,
            "failure": place,
            "message": failure.message or "",
            "path": failure.path or "",
            "line_number": max(_small(failure.line_number), 0),
            "issue_type": failure.issue_type or "",
        }


def _crash_file(case: ReportCase) -> tuple[int, str]:
    """Position and name of the crash report among the case's attachments."""
    for place, each in enumerate(case.attachments, start=1):
        if each.file_name.lower().endswith(SUFFIX):
            return place, each.file_name
    return 0, ""
