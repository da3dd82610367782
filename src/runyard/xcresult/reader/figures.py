"""Computes the figures of a bundle, by which scripts compare two readings."""

from collections import Counter
from collections.abc import Iterable

from runyard.xcresult.reader.model import Result
from runyard.xcresult.reader.report import destinations, milliseconds, report


def figures(result: Result, *, objects: int, objects_hash_ok: int) -> dict[str, object]:
    """All figures by name, ready for JSON."""
    runs = [run for case in result.cases for run in case.runs]
    attachments = [one for run in runs for one in run.attachments]
    summary = report(result)
    return {
        "format": result.format,
        "source": result.source,
        "objects": objects,
        "objects_hash_ok": objects_hash_ok,
        "cases": len(result.cases),
        "case_status": _counted(case.status for case in result.cases),
        "runs": len(runs),
        "run_status": _counted(run.status for run in runs),
        "failures": sum(len(run.failures) for run in runs),
        "expected_failures": sum(len(run.expected_failures) for run in runs),
        "skips": sum(run.skip is not None for run in runs),
        "repeated_runs": sum(run.repetition is not None for run in runs),
        "runs_with_arguments": sum(bool(run.arguments) for run in runs),
        "attachments": len(attachments),
        "attachments_present": sum(one.present for one in attachments),
        "attachment_bytes": sum(one.size for one in attachments if one.present),
        "targets": sorted({case.target for case in result.cases}),
        "suites": len({(suite.target, suite.path) for suite in result.suites}),
        "destinations": [list(one) for one in destinations(result)],
        "test_plan": result.test_plan,
        "report_status": summary.status,
        "report_duration_ms": milliseconds(result.duration),
        "errors": len(summary.errors),
        "build_issues": len(result.build_issues),
        "warnings": len(result.warnings),
    }


def _counted(words: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(words).items()))
