"""Generates objects, and the small parts that patches change.

Bodies are mostly valid and sometimes invalid: a field is missing, unknown, of another type or out of range. The uid of
an owner is written as "current", which the player replaces by the last one that it received.
"""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st
from tests.conformance.kube.kinds import GAUGES, POOLS, Kind
from tests.conformance.kube.kit import Json

NAMES = ("a", "b")
words = st.sampled_from(("x", "y"))
nullable = st.one_of(st.none(), words)
_keys = st.sampled_from(("tier", "zone"))
labels = st.dictionaries(_keys, words, max_size=2)
some_labels = st.dictionaries(_keys, words, min_size=1, max_size=2)
cleared_labels = st.dictionaries(_keys, nullable, max_size=2)
_finalizers = st.sampled_from(("example.com/a", "example.com/b"))
finalizers = st.lists(_finalizers, unique=True, max_size=2)
some_finalizers = st.lists(_finalizers, unique=True, min_size=1, max_size=2)
_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"
_data = st.dictionaries(st.sampled_from(("k1", "k2", "k3")), words, max_size=3)


def seldom(times: int = 8) -> st.SearchStrategy[bool]:
    """True about once in `times` draws."""
    return st.integers(1, times).map(lambda number: number == 1)


@st.composite
def _meta(draw: st.DrawFn, kind: Kind, name: str) -> Json:
    meta: Json = {"name": name}
    if draw(st.booleans()):
        meta["labels"] = draw(some_labels)
    if draw(seldom(4)):
        meta["annotations"] = draw(some_labels)
    if draw(seldom(5)):
        meta["finalizers"] = draw(some_finalizers if kind.custom else finalizers)
    if draw(seldom(7)) and kind.namespaced and kind.plural != "events":
        meta["ownerReferences"] = [owner(kind, draw(st.sampled_from(NAMES)), draw(seldom(3)))]
    if draw(seldom(25)):
        meta["labels"] = {"tier": "not a label!"}
    return meta


def owner(kind: Kind, name: str, controller: bool = False) -> Json:
    given = {"apiVersion": kind.api_version, "kind": kind.kind, "name": name, "uid": "current"}
    return given | ({"controller": True, "blockOwnerDeletion": True} if controller else {})


def _optional(draw: st.DrawFn, options: Mapping[str, Any], times: int = 2) -> Json:
    return {key: value for key, value in options.items() if draw(seldom(times))}


@st.composite
def _pod(draw: st.DrawFn) -> Json:
    container: Json = {"name": "runner", "image": draw(st.sampled_from(("vm:1", "vm:2", "vm")))}
    container |= _optional(
        draw,
        {
            "resources": {"limits": {"cpu": "2000m", "memory": "1Gi"}},
            "env": [{"name": "E", "value": draw(words)}, {"name": "F", "value": ""}],
            "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}],
            "command": ["sh", "-c", "true"],
            "volumeMounts": [{"name": "v", "mountPath": draw(st.sampled_from(("/v", _TOKEN)))}],
            "readinessProbe": {"exec": {"command": ["true"]}},
        },
        4,
    )
    spec: Json = {"containers": [container], "schedulerName": "nobody"}
    if draw(st.booleans()):
        spec["automountServiceAccountToken"] = draw(st.booleans())
    if "volumeMounts" in container or draw(seldom(6)):
        volumes = ({"emptyDir": {}}, {"configMap": {"name": "a"}}, {"secret": {"secretName": "a"}})
        spec["volumes"] = [{"name": "v", **draw(st.sampled_from(volumes))}]
    spec |= _optional(
        draw,
        {
            "nodeName": "mac-1",
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 5,
            "nodeSelector": {"tier": "x"},
            "tolerations": [{"key": "example.com/mac", "operator": "Exists"}],
            "hostNetwork": True,
            "schedulingGates": [{"name": "example.com/gate"}],
        },
    )
    wrong = (
        {"restartPolicy": "Sometimes"},
        {"containers": []},
        {"containers": [container, container]},
        {"nodeSelector": {"tier": 1}},
        {"terminationGracePeriodSeconds": "soon"},
        {"tolerations": [{"operator": "Equal"}]},
    )
    return {"spec": spec | draw(st.sampled_from(wrong)) if draw(seldom(12)) else spec}


@st.composite
def _pool(draw: st.DrawFn) -> Json:
    spec: Json = {
        "image": draw(st.sampled_from(("vm:1", "vm:2"))),
        "fleetSelector": "f",
        "dispatchLabel": "d",
        "runnerLabels": draw(st.sampled_from((["self-hosted"], ["self-hosted", "mac"]))),
    }
    if draw(st.booleans()):
        spec["replicas"] = draw(st.integers(0, 3))
    spec |= _optional(
        draw,
        {
            "os": "linux",
            "provisioning": {},
            "autoscaling": {"enabled": True, "maxReplicas": 4},
            "idleTimeoutSeconds": 9,
        },
        4,
    )
    if draw(seldom(6)):
        del spec[draw(st.sampled_from(("image", "runnerLabels")))]
    wrong = ({"replicas": "2"}, {"os": "plan9"}, {"runnerLabels": "mac"}, {"podCPUMilli": -1})
    body: Json = {"spec": spec | draw(st.sampled_from(wrong)) if draw(seldom(10)) else spec}
    return body | ({"status": {"observedReplicas": 1}} if draw(seldom(6)) else {})


@st.composite
def _gauge(draw: st.DrawFn) -> Json:
    spec: Json = {"image": "vm:1"} | _optional(
        draw,
        {
            "replicas": draw(st.integers(0, 3)),
            "mode": "slow",
            "tags": draw(st.sampled_from((["a"], ["a", "b"], ["b"]))),
            "options": draw(labels),
            "free": {"any": {"thing": 1}},
            "port": draw(st.sampled_from((80, "http"))),
            "note": draw(nullable),
            "tuning": draw(st.sampled_from(({}, {"level": 5}, {"deep": {"on": False}}))),
            "parts": draw(
                st.sampled_from(([{"name": "one"}], [{"name": "one", "size": 2}, {"name": "two"}]))
            ),
        },
        3,
    )
    wrong: tuple[Json, ...] = (
        {"image": ""},
        {"mode": "odd"},
        {"tags": ["a", "a"]},
        {"tags": ["a", "b", "c"]},
        {"parts": [{"name": "one"}, {"name": "one"}]},
        {"parts": [{"size": 3}]},
        {"note": "NO"},
        {"port": True},
        {"replicas": 10},
        {"replicas": 1.5},
        {"options": {"k": 1}},
        {"surprise": 1, "tuning": {"other": 1}},
        {"image": None},
    )
    body: Json = {"spec": spec | draw(st.sampled_from(wrong)) if draw(seldom(7)) else spec}
    return body | ({"status": {"phase": "x"}} if draw(seldom(6)) else {})


_TAINT = {"key": "example.com/t", "effect": "NoSchedule"}
_SELECTED: Json = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
_RULE: Json = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
_RULES = st.lists(
    st.sampled_from((_RULE, _RULE | {"verbs": ["get", "list"]}, _RULE | {"resourceNames": ["a"]})),
    min_size=1,
    max_size=2,
)
_SUBJECTS = st.lists(
    st.sampled_from(({"kind": "User", "name": "u"}, {"kind": "Group", "name": "g"})), max_size=2
)
_PLAIN: dict[str, st.SearchStrategy[Json]] = {
    "configmaps": st.one_of(
        st.builds(lambda data: {"data": data}, _data),
        st.builds(lambda data: {"data": data}, _data),
        st.sampled_from(
            ({"binaryData": {"b": "aGk="}}, {"immutable": True}, {"data": {"k1": 1}}, {"dat": {}})
        ),
    ),
    "secrets": st.one_of(
        st.builds(lambda data: {"stringData": data}, _data),
        st.sampled_from(
            (
                {"type": "Opaque"},
                {"data": {"k1": "eA=="}},
                {"data": {"k2": "eQ=="}},
                {"type": "a/b"},
            )
        ),
    ),
    "serviceaccounts": st.sampled_from(
        ({}, {"automountServiceAccountToken": False}, {"secrets": [{"name": "x"}]})
    ),
    "leases": st.builds(
        lambda holder, more: {"spec": {"holderIdentity": holder, **more}},
        words,
        st.sampled_from(
            (
                {"leaseDurationSeconds": 40},
                {"leaseDurationSeconds": 40, "renewTime": "2026-01-02T03:04:05.000006Z"},
                {"leaseDurationSeconds": 0},
                {},
            )
        ),
    ),
    "nodes": st.sampled_from(
        (
            {},
            {"spec": {"taints": [{**_TAINT, "value": "x"}]}},
            {"spec": {"taints": [{**_TAINT, "value": "y"}], "unschedulable": True}},
            {"spec": {"podCIDR": "10.1.0.0/24", "providerID": "mac://1"}},
            {"status": {"capacity": {"pods": "2"}, "allocatable": {"pods": "2"}}},
            {"spec": {"taints": [{"key": "example.com/t"}]}},
        )
    ),
    "roles": st.one_of(st.builds(lambda rules: {"rules": rules}, _RULES), st.just({})),
    "rolebindings": st.builds(lambda who: {"subjects": who, "roleRef": _SELECTED}, _SUBJECTS),
    "runtimeclasses": st.sampled_from(({"handler": "one"}, {"handler": "two"}, {})),
}


@st.composite
def _event(draw: st.DrawFn) -> Json:
    about = {"kind": "Pod", "name": draw(st.sampled_from(NAMES)), "namespace": "current"}
    return {
        "involvedObject": about,
        "reason": draw(st.sampled_from(("Started", "Killed"))),
        "type": draw(st.sampled_from(("Normal", "Warning"))),
        "message": draw(words),
        **_optional(draw, {"count": 2, "lastTimestamp": "2026-01-02T03:04:05Z"}),
    }


def rest(kind: Kind) -> st.SearchStrategy[Json]:
    """What an object holds besides its metadata."""
    made = {"pods": _pod(), POOLS: _pool(), GAUGES: _gauge(), "events": _event()}
    return made[kind.plural] if kind.plural in made else _PLAIN[kind.plural]


def whole(kind: Kind, name: str) -> st.SearchStrategy[Json]:
    """A whole object of that name."""
    return st.builds(
        lambda meta, held: {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": meta,
            **held,
        },
        _meta(kind, name),
        rest(kind),
    )


# ---- what patches change

FIELDS: dict[str, tuple[Json, ...]] = {
    "configmaps": (
        {"data": {"k1": "x", "k2": None}},
        {"data": {"k1": None}},
        {"data": None},
        {"data": {"k2": "z"}, "surprise": 1},
        {"immutable": True},
    ),
    "secrets": ({"data": {"k1": "eA=="}}, {"stringData": {"k2": "y"}}, {"type": "other"}),
    "serviceaccounts": ({"automountServiceAccountToken": False}, {"secrets": [{"name": "y"}]}),
    "leases": (
        {"spec": {"holderIdentity": None}},
        {"spec": {"holderIdentity": "z", "leaseTransitions": 1}},
        {"spec": {"renewTime": "2026-01-02T03:04:05.5Z"}},
        {"spec": {"renewTime": "yesterday"}},
        {"spec": None},
    ),
    "events": ({"count": 3}, {"message": None}, {"series": None}),
    "pods": (
        {"spec": {"containers": [{"name": "runner", "image": "vm:3"}]}},
        {"spec": {"containers": [{"name": "other", "image": "vm:3"}]}},
        {"spec": {"hostNetwork": True}},
        {"spec": {"activeDeadlineSeconds": 60}},
        {"spec": {"activeDeadlineSeconds": 30}},
        {"spec": {"terminationGracePeriodSeconds": 9}},
        {"spec": {"nodeName": "mac-2"}},
        {"spec": {"tolerations": [{"key": "example.com/new", "operator": "Exists"}]}},
        {"spec": {"nodeSelector": {"tier": "y"}}},
        {"spec": {"surprise": 1}},
    ),
    "nodes": (
        {"spec": {"unschedulable": True}},
        {"spec": {"unschedulable": None}},
        {"spec": {"taints": [{"key": "example.com/u", "effect": "NoExecute"}]}},
        {"spec": {"taints": [{"key": "example.com/t", "$patch": "delete"}]}},
        {"spec": {"taints": None}},
        {"spec": {"providerID": "mac://2"}},
        {"status": {"capacity": {"pods": "3"}}},
    ),
    "roles": ({"rules": None}, {"rules": [_RULE]}),
    "rolebindings": (
        {"subjects": None},
        {"subjects": [{"kind": "ServiceAccount", "name": "s", "namespace": "n"}]},
        {"subjects": [{"kind": "ServiceAccount", "name": "s"}]},
        {"roleRef": {"name": "edit"}},
    ),
    "runtimeclasses": ({"handler": "three"}, {"scheduling": {"nodeSelector": {"a": "b"}}}),
    POOLS: (
        {"spec": {"replicas": 2}},
        {"spec": {"replicas": None}},
        {"spec": {"replicas": -1}},
        {"spec": {"image": "vm:9"}},
        {"spec": {"surprise": 1}},
        {"spec": {"runnerLabels": None}},
        {"spec": None},
        {"spec": {"autoscaling": {"enabled": True}}},
    ),
    GAUGES: (
        {"spec": {"replicas": 2, "mode": None}},
        {"spec": {"tuning": {"level": None}}},
        {"spec": {"tuning": {"deep": None}, "note": None}},
        {"spec": {"parts": [{"name": "three"}]}},
        {"spec": {"free": {"any": None, "more": [1, {"a": None}]}}},
        {"spec": {"port": "x", "tags": ["b", "a"]}},
        {"spec": {"mode": "odd"}},
        {"other": {"x": 1}},
    ),
}
STATUSES: dict[str, tuple[Json, ...]] = {
    "pods": (
        {"status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}},
        {"status": {"podIP": "10.0.0.2"}},
        {"status": {"podIPs": [{"ip": "10.0.0.3"}, {"ip": "fe80::1"}]}},
        {"status": {"podIP": "nowhere", "podIPs": [{"ip": "10.0.0.3"}, {"ip": "10.0.0.4"}]}},
        {"status": {"podIP": None, "podIPs": None, "hostIP": "10.0.0.9"}},
        {"status": {"hostIP": "10.0.0.9", "hostIPs": [{"ip": "10.0.0.9"}]}},
        {"status": {"qosClass": "Guaranteed"}},
        {"status": {"phase": "Succeeded"}},
        {"status": {"phase": "Failed", "reason": "Evicted"}},
        {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
        {"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "Gone"}]}},
        {"metadata": {"labels": {"tier": "y"}}, "status": {"message": "hello"}},
        {
            "status": {
                "containerStatuses": [
                    {
                        "name": "runner",
                        "ready": True,
                        "restartCount": 1,
                        "image": "vm:1",
                        "imageID": "",
                        "state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}},
                    }
                ]
            }
        },
    ),
    "nodes": (
        {"status": {"capacity": {"pods": "2"}, "allocatable": {"pods": "2"}}},
        {"status": {"conditions": [{"type": "GuestAgent", "status": "True"}]}},
        {"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Up"}]}},
        {"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.2"}]}},
        {"status": {"nodeInfo": {"kubeletVersion": "v9"}}, "spec": {"unschedulable": True}},
        {"metadata": {"annotations": {"zone": "y"}}},
    ),
    POOLS: (
        {"status": {"observedReplicas": 1}},
        {"status": {"observedReplicas": 2}, "spec": {"replicas": 9}},
        {"status": {"observedReplicas": "two"}},
        {"metadata": {"labels": {"tier": "y"}}, "status": {"observedImage": "vm:1"}},
    ),
    GAUGES: (
        {"status": {"replicas": 1, "selector": "a=b"}},
        {"status": {"phase": "Ready"}, "spec": {"replicas": 9}},
        {"status": {"surprise": 1}},
    ),
}
