"""Holds the values of one component's metrics.

A `Meter` has its own registry, never the library's global one: in the simulator and in tests many components run
in one process, each with its own values.

Invariants:
- Only metrics of the catalogue, only their own labels, only text as a label's value. A mistake is an
  exception at the line that made it (`ValueError` for an unknown metric, `TypeError` for the rest), in
  every environment, so that the first test that runs the line finds it.
- Where the catalogue lists all values of a label, tests refuse others (`check_values`), and everywhere a value with a
  space: reading a series by a value that no code writes would find 0 for ever. In production an undeclared value is
  exposed as it is: a missing line of documentation must not stop a loop.
- The exposed names are exactly the declared ones.
- Writing costs two dictionary lookups: values are plain floats here, and the Prometheus library is
  called only at a scrape.
"""

from bisect import bisect_left
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric as Family

from runyard.telemetry.catalogue import ALL
from runyard.telemetry.metric import Kind, Metric

Key = tuple[str, ...]


class _Histogram:
    """Counts per bucket (the last one is everything above) and the sum."""

    __slots__ = ("counts", "total")

    def __init__(self, buckets: int) -> None:
        self.counts = [0] * (buckets + 1)
        self.total = 0.0


class _Series:
    """All label combinations of one metric, in the order of their first use."""

    __slots__ = ("distributions", "metric", "values")

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.values: dict[Key, float] = {}
        self.distributions: dict[Key, _Histogram] = {}


class Meter:
    """Keeps and exposes the metrics of one component."""

    check_values = False  # the tests switch it on

    def __init__(self, metrics: Iterable[Metric] = ALL) -> None:
        self._series = {metric.name: _Series(metric) for metric in metrics}
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)

    def set(self, metric: Metric, value: float, /, **labels: str) -> None:
        """Set a gauge."""
        series = self._find(metric, Kind.GAUGE)
        series.values[self._key(metric, labels)] = float(value)

    def inc(self, metric: Metric, amount: float = 1.0, /, **labels: str) -> None:
        """Add to a counter; a negative amount is a `TypeError`."""
        series = self._find(metric, Kind.COUNTER)
        if amount < 0:
            raise TypeError(f"{metric.name} is a counter and cannot shrink by {amount}")
        key = self._key(metric, labels)
        series.values[key] = series.values.get(key, 0.0) + amount

    def observe(self, metric: Metric, value: float, /, **labels: str) -> None:
        """Add one observation to a histogram."""
        series = self._find(metric, Kind.HISTOGRAM)
        key = self._key(metric, labels)
        found = series.distributions.get(key)
        if found is None:
            found = series.distributions[key] = _Histogram(len(metric.buckets))
        found.counts[bisect_left(metric.buckets, value)] += 1
        found.total += value

    def clear(self, metric: Metric, /, **labels: str) -> None:
        """Drop every series that has these labels; with none given, all of them."""
        series = self._find(metric, metric.kind)
        for name in labels:
            if name not in metric.labels:
                raise TypeError(f"{metric.name} has no label {name!r}, only {metric.labels}")
        wanted = [(metric.labels.index(name), value) for name, value in labels.items()]
        for key in [*series.values, *series.distributions]:
            if all(key[place] == value for place, value in wanted):
                series.values.pop(key, None)
                series.distributions.pop(key, None)

    def get(self, metric: Metric, /, **labels: str) -> float | None:
        """The current value (of a histogram: how many observations), None if there is no series."""
        series = self._find(metric, metric.kind)
        key = self._key(metric, labels)
        if metric.kind is Kind.HISTOGRAM:
            found = series.distributions.get(key)
            return None if found is None else float(sum(found.counts))
        return series.values.get(key)

    def total(self, metric: Metric, /) -> float:
        """The sum over all label combinations (of a histogram: all observations)."""
        series = self._find(metric, metric.kind)
        observed = sum(sum(found.counts) for found in series.distributions.values())
        return sum(series.values.values()) + observed

    def exposition(self) -> bytes:
        """Everything in the Prometheus text format."""
        text = generate_latest(self.registry)
        for series in self._series.values():
            name = series.metric.name
            if series.metric.kind is Kind.COUNTER and not name.endswith("_total"):
                # The library knows only counters that end in _total; the wire has others.
                for line in (b"# HELP ", b"# TYPE "):
                    text = text.replace(
                        line + name.encode() + b"_total ", line + name.encode() + b" "
                    )
        return text

    def collect(self) -> Iterable[Family]:
        """Yield one family per metric that has a value; the registry calls this at a scrape."""
        for series in self._series.values():
            if series.values or series.distributions:
                yield _family(series)

    def _find(self, metric: Metric, kind: Kind) -> _Series:
        series = self._series.get(metric.name)
        if series is None or series.metric is not metric:
            raise ValueError(f"metric {metric.name} is not declared in the catalogue")
        if metric.kind is not kind:
            raise TypeError(f"{metric.name} is a {metric.kind}, not a {kind}")
        return series

    def _key(self, metric: Metric, labels: dict[str, str]) -> Key:
        try:
            key = tuple([labels[name] for name in metric.labels])
        except KeyError as missing:
            raise TypeError(f"{metric.name} needs the label {missing}") from None
        if len(labels) != len(key):
            unknown = [name for name in labels if name not in metric.labels]
            raise TypeError(f"{metric.name} has no label {unknown}, only {metric.labels}")
        for value in key:
            if not isinstance(value, str):
                raise TypeError(f"labels of {metric.name} must be text, not {value!r}")
        if self.check_values:
            _check_values(metric, key)
        return key


def _check_values(metric: Metric, key: Key) -> None:
    for label, value in zip(metric.declared, key, strict=True):
        if label.values and value not in label.values:
            raise TypeError(f"{metric.name}: {label.name}={value!r} is not in the catalogue")
        if " " in value:
            raise TypeError(f"{metric.name}: {label.name}={value!r} is not a slug or a name")


def _family(series: _Series) -> Family:
    metric = series.metric
    family = Family(metric.name.removesuffix("_total"), metric.help, metric.kind.value)
    for key, value in series.values.items():
        family.add_sample(metric.name, dict(zip(metric.labels, key, strict=True)), value)
    for key, found in series.distributions.items():
        _add_histogram(family, metric, dict(zip(metric.labels, key, strict=True)), found)
    return family


def _add_histogram(
    family: Family, metric: Metric, labels: dict[str, str], found: _Histogram
) -> None:
    running = 0
    for bound, count in zip((*map(str, metric.buckets), "+Inf"), found.counts, strict=True):
        running += count
        family.add_sample(f"{metric.name}_bucket", {**labels, "le": bound}, running)
    family.add_sample(f"{metric.name}_count", labels, running)
    family.add_sample(f"{metric.name}_sum", labels, found.total)
