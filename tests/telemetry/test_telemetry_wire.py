"""Tests that server and agent have the metrics that dashboards and alerts read: name, labels and buckets."""

import pytest

from runyard.telemetry import catalogue
from runyard.telemetry.metric import Kind

WAITS = (50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000, 300000)
RUNS = (
    *(1000, 5000, 30000, 60000, 300000, 900000, 1800000, 3600000),
    *(7200000, 14400000, 21600000),
)
REQUESTS = (10, 50, 100, 250, 500, 1000, 2500, 5000, 10000)

# docs/metrics.md says what is missing here on purpose, and why.
SERVER: dict[str, tuple[Kind, tuple[str, ...], tuple[int, ...]]] = {
    "tuist_runners_job_enqueued_count": (Kind.COUNTER, ("fleet",), ()),
    "tuist_runners_job_claim_count": (Kind.COUNTER, ("fleet", "outcome"), ()),
    "tuist_runners_job_running_count": (Kind.COUNTER, ("fleet",), ()),
    "tuist_runners_job_completed_count": (Kind.COUNTER, ("fleet", "conclusion"), ()),
    "tuist_runners_job_requeued_count": (Kind.COUNTER, ("fleet",), ()),
    "tuist_runners_job_queue_time_milliseconds": (Kind.HISTOGRAM, ("fleet",), WAITS),
    "tuist_runners_job_queue_to_running_time_milliseconds": (Kind.HISTOGRAM, ("fleet",), WAITS),
    "tuist_runners_job_claim_to_running_time_milliseconds": (Kind.HISTOGRAM, ("fleet",), WAITS),
    "tuist_runners_job_run_time_milliseconds": (Kind.HISTOGRAM, ("fleet",), RUNS),
    "tuist_runners_job_total_time_milliseconds": (Kind.HISTOGRAM, ("fleet",), RUNS),
    "tuist_runners_recovery_stranded_time_milliseconds": (Kind.HISTOGRAM, ("fleet",), RUNS),
    "tuist_runners_dispatch_request_count": (Kind.COUNTER, ("fleet", "outcome"), ()),
    "tuist_runners_dispatch_request_duration_milliseconds": (
        Kind.HISTOGRAM,
        ("fleet", "outcome"),
        REQUESTS,
    ),
    "tuist_runners_webhook_count": (Kind.COUNTER, ("action", "outcome"), ()),
    "tuist_runners_recovery_count": (Kind.COUNTER, ("kind",), ()),
    "tuist_runners_queue_length": (Kind.GAUGE, ("fleet",), ()),
    "tuist_runners_queue_oldest_age_seconds": (Kind.GAUGE, ("fleet",), ()),
    "tuist_runners_queue_oldest_dispatchable_age_seconds": (Kind.GAUGE, ("fleet",), ()),
    "tuist_runners_queue_withheld": (Kind.GAUGE, ("fleet",), ()),
    "tuist_runners_claims_count": (Kind.GAUGE, ("fleet", "lifecycle_state"), ()),
    "tuist_runners_session_clamped_count": (Kind.GAUGE, ("fleet",), ()),
    "tuist_runners_pool_replicas_desired": (Kind.GAUGE, ("fleet",), ()),
    "tuist_runners_pool_replicas_observed": (Kind.GAUGE, ("fleet",), ()),
    "tuist_runners_pool_replicas_max": (Kind.GAUGE, ("fleet",), ()),
}

_STARTS = (1, 5, 10, 20, 30, 60, 120, 180, 300, 600, 1200, 1800, 3600)
_BOOTS = (10, 20, 30, 45, 60, 90, 120, 180, 240, 300, 600)
AGENT: dict[str, tuple[Kind, tuple[str, ...], tuple[int, ...]]] = {
    "tart_kubelet_pod_provision_delay_seconds": (Kind.HISTOGRAM, ("pool",), _STARTS),
    "tart_kubelet_vm_boot_duration_seconds": (Kind.HISTOGRAM, ("pool",), _BOOTS),
    "tart_kubelet_guest_disk_usage_percent": (Kind.GAUGE, ("vm",), ()),
    "tart_kubelet_unowned_vms": (Kind.GAUGE, (), ()),
}


@pytest.mark.parametrize("known", [SERVER, AGENT], ids=["server", "agent"])
def test_every_metric_of_existing_fleets_is_declared_as_dashboards_read_it(
    known: dict[str, tuple[Kind, tuple[str, ...], tuple[int, ...]]],
) -> None:
    declared = {
        metric.name: (metric.kind, metric.labels, tuple(int(bound) for bound in metric.buckets))
        for metric in catalogue.ALL
        if metric.name in known
    }
    assert declared == known


def test_every_metric_with_a_fleet_label_is_in_the_table() -> None:
    """Only the server's metrics have the label `fleet`, and all of them are in the table above."""
    fleets = {metric.name for metric in catalogue.ALL if "fleet" in metric.labels}
    assert fleets <= set(SERVER)
