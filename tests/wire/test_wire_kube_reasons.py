"""Tests the reasons in Kubernetes objects: CamelCase, and unchanged where existing fleets read them."""

import pytest

from runyard.node.plans.reasons import NodeReason, PodReason
from runyard.pools.plans.reasons import EventReason, PoolReason
from runyard.wire import names
from runyard.wire.kube_reasons import KubeCode

ON_THE_WIRE: dict[KubeCode, str] = {
    PodReason.TART_CREATE_FAILED: names.REASON_CREATE_FAILED,
    PodReason.TART_RUN_EXITED: names.REASON_RUN_EXITED,
    PodReason.TART_RUN_FAILED: names.REASON_RUN_FAILED,
    PodReason.COMPLETED: "Completed",
    PodReason.ERROR: "Error",
    NodeReason.TART_KUBELET_READY: names.REASON_NODE_READY,
    NodeReason.TART_KUBELET_HAS_SUFFICIENT_DISK: "TartKubeletHasSufficientDisk",
    NodeReason.TART_KUBELET_HAS_DISK_PRESSURE: "TartKubeletHasDiskPressure",
    PoolReason.AS_ASKED: names.REASON_AS_ASKED,
    PoolReason.SCALED_TO_ZERO: names.REASON_SCALED_TO_ZERO,
    PoolReason.BACKOFF: names.REASON_BACKOFF,
    PoolReason.NO_HEALTHY_HOST: names.REASON_NO_HEALTHY_HOST,
    PoolReason.PROVISIONING_CEILING: names.REASON_PROVISIONING_CEILING,
    PoolReason.PROVISIONING_SHARE: names.REASON_PROVISIONING_SHARE,
    PoolReason.DELETING: names.REASON_DELETING,
    PoolReason.ROLLING: names.REASON_ROLLING,
    PoolReason.ROLL_CAPPED: names.REASON_ROLL_CAPPED,
    EventReason.RUNNER_POD_START_TIMED_OUT: "RunnerPodStartTimedOut",
    EventReason.RUNNER_POD_UNSCHEDULABLE: "RunnerPodUnschedulable",
    EventReason.RUNNER_POD_RETIRED_FOR_NODE_DRAIN: "RunnerPodRetiredForNodeDrain",
}


@pytest.mark.parametrize("code", ON_THE_WIRE, ids=str)
def test_a_reason_keeps_its_spelling_on_the_wire(code: KubeCode) -> None:
    assert code.camel == ON_THE_WIRE[code]


@pytest.mark.parametrize(
    "code", [*PodReason, *NodeReason, *PoolReason, *EventReason], ids=lambda code: code.camel
)
def test_kubernetes_would_accept_every_reason(code: KubeCode) -> None:
    assert code.camel.isalnum() and code.camel[0].isupper()
