"""Tests the declared metrics: names, labels and help texts."""

import re

import pytest

from runyard.telemetry import catalogue
from runyard.telemetry.catalogue import ALL
from runyard.telemetry.metric import Kind, Metric


def test_a_constant_that_differs_from_its_wire_name_cannot_be_found() -> None:
    constants = {k: v for k, v in vars(catalogue).items() if isinstance(v, Metric)}
    assert {name: metric.name.upper() for name, metric in constants.items()} == {
        name: name for name in constants
    }
    assert tuple(constants.values()) == ALL


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: metric.name)
def test_a_metric_that_prometheus_would_refuse_is_not_declared(metric: Metric) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9_]*", metric.name)
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", label) for label in metric.labels)
    assert metric.help.endswith(".")
    assert (metric.kind is Kind.HISTOGRAM) == bool(metric.buckets)
    if metric.kind is Kind.COUNTER:
        assert metric.name.endswith(("_total", "_count"))
    if metric.kind is Kind.HISTOGRAM:
        assert "le" not in metric.labels


def test_an_account_never_becomes_a_label() -> None:
    labels = {label for metric in ALL for label in metric.labels}
    assert not labels & {"account", "tenant", "pod", "job", "repository", "uid"}


def test_declaring_a_name_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        catalogue.gauge("runyard_queue_depth", "Again.")


def test_buckets_that_do_not_ascend_are_refused() -> None:
    with pytest.raises(ValueError, match="ascend"):
        catalogue.histogram("runyard_test_seconds", "Wrong.", buckets=(2.0, 1.0))
