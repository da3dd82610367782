"""Declares metrics: the types of a metric and of its labels.

A `Label` documents its values. Where they form a closed set it lists them all, and a `Meter`
in the tests refuses any other, so that no value reaches a dashboard without being documented.
"""

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from runyard.telemetry.names import Component


class Kind(StrEnum):
    """The kind of a metric."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class Label(msgspec.Struct, frozen=True):
    """One label: its name, its meaning, and all of its values if they are a closed set."""

    name: str
    meaning: str
    values: tuple[str, ...] = ()


class Metric(msgspec.Struct, frozen=True):
    """One declared metric. `labels` are the names of `declared`, in the same order."""

    kind: Kind
    name: str
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...] = ()
    declared: tuple[Label, ...] = ()
    components: tuple[Component, ...] = ()


class Declared:
    """Collects metrics in the order of their declaration and refuses a name that is declared twice."""

    def __init__(self) -> None:
        self._metrics: list[Metric] = []

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._metrics)

    def gauge(self, name: str, help: str, *labels: Label, of: tuple[Component, ...] = ()) -> Metric:
        """Declare a value that goes up and down."""
        return self._add(Kind.GAUGE, name, help, labels, of)

    def counter(
        self, name: str, help: str, *labels: Label, of: tuple[Component, ...] = ()
    ) -> Metric:
        """Declare a value that only grows."""
        return self._add(Kind.COUNTER, name, help, labels, of)

    def histogram(
        self,
        name: str,
        help: str,
        *labels: Label,
        buckets: tuple[float, ...],
        of: tuple[Component, ...] = (),
    ) -> Metric:
        """Declare a distribution; `buckets` are upper bounds, ascending, without infinity."""
        if not buckets or list(buckets) != sorted(set(buckets)):
            raise ValueError(f"buckets of {name} must ascend")
        return self._add(Kind.HISTOGRAM, name, help, labels, of, buckets)

    def _add(
        self,
        kind: Kind,
        name: str,
        help: str,
        labels: tuple[Label, ...],
        of: tuple[Component, ...],
        buckets: tuple[float, ...] = (),
    ) -> Metric:
        if any(known.name == name for known in self._metrics):
            raise ValueError(f"metric {name} is declared twice")
        names = tuple(label.name for label in labels)
        metric = Metric(kind, name, names, help, buckets, declared=labels, components=of)
        self._metrics.append(metric)
        return metric
