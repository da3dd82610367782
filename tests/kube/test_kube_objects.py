"""Objects as real servers write them must be readable, nulls and unknown fields included."""

import msgspec
import pytest

from runyard.kube.objects import Bare, Lease, Node, Pod, Reader, RunnerPool, ServiceAccount

POD = """{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"n","uid":"u",
"resourceVersion":"7","creationTimestamp":"2026-01-01T00:00:00Z","deletionTimestamp":null,
"deletionGracePeriodSeconds":30,"labels":{"x":"y"},"annotations":null,"finalizers":["f"],
"ownerReferences":[{"apiVersion":"v1","kind":"K","name":"o","uid":"ou","controller":true,
"blockOwnerDeletion":true}],"managedFields":[{"manager":"m","fieldsV1":{"f:x":{}}}]},
"spec":{"nodeName":"host","serviceAccountName":"sa","automountServiceAccountToken":false,
"terminationGracePeriodSeconds":0,"nodeSelector":{"os":"darwin"},"volumes":null,"initContainers":null,
"containers":[{"name":"c","image":"i","env":[{"name":"A","value":"1"},{"name":"B","valueFrom":{}}],
"resources":{"requests":{"cpu":"8"},"limits":null}}]},
"status":{"phase":"Running","podIP":"10.0.0.1","hostIP":"10.0.0.2","podIPs":[{"ip":"10.0.0.1"}],
"conditions":[{"type":"Ready","status":"True","lastProbeTime":null,"lastTransitionTime":"t"}],
"containerStatuses":[{"name":"c","ready":true,"restartCount":0,"state":{"terminated":
{"exitCode":3,"reason":"Error","finishedAt":"f","containerID":"x"}},"lastState":{}}]}}"""


def test_a_pod_as_a_server_writes_it() -> None:
    pod = Reader(Pod).read(POD.encode())
    meta, spec, status = pod.metadata, pod.spec, pod.status
    assert (meta.uid, meta.resource_version, meta.labels) == ("u", "7", {"x": "y"})
    assert (meta.deletion_timestamp, meta.deletion_grace_period_seconds) == ("", 30)
    assert (meta.annotations, meta.finalizers) == ({}, ("f",))
    assert meta.owner_references[0].controller
    assert (spec.node_name, spec.service_account_name) == ("host", "sa")
    assert spec.automount_service_account_token is False
    assert spec.termination_grace_period_seconds == 0
    assert spec.containers[0].env[0].value == "1"
    assert spec.containers[0].resources.requests == {"cpu": "8"}
    assert spec.init_containers == ()
    assert (status.pod_ip, status.host_ip) == ("10.0.0.1", "10.0.0.2")
    assert status.conditions[0].type == "Ready"
    ended = status.container_statuses[0].state.terminated
    assert ended is not None
    assert ended.exit_code == 3


def test_nodes_leases_and_the_rest() -> None:
    node = Reader(Node).read(
        b'{"metadata":{"name":"h"},"spec":{"unschedulable":true,"providerID":"p","taints":'
        b'[{"key":"k","effect":"NoSchedule","timeAdded":null}]},"status":{"capacity":{"pods":"2"},'
        b'"addresses":[{"type":"InternalIP","address":"1.2.3.4"}],"nodeInfo":{"osImage":"m",'
        b'"kubeletVersion":"v"},"conditions":[{"type":"Ready","status":"Unknown",'
        b'"lastHeartbeatTime":"t"}]}}'
    )
    assert node.spec.unschedulable
    assert (node.spec.provider_id, node.spec.taints[0].effect) == ("p", "NoSchedule")
    assert (node.status.capacity, node.status.node_info.os_image) == ({"pods": "2"}, "m")
    assert node.status.conditions[0].last_heartbeat_time == "t"
    lease = Reader(Lease).read(
        b'{"metadata":{"name":"h"},"spec":{"holderIdentity":"h","leaseDurationSeconds":40,'
        b'"renewTime":"r","acquireTime":null,"leaseTransitions":2}}'
    )
    assert (lease.spec.holder_identity, lease.spec.lease_duration_seconds) == ("h", 40)
    assert lease.spec.acquire_time == ""
    assert Reader(ServiceAccount).read(b'{"metadata":{"name":"s"},"secrets":null}').metadata.name


def test_a_pool_keeps_an_explicit_zero_and_takes_the_defaults() -> None:
    pool = Reader(RunnerPool).read(
        b'{"metadata":{"name":"p","generation":3},"spec":{"image":"i","fleetSelector":"f",'
        b'"dispatchLabel":"d","runnerLabels":["r"],"replicas":0,"podCPUMilli":4000,'
        b'"autoscaling":null,"rollout":{"maxConcurrentPercent":20}},"status":null}'
    )
    assert (pool.spec.replicas, pool.spec.pod_cpu_milli) == (0, 4000)
    assert pool.spec.rollout.max_concurrent_percent == 20
    assert not pool.spec.autoscaling.enabled
    assert pool.metadata.generation == 3


@pytest.mark.parametrize("type_", [Pod, Node, ServiceAccount, Lease, Bare])
def test_only_the_name_is_required(type_: type[Bare]) -> None:
    assert Reader(type_).read(b'{"metadata":{"name":"a"}}').metadata.name == "a"
    with pytest.raises(msgspec.ValidationError):
        Reader(type_).read(b'{"metadata":{}}')
    with pytest.raises(msgspec.DecodeError):
        Reader(type_).read(b"{")
