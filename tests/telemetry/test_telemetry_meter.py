"""Tests the meter: a wrong write raises at its line, and the exposition shows what was written."""

from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from runyard.telemetry import catalogue as c
from runyard.telemetry.meter import Meter
from runyard.telemetry.metric import Kind, Metric

UNDECLARED = Metric(Kind.GAUGE, "runyard_undeclared", (), "Not declared.")
TWIN = Metric(Kind.GAUGE, "runyard_queue_depth", ("controller", "extra"), "Not the declared.")


def samples(meter: Meter) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(meter.exposition().decode())
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for f in families for s in f.samples}


@pytest.mark.parametrize(
    ("write", "error"),
    [
        pytest.param(lambda m: m.set(UNDECLARED, 1), ValueError, id="undeclared"),
        pytest.param(
            lambda m: m.set(TWIN, 1, controller="pod-controller", extra="b"),
            ValueError,
            id="not-the-catalogue's",
        ),
        pytest.param(lambda m: m.set(c.RUNYARD_QUEUE_DEPTH, 1), TypeError, id="label-missing"),
        pytest.param(
            lambda m: m.set(c.RUNYARD_QUEUE_DEPTH, 1, controller="pod-controller", pool="b"),
            TypeError,
            id="label-unknown",
        ),
        pytest.param(
            lambda m: m.set(c.RUNYARD_QUEUE_DEPTH, 1, controller=None), TypeError, id="label-None"
        ),
        pytest.param(
            lambda m: m.inc(c.RUNYARD_QUEUE_DEPTH, controller="pod-controller"),
            TypeError,
            id="inc-of-gauge",
        ),
        pytest.param(
            lambda m: m.observe(c.RUNYARD_FENCES_TOTAL, 1, answer="busy"),
            TypeError,
            id="observe-of-counter",
        ),
        pytest.param(
            lambda m: m.inc(c.RUNYARD_FENCES_TOTAL, -1, answer="busy"), TypeError, id="shrinking"
        ),
        pytest.param(
            lambda m: m.clear(c.RUNYARD_FENCES_TOTAL, pool="x"), TypeError, id="clear-unknown"
        ),
        pytest.param(
            lambda m: m.inc(c.RUNYARD_FENCES_TOTAL, answer="perhaps"), TypeError, id="value-unknown"
        ),
    ],
)
def test_a_wrong_write_is_an_error_at_once(
    write: Callable[[Meter], None], error: type[Exception]
) -> None:
    meter = Meter()
    with pytest.raises(error):
        write(meter)
    assert samples(meter) == {}


def test_the_wire_name_of_a_counter_is_not_changed_by_the_library() -> None:
    meter = Meter()
    meter.inc(c.TUIST_RUNNERS_WEBHOOK_COUNT, action="queued", outcome="applied")
    meter.inc(c.RUNYARD_FENCES_TOTAL, 2, answer="busy")
    text = meter.exposition().decode()
    assert "# TYPE tuist_runners_webhook_count counter\n" in text
    assert 'tuist_runners_webhook_count{action="queued",outcome="applied"} 1.0\n' in text
    assert "tuist_runners_webhook_count_total" not in text
    assert 'runyard_fences_total{answer="busy"} 2.0\n' in text
    assert "fences_total_total" not in text


def test_histogram_buckets_are_cumulative_and_include_their_bound() -> None:
    meter = Meter()
    for value in (0.001, 0.002, 0.005, 70.0):
        meter.observe(c.RUNYARD_RECONCILE_SECONDS, value, controller="pod-controller")
    got = samples(meter)
    name = "runyard_reconcile_seconds"

    def bucket(le: str) -> float:
        return got[f"{name}_bucket", (("controller", "pod-controller"), ("le", le))]

    bounds = ("0.001", "0.005", "60.0", "+Inf")
    assert [bucket(le) for le in bounds] == [1, 3, 3, 4]
    assert got[f"{name}_count", (("controller", "pod-controller"),)] == 4
    assert got[f"{name}_sum", (("controller", "pod-controller"),)] == pytest.approx(70.008)
    assert meter.get(c.RUNYARD_RECONCILE_SECONDS, controller="pod-controller") == 4


def test_a_pool_that_disappeared_leaves_no_series() -> None:
    meter = Meter()
    for pool in ("a", "b"):
        for phase in ("Pending", "Running"):
            meter.set(c.TUIST_RUNNERS_POOL_PHASE_REPLICAS, 0, pool=pool, phase=phase)
    meter.clear(c.TUIST_RUNNERS_POOL_PHASE_REPLICAS, pool="a")
    metric = c.TUIST_RUNNERS_POOL_PHASE_REPLICAS
    assert meter.get(metric, pool="a", phase="Pending") is None
    assert meter.get(metric, pool="b", phase="Pending") == 0
    meter.clear(metric)
    assert b"phase_replicas" not in meter.exposition()


def test_two_meters_in_one_process_do_not_share_values() -> None:
    first, second = Meter(), Meter()
    first.inc(c.RUNYARD_FENCES_TOTAL, answer="deleted")
    assert second.get(c.RUNYARD_FENCES_TOTAL, answer="deleted") is None
    assert first.total(c.RUNYARD_FENCES_TOTAL) == 1
    assert second.total(c.RUNYARD_FENCES_TOTAL) == 0


def test_an_undeclared_label_value_does_not_raise_in_production(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Meter, "check_values", False)
    meter = Meter()
    meter.inc(c.RUNYARD_FENCES_TOTAL, answer="perhaps")
    assert meter.get(c.RUNYARD_FENCES_TOTAL, answer="perhaps") == 1
