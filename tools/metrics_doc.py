"""Generates the tables of docs/metrics.md from the catalogue of metrics.

The page keeps its hand-written text; between each pair of `<!-- generated: NAME -->` and `<!-- end -->` lines
the tables are replaced. `--check` changes nothing and fails when the page is stale.
"""

import functools
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from runyard.telemetry import catalogue
from runyard.telemetry.conditions import ALL as CONDITIONS
from runyard.telemetry.metric import Label, Metric
from runyard.telemetry.names import Component, Loop
from runyard.wire.reasons_results import Unprocessed

PAGE = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"
_SECTION = re.compile(r"(<!-- generated: ([a-z-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_SPEC = re.compile(r":[^:{}]+(?=})")  # how a field of a template is formatted
_MANY = 12  # values; longer lists have a table of their own


def render(page: str) -> str:
    """The page with every generated section brought up to date."""
    return _SECTION.sub(
        lambda found: found[1] + "\n" + SECTIONS[found[2]]() + "\n" + found[4], page
    )


def metrics_of(*components: Component) -> str:
    """The metrics that exactly these components serve."""
    found = [metric for metric in catalogue.ALL if metric.components == components]
    rows = ((f"`{each.name}`", each.kind.value, _labels(each), _meaning(each)) for each in found)
    return _table(("metric", "type", "labels", "meaning"), rows)


def shared() -> str:
    """The metrics that several components serve."""
    found = [metric for metric in catalogue.ALL if len(metric.components) > 1]
    rows = (
        (f"`{each.name}`", each.kind.value, _labels(each), _meaning(each), _served_by(each))
        for each in found
    )
    return _table(("metric", "type", "labels", "meaning", "served by"), rows)


def labels() -> str:
    """Every label with each of its meanings, and its values where they are a closed set."""
    known = {label for metric in catalogue.ALL for label in metric.declared}
    rows = ((f"`{each.name}`", each.meaning, _values(each)) for each in known)
    return _table(("label", "meaning", "values"), sorted(rows))


def loops() -> str:
    """Every value of the label `loop`."""
    rows = ((f"`{each.value}`", each.template) for each in Loop)
    return _table(("loop", "what it does"), rows)


def conditions() -> str:
    """Every value of the label `condition`."""
    rows = ((f"`{each.code}`", each.severity.value, f"{each.title}.") for each in CONDITIONS)
    return _table(("condition", "severity", "meaning"), rows)


def attempts() -> str:
    """Every reason of the label `code`."""
    rows = ((f"`{each.value}`", f"`{_SPEC.sub('', each.template)}`") for each in Unprocessed)
    return _table(("code", "text"), rows)


SECTIONS: dict[str, Callable[[], str]] = {
    **{each.value: functools.partial(metrics_of, each) for each in Component},
    "shared": shared,
    "labels": labels,
    "loops": loops,
    "conditions": conditions,
    "attempts": attempts,
}


def _labels(metric: Metric) -> str:
    return ", ".join(f"`{name}`" for name in metric.labels)


def _meaning(metric: Metric) -> str:
    if not metric.buckets:
        return metric.help
    first, last = (f"{bound:.12g}" for bound in (metric.buckets[0], metric.buckets[-1]))
    return f"{metric.help} Buckets: {first} … {last}."


def _served_by(metric: Metric) -> str:
    return "all" if metric.components == tuple(Component) else ", ".join(metric.components)


def _values(label: Label) -> str:
    if not label.values:
        return "open"
    if len(label.values) > _MANY:
        return "see the table below"
    return ", ".join(f"`{value}`" for value in label.values)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def main() -> int:
    """Write the page, or check it."""
    before = PAGE.read_text(encoding="utf-8")
    after = render(before)
    if "--check" in sys.argv[1:]:
        if before == after:
            return 0
        sys.stderr.write("docs/metrics.md is stale: run `make docs`\n")
        return 1
    PAGE.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
