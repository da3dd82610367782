"""Tests the projection of API objects into views; invalid fields protect a runner."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runyard.kube.objects import Node, Pod, Reader, RunnerPool, ServiceAccount
from runyard.pools.plans import predicates
from runyard.pools.plans.views import NodeView
from runyard.pools.projection import (
    healthy,
    project_account,
    project_node,
    project_pool,
    project_runner,
)
from runyard.wire import names
from runyard.wire.instants import from_rfc3339

READ_POD: Reader[Pod] = Reader(Pod)
T0, T1, T2 = "2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z", "2026-01-01T00:07:00Z"


def pod(*, meta: Any = None, spec: Any = None, status: Any = None) -> Pod:
    raw = {
        "metadata": {
            "name": "r",
            "namespace": "n",
            "uid": "u",
            "resourceVersion": "5",
            **(meta or {}),
        },
        "spec": {
            "nodeName": "host",
            "containers": [{"name": "runner", "image": "img"}],
            **(spec or {}),
        },
        "status": {"phase": "Running", **(status or {})},
    }
    return READ_POD.read(msgspec.json.encode(raw))


def condition(status: str, at: str, reason: str = "") -> dict[str, Any]:
    return {
        "type": "PodScheduled",
        "status": status,
        "lastTransitionTime": at,
        "reason": reason,
    }


def test_a_bound_pod_counts_its_start_from_the_binding():
    view = project_runner(
        pod(meta={"creationTimestamp": T0}, status={"conditions": [condition("True", T1)]})
    )
    assert (view.created_at, view.bound_at) == (from_rfc3339(T0), from_rfc3339(T1))
    assert (view.image, view.node, view.uid, view.resource_version) == ("img", "host", "u", "5")
    assert view.readable


def test_without_the_condition_the_start_time_is_the_binding_time():
    assert project_runner(pod(status={"startTime": T1})).bound_at == from_rfc3339(T1)


def test_an_unschedulable_pod_has_the_time_of_its_condition():
    status = {"phase": "Pending", "conditions": [condition("False", T1, "Unschedulable")]}
    view = project_runner(pod(spec={"nodeName": ""}, status=status))
    assert (view.unschedulable_since, view.bound_at) == (from_rfc3339(T1), None)
    gated = {"phase": "Pending", "conditions": [condition("False", T1, "SchedulingGated")]}
    assert project_runner(pod(spec={"nodeName": ""}, status=gated)).unschedulable_since is None


@pytest.mark.parametrize(
    "invalid",
    [
        pytest.param({"status": {"phase": "Dreaming"}}, id="unknown-phase"),
        pytest.param({"meta": {"creationTimestamp": "yesterday"}}, id="no-instant"),
        pytest.param({"meta": {"uid": ""}}, id="no-uid"),
        pytest.param({"status": {"conditions": [condition("True", "2026-13-01")]}}, id="no-date"),
    ],
)
def test_an_unreadable_pod_counts_as_busy(invalid):
    assert not predicates.idle(project_runner(pod(**invalid)))


@given(text=st.text(max_size=30))
def test_an_invalid_annotation_is_ignored(text):
    annotations = {names.START_PROGRESS_AT: text, names.DRAIN_ELIGIBLE_AT: text}
    view = project_runner(pod(meta={"annotations": annotations}))
    assert predicates.idle(view)


@given(text=st.text(max_size=30))
def test_no_text_for_an_instant_raises(text):
    meta = {"creationTimestamp": text, "deletionTimestamp": text}
    view = project_runner(pod(meta=meta))
    assert bool(text) is (view.deleting_at is not None)


def test_labels_and_annotations_become_fields_of_the_view():
    view = project_runner(
        pod(
            meta={
                "labels": {names.POOL_OWNER: "acme", names.DRAIN_ELIGIBLE: "true"},
                "annotations": {
                    names.START_PROGRESS_AT: T1,
                    names.DRAIN_ELIGIBLE_AT: T2,
                    names.RUNTIME_REVISION: "r1",
                },
                "deletionTimestamp": T2,
                "deletionGracePeriodSeconds": 7,
            }
        )
    )
    assert (view.owner, view.marked, view.runtime_revision) == ("acme", True, "r1")
    assert (view.progress_at, view.marked_at) == (from_rfc3339(T1), from_rfc3339(T2))
    assert (view.deleting_at, view.grace_seconds) == (from_rfc3339(T2), 7)


@pytest.mark.parametrize(
    ("state", "poller"),
    [
        ({"running": {"startedAt": T0}}, "running"),
        ({"terminated": {"exitCode": 0}}, "terminated"),
        ({"waiting": {"reason": "PodInitializing"}}, ""),
    ],
)
def test_the_poller_state_follows_from_its_container(state, poller):
    statuses = [
        {"name": "dind", "state": {"running": {}}},
        {"name": "poller", "state": state},
    ]
    assert project_runner(pod(status={"initContainerStatuses": statuses})).poller == poller


def test_the_end_of_a_runner_is_the_last_end_of_its_containers():
    statuses = [
        {"name": "a", "state": {"terminated": {"finishedAt": T2}}},
        {"name": "b", "state": {"terminated": {"finishedAt": T1}}},
        {"name": "c", "state": {"running": {}}},
    ]
    view = project_runner(pod(status={"phase": "Failed", "containerStatuses": statuses}))
    assert view.finished_at == from_rfc3339(T2)


@pytest.mark.parametrize(
    ("raw", "view", "fit"),
    [
        pytest.param({}, NodeView(name="h"), True, id="ready"),
        pytest.param(
            {"spec": {"unschedulable": True}},
            NodeView(name="h", leaving=True),
            False,
            id="cordoned",
        ),
        pytest.param(
            {"deletionTimestamp": T0}, NodeView(name="h", leaving=True), False, id="deleted"
        ),
        pytest.param({"conditions": {"Ready": "Unknown"}}, NodeView(name="h"), False, id="lost"),
        pytest.param({"conditions": {}}, NodeView(name="h"), False, id="never-reported"),
        pytest.param(
            {"conditions": {"Ready": "True", "DiskPressure": "True"}},
            NodeView(name="h"),
            False,
            id="full",
        ),
    ],
)
def test_a_host_is_healthy_only_if_its_conditions_say_so(raw, view, fit):
    states = raw.get("conditions", {"Ready": "True"})
    conditions = [{"type": type_, "status": status} for type_, status in states.items()]
    meta = {"name": "h"}
    if "deletionTimestamp" in raw:
        meta["deletionTimestamp"] = raw["deletionTimestamp"]
    body = {"metadata": meta, "spec": raw.get("spec", {}), "status": {"conditions": conditions}}
    node = Reader(Node).of(body)
    assert project_node(node) == view
    assert healthy(node) is fit


def test_pools_and_accounts_keep_what_their_patches_need():
    spec = {
        "image": "i",
        "fleetSelector": "f",
        "dispatchLabel": "d",
        "runnerLabels": ["x"],
        "replicas": 2,
    }
    meta = {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "9", "finalizers": ["z"]}
    pool = project_pool(Reader(RunnerPool).of({"metadata": meta, "spec": spec}))
    assert (pool.uid, pool.resource_version, pool.finalizers) == ("u", "9", ("z",))
    assert (pool.spec.replicas, pool.deleting) == (2, False)
    account = project_account(
        Reader(ServiceAccount).of({"metadata": {**meta, "creationTimestamp": T0}})
    )
    assert (account.uid, account.created_at, account.deleting) == ("u", from_rfc3339(T0), False)


def test_who_polls_and_where_is_read_from_the_pools_annotations():
    chosen = {names.POLLER: "host", names.GUEST_DISPATCH_URL: "https://guests.test/x"}
    labels = {"dispatchLabel": "mac", "runnerLabels": []}
    spec = {"image": "i", "fleetSelector": "f", "podCPUMilli": 1, "podMemoryMB": 1, **labels}
    for annotations, wanted in ((chosen, ("host", "https://guests.test/x")), ({}, ("", ""))):
        meta = {"name": "mac", "namespace": "n", "uid": "u", "annotations": annotations}
        view = project_pool(Reader(RunnerPool).of({"metadata": meta, "spec": spec}))
        assert (view.poller, view.dispatch_url) == wanted
