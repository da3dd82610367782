"""The page of metrics is what the catalogue says, and public names are slugs."""

import re

import metrics_doc
import pytest

from runyard.telemetry import catalogue, conditions
from runyard.telemetry.health import Condition
from runyard.telemetry.metric import Metric
from runyard.telemetry.names import Component, Loop, slug_of

SLUG = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
SNAKE = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
PRIVATE_WORDS = re.compile(r"\b(?:room|graves?|pur[s]e|told|look|mended|keep[e]r|world)\b")
OURS = [metric for metric in catalogue.ALL if metric.name.startswith("runyard_")]


def page() -> str:
    return metrics_doc.PAGE.read_text(encoding="utf-8")


def test_the_page_of_metrics_is_up_to_date() -> None:
    assert metrics_doc.render(page()) == page(), "run `make docs`"


def test_every_metric_loop_and_condition_is_on_the_page() -> None:
    text = page()
    names = [metric.name for metric in catalogue.ALL]
    slugs = [*Loop, *(each.code for each in conditions.ALL)]
    assert [name for name in (*names, *slugs) if f"| `{name}` |" not in text] == []


def test_every_meaning_of_a_label_is_on_the_page() -> None:
    text = page()
    rows = {f"| `{each.name}` | {each.meaning} |" for one in catalogue.ALL for each in one.declared}
    assert [row for row in sorted(rows) if row not in text] == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("| gauge | `controller` |", "| gauge | `queue` |", id="label"),
        pytest.param("| `runyard_fences_total` |", "| `runyard_gone_total` |", id="name"),
        pytest.param("| `slot-sweep` |", "| `slots` |", id="loop"),
        pytest.param("| `jobs-starve` | warning", "| `jobs-starve` | error", id="severity"),
    ],
)
def test_a_stale_page_is_noticed(old: str, new: str) -> None:
    stale = page().replace(old, new)
    assert stale != page()
    assert metrics_doc.render(stale) == page() != stale


@pytest.mark.parametrize("metric", OURS, ids=lambda metric: metric.name)
def test_names_labels_and_values_are_slugs(metric: Metric) -> None:
    assert all(SNAKE.fullmatch(label) for label in metric.labels)
    values = [value for label in metric.declared for value in label.values]
    assert [
        value for value in values if not (SLUG.fullmatch(value) or value == "process_xcresult")
    ] == []
    assert not PRIVATE_WORDS.search(" ".join((metric.name.replace("_", " "), *metric.labels)))


@pytest.mark.parametrize("metric", catalogue.ALL, ids=lambda metric: metric.name)
def test_a_metric_says_who_serves_it_and_what_it_means(metric: Metric) -> None:
    assert metric.components
    assert metric.labels == tuple(label.name for label in metric.declared)
    assert all(label.meaning for label in metric.declared)
    assert metric.help.endswith(".")
    assert not PRIVATE_WORDS.search(metric.help)


def test_the_conditions_are_a_closed_set_of_slugs() -> None:
    constants = {k: v for k, v in vars(conditions).items() if isinstance(v, Condition)}
    assert tuple(constants.values()) == conditions.ALL
    assert [name for name, each in constants.items() if slug_of(name) != each.code] == []
    assert all(SLUG.fullmatch(each.code) and each.title and each.fix for each in conditions.ALL)


def test_components_and_loops_are_slugs_that_say_what_they_are() -> None:
    assert all(SLUG.fullmatch(each) for each in (*Component, *Loop))
    assert all(each.template.endswith(".") for each in Loop)
    assert not [each for each in Loop if PRIVATE_WORDS.search(f"{each} {each.template}")]


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("OutcomeUnknown", "outcome-unknown"),
        ("HTTPError", "http-error"),
        ("given_up", "given-up"),
        ("Pod", "pod"),
    ],
)
def test_class_names_become_slugs(name: str, slug: str) -> None:
    assert slug_of(name) == slug
