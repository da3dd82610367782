"""Counts what a reader must report for a bundle, while its drafts are written."""

from collections import Counter

import msgspec
from tests.xcresult.writer.drafting import STATUS, Draft, DraftRun
from tests.xcresult.writer.plan import Plan


class Tally(msgspec.Struct, kw_only=True):
    """The counters of one bundle."""

    cases: int = 0
    case_status: Counter[str] = msgspec.field(default_factory=Counter)
    runs: int = 0
    run_status: Counter[str] = msgspec.field(default_factory=Counter)
    failures: int = 0
    expected_failures: int = 0
    skips: int = 0
    repeated_runs: int = 0
    runs_with_arguments: int = 0
    targets: set[str] = msgspec.field(default_factory=set)
    suites: set[tuple[str, ...]] = msgspec.field(default_factory=set)
    attachments: int = 0
    attachments_present: int = 0
    attachment_bytes: int = 0
    lost: int = 0
    fatal: int = 0
    harmless: int = 0
    failed_in_report: bool = False
    destinations: list[list[str]] = msgspec.field(default_factory=list)
    seconds: float | None = None

    def case(self, draft: Draft) -> None:
        """Count a case; called once for each case of each test plan."""
        status = STATUS[draft.outcome]
        self.cases += 1
        self.case_status[status] += 1
        self.targets.add(draft.place.target)
        for depth in range(1, len(draft.place.path) + 1):
            self.suites.add((draft.place.target, *draft.place.path[:depth]))
        # In the report a case has failed if a repetition of an argument set failed, even if a retry passed.
        self.failed_in_report |= status == "Failure" or (
            draft.outcome == "retry" and bool(draft.sets)
        )

    def run(self, run: DraftRun, plan: Plan) -> None:
        """Count a run; called once for each run."""
        self.runs += 1
        self.run_status[run.status] += 1
        self.failures += max(1, plan.failures_each) if run.status == "Failure" else 0
        self.expected_failures += run.status == "Expected Failure"
        self.skips += run.status == "Skipped"
        self.repeated_runs += run.iteration > 0
        self.runs_with_arguments += bool(run.arguments)

    def pseudo(self, target: str, *, failures: int, new: bool) -> None:
        """A runner's error, or issues without a test: the figures count them as cases that failed."""
        self.cases += new
        self.case_status["Failure"] += new
        self.runs += 1
        self.run_status["Failure"] += 1
        self.failures += failures
        self.targets.add(target)

    def report_status(self) -> str:
        """The status of the whole bundle in the report."""
        real = self.cases - self.fatal - bool(self.harmless)
        if self.fatal or self.failed_in_report:
            return "failure"
        return "skipped" if self.case_status["Skipped"] == real else "success"

    def figures(self, plan: Plan, *, test_plan: str, objects: int) -> dict[str, object]:
        """All figures."""
        return {
            "format": f"3.{plan.minor}",
            "source": "store",
            "objects": objects,
            "objects_hash_ok": objects,
            "cases": self.cases,
            "case_status": {key: self.case_status[key] for key in sorted(+self.case_status)},
            "runs": self.runs,
            "run_status": {key: self.run_status[key] for key in sorted(+self.run_status)},
            "failures": self.failures,
            "expected_failures": self.expected_failures,
            "skips": self.skips,
            "repeated_runs": self.repeated_runs,
            "runs_with_arguments": self.runs_with_arguments,
            "attachments": self.attachments,
            "attachments_present": self.attachments_present,
            "attachment_bytes": self.attachment_bytes,
            "targets": sorted(self.targets),
            "suites": len(self.suites),
            "destinations": self.destinations,
            "test_plan": test_plan,
            "report_status": self.report_status(),
            "report_duration_ms": None if self.seconds is None else int(self.seconds * 1000),
            "errors": self.fatal + self.harmless,
            "build_issues": plan.build_issues,
            "warnings": self.lost,
        }
