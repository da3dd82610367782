"""Formats details of a test and its runs: tags, bugs, metrics, attachments, activities."""

from collections.abc import Iterator

from runyard.xcresult.formats import words
from runyard.xcresult.formats.lines import Line, Span, Style
from runyard.xcresult.reader.model import Activity, Case, Metric, Run

_DEEP = 50


def case_details(case: Case, depth: int) -> Iterator[Line]:
    """Lines about the test: tags, bugs and documentation."""
    if case.tags:
        yield _dim(depth, "tags: " + ", ".join(tag.name for tag in case.tags))
    for bug in case.bugs:
        yield _dim(
            depth,
            "bug: " + " ".join(part for part in (bug.identifier, bug.url, bug.comment) if part),
        )
    for text in case.documentation:
        yield _dim(depth, f"documentation: {words.line_of(text)}")


def run_details(run: Run, depth: int) -> Iterator[Line]:
    """Lines about one run: metrics, attachments and activities."""
    for metric in run.metrics:
        yield _dim(depth, _metric(metric))
    for attachment in run.attachments:
        state = f"{attachment.size} bytes" if attachment.present else "not kept"
        failed = ", of a failure" if attachment.on_failure else ""
        yield _dim(
            depth,
            f"attachment: {words.line_of(attachment.filename or attachment.name)} ({state}{failed})",
        )
    for activity in run.activities:
        yield from _activity(activity, depth, 0)


def _metric(metric: Metric) -> str:
    values = metric.measurements
    mean = f"{sum(values) / len(values):.6g}" if values else "no measurements"
    unit = f" {metric.unit}" if metric.unit else ""
    against = (
        "" if metric.baseline_average is None else f", baseline {metric.baseline_average:.6g}{unit}"
    )
    return (
        f"metric: {metric.name or metric.identifier}: {mean}{unit} (mean of {len(values)}){against}"
    )


def _activity(activity: Activity, depth: int, level: int) -> Iterator[Line]:
    took = ""
    if activity.start is not None and activity.finish is not None:
        took = words.duration_text(max(0.0, activity.finish - activity.start))
    style: Style = "failure" if activity.failure_ids else "dim"
    yield Line(
        depth,
        (
            Span(f"· {words.line_of(activity.title)}", style),
            Span(f"  {took}" if took else "", "dim"),
        ),
    )
    if level >= _DEEP:
        return
    for child in activity.activities:
        yield from _activity(child, depth + 1, level + 1)


def _dim(depth: int, text: str) -> Line:
    return Line(depth, (Span(text, "dim"),))
