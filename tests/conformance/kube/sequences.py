"""Generated sequences of requests, as values: what to send, without saying to whom.

A request names versions and uids only by where they were seen (`current`, `first`), so that the same
sequence can be played on two servers that number differently. Names are few, so that requests meet.
"""

from typing import Any

import msgspec
from hypothesis import strategies as st
from tests.conformance.kube.kit import APPLY, JSON_PATCH, MERGE, STRATEGIC, Json

SHORTEST = 20
LONGEST = 32
NAMES = ("a", "b")
POOLS = "runnerpools"


class Kind(msgspec.Struct, frozen=True):
    """Where objects of a kind live."""

    plural: str
    kind: str
    api_version: str = "v1"
    namespaced: bool = True
    custom: bool = False

    def path(self, space: str) -> str:
        base = "/api/v1" if self.api_version == "v1" else f"/apis/{self.api_version}"
        return (
            f"{base}/namespaces/{space}/{self.plural}"
            if self.namespaced
            else f"{base}/{self.plural}"
        )


KINDS = (
    Kind("configmaps", "ConfigMap"),
    Kind("pods", "Pod"),
    Kind("secrets", "Secret"),
    Kind("serviceaccounts", "ServiceAccount"),
    Kind("leases", "Lease", "coordination.k8s.io/v1"),
    Kind("nodes", "Node", namespaced=False),
    Kind(POOLS, "RunnerPool", "tuist.dev/v1alpha1", custom=True),
)


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One request; `version` and `uid` say which of those seen so far to name in it."""

    verb: str
    kind: Kind
    name: str = ""
    sub: str = ""
    body: Any = None
    media: str = "application/json"
    query: tuple[tuple[str, str], ...] = ()
    version: str = ""  # "", current, first
    uid: str = ""  # "", current, wrong
    table: bool = False

    def told(self) -> str:
        """How a report and the list of known differences call it: `patch/merge pods/status`."""
        media = {MERGE: "/merge", STRATEGIC: "/strategic", JSON_PATCH: "/json", APPLY: "/apply"}
        where = f"{self.kind.plural}/{self.sub}" if self.sub else self.kind.plural
        return f"{self.verb}{media.get(self.media, '')}{'/table' if self.table else ''} {where}"


# ---- parts of objects

_words = st.sampled_from(("x", "y"))
_labels = st.dictionaries(st.sampled_from(("tier", "zone")), _words, max_size=2)
_some_labels = st.dictionaries(st.sampled_from(("tier", "zone")), _words, min_size=1, max_size=2)
_finalizers = st.lists(st.sampled_from(("example.com/a", "example.com/b")), unique=True, max_size=2)
_data = st.dictionaries(st.sampled_from(("k1", "k2", "k3")), _words, max_size=3)


@st.composite
def _meta(draw: st.DrawFn, name: str) -> Json:
    meta: Json = {"name": name}
    if draw(st.booleans()):
        meta["labels"] = draw(_some_labels)
    if draw(st.integers(0, 3)) == 0:
        meta["annotations"] = draw(_some_labels)
    if draw(st.integers(0, 4)) == 0:
        meta["finalizers"] = draw(_finalizers)
    return meta


@st.composite
def _pod_spec(draw: st.DrawFn) -> Json:
    container: Json = {"name": "runner", "image": draw(st.sampled_from(("vm:1", "vm:2", "vm")))}
    if draw(st.booleans()):
        container["resources"] = {"limits": {"cpu": "2", "memory": "1Gi"}}
    if draw(st.booleans()):
        container["env"] = [{"name": "E", "value": draw(_words)}]
    spec: Json = {"containers": [container], "schedulerName": "nobody"}
    spec["automountServiceAccountToken"] = False
    options = {
        "nodeName": "mac-1",
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 5,
        "nodeSelector": {"tier": "x"},
        "tolerations": [{"key": "example.com/mac", "operator": "Exists"}],
    }
    for key, value in options.items():
        if draw(st.booleans()):
            spec[key] = value
    return spec


@st.composite
def _rest(draw: st.DrawFn, kind: Kind) -> Json:
    """What an object holds besides its metadata."""
    if kind.plural == "configmaps":
        return {"data": draw(_data)}
    if kind.plural == "secrets":
        return {"stringData": draw(_data)} if draw(st.booleans()) else {"type": "Opaque"}
    if kind.plural == "leases":
        return {"spec": {"holderIdentity": draw(_words), "leaseDurationSeconds": 40}}
    if kind.plural == "pods":
        return {"spec": draw(_pod_spec())}
    if kind.plural == "nodes":
        taints = [{"key": "example.com/t", "value": draw(_words), "effect": "NoSchedule"}]
        return {"spec": {"taints": taints}} if draw(st.booleans()) else {}
    if kind.custom:
        return {"spec": draw(_pool_spec())}
    return {}


@st.composite
def _pool_spec(draw: st.DrawFn) -> Json:
    spec: Json = {
        "image": draw(st.sampled_from(("vm:1", "vm:2"))),
        "fleetSelector": "f",
        "dispatchLabel": "d",
        "runnerLabels": draw(st.sampled_from((["self-hosted"], ["self-hosted", "mac"]))),
    }
    if draw(st.booleans()):
        spec["replicas"] = draw(st.integers(0, 3))
    if draw(st.integers(0, 5)) == 0:
        del spec["image"]
    return spec


def _whole(kind: Kind, name: str) -> st.SearchStrategy[Json]:
    return st.builds(
        lambda meta, rest: {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": meta,
            **rest,
        },
        _meta(name),
        _rest(kind),
    )


# ---- requests


@st.composite
def _create(draw: st.DrawFn, kind: Kind, name: str) -> Step:
    query = (("dryRun", "All"),) if draw(st.integers(0, 7)) == 0 else ()
    return Step(verb="create", kind=kind, name=name, body=draw(_whole(kind, name)), query=query)


@st.composite
def _replace(draw: st.DrawFn, kind: Kind, name: str) -> Step:
    version = draw(st.sampled_from(("", "current", "current", "first")))
    return Step(verb="update", kind=kind, name=name, body=draw(_whole(kind, name)), version=version)


@st.composite
def _apply(draw: st.DrawFn, kind: Kind, name: str) -> Step:
    query = [("fieldManager", draw(st.sampled_from(("one", "two"))))]
    if draw(st.integers(0, 2)) == 0:
        query.append(("force", "true"))
    body = draw(_whole(kind, name))
    return Step(verb="patch", kind=kind, name=name, body=body, media=APPLY, query=tuple(query))


@st.composite
def _meta_patch(draw: st.DrawFn, kind: Kind, name: str) -> Step:
    nullable = st.one_of(st.none(), _words)
    labels = draw(st.dictionaries(st.sampled_from(("tier", "zone")), nullable, max_size=2))
    meta: Json = {"labels": labels}
    if draw(st.integers(0, 2)) == 0:
        meta["finalizers"] = draw(st.one_of(st.none(), _finalizers))
    if draw(st.integers(0, 3)) == 0:
        meta = {"annotations": draw(st.one_of(st.none(), _labels))}
    media = MERGE if kind.custom else draw(st.sampled_from((MERGE, STRATEGIC)))
    return Step(
        verb="patch",
        kind=kind,
        name=name,
        body={"metadata": meta},
        media=media,
        version=draw(st.sampled_from(("", "", "current", "first"))),
        uid=draw(st.sampled_from(("", "", "current", "wrong"))),
    )


@st.composite
def _field_patch(draw: st.DrawFn, kind: Kind, name: str) -> Step:
    nullable = st.one_of(st.none(), _words)
    bodies: dict[str, st.SearchStrategy[Json]] = {
        "configmaps": st.builds(
            lambda data: {"data": data},
            st.dictionaries(st.sampled_from(("k1", "k2")), nullable, max_size=2),
        ),
        "leases": st.builds(lambda holder: {"spec": {"holderIdentity": holder}}, nullable),
        "pods": st.sampled_from(
            (
                {"spec": {"containers": [{"name": "runner", "image": "vm:3"}]}},
                {"spec": {"hostNetwork": True}},
                {"spec": {"activeDeadlineSeconds": 60}},
                {"spec": {"terminationGracePeriodSeconds": 9}},
            )
        ),
        "nodes": st.sampled_from(
            (
                {"spec": {"unschedulable": True}},
                {"spec": {"unschedulable": None}},
                {"spec": {"taints": [{"key": "example.com/u", "effect": "NoExecute"}]}},
                {"spec": {"taints": None}},
            )
        ),
        POOLS: st.sampled_from(
            (
                {"spec": {"replicas": 2}},
                {"spec": {"replicas": None}},
                {"spec": {"replicas": -1}},
                {"spec": {"image": "vm:9"}},
                {"spec": {"surprise": 1}},
            )
        ),
    }
    body = draw(bodies.get(kind.plural, st.just({"metadata": {"labels": {"tier": "x"}}})))
    media = MERGE if kind.custom else draw(st.sampled_from((MERGE, STRATEGIC)))
    if kind.plural == "pods" and "containers" in body["spec"]:
        media = STRATEGIC  # a merge patch would replace the list and with it all that was filled in
    return Step(verb="patch", kind=kind, name=name, body=body, media=media)


@st.composite
def _json_patch(draw: st.DrawFn, kind: Kind, name: str) -> Step:
    steps = st.sampled_from(
        (
            {"op": "add", "path": "/metadata/labels", "value": {"tier": "y"}},
            {"op": "replace", "path": "/metadata/labels/tier", "value": "x"},
            {"op": "remove", "path": "/metadata/labels/tier"},
            {"op": "remove", "path": "/metadata/finalizers"},
            {"op": "test", "path": "/metadata/name", "value": "a"},
        )
    )
    body = draw(st.lists(steps, min_size=1, max_size=2))
    return Step(verb="patch", kind=kind, name=name, body=body, media=JSON_PATCH)


@st.composite
def _status_patch(draw: st.DrawFn, kind: Kind, name: str) -> Step:
    bodies: dict[str, tuple[Json, ...]] = {
        "pods": (
            {"status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}},
            {"status": {"phase": "Succeeded"}},
            {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
            {"metadata": {"labels": {"tier": "y"}}, "status": {"message": "hello"}},
        ),
        "nodes": (
            {"status": {"capacity": {"pods": "2"}, "allocatable": {"pods": "2"}}},
            {"status": {"conditions": [{"type": "GuestAgent", "status": "True"}]}},
        ),
        POOLS: (
            {"status": {"observedReplicas": 1}},
            {"status": {"observedReplicas": 2}, "spec": {"replicas": 9}},
        ),
    }
    body = draw(st.sampled_from(bodies[kind.plural]))
    media = MERGE if kind.custom else draw(st.sampled_from((MERGE, STRATEGIC)))
    return Step(verb="patch", kind=kind, name=name, sub="status", body=body, media=media)


@st.composite
def _delete(draw: st.DrawFn, kind: Kind, name: str) -> Step:
    body: Json = {}
    if kind.plural == "pods":
        grace = draw(st.sampled_from((None, None, 0, 3)))
        if grace is not None:
            body["gracePeriodSeconds"] = grace
    return Step(
        verb="delete",
        kind=kind,
        name=name,
        body=body or None,
        version=draw(st.sampled_from(("", "", "", "current", "first"))),
        uid=draw(st.sampled_from(("", "", "current", "wrong"))),
    )


@st.composite
def _list(draw: st.DrawFn, kind: Kind) -> Step:
    selectors = ("", "tier=x", "tier!=x", "tier in (x,y)", "tier notin (x)", "!zone", "tier,zone=x")
    selector = draw(st.sampled_from(selectors))
    query = [("labelSelector", selector)] if selector else []
    if draw(st.integers(0, 3)) == 0:
        query.append(
            ("fieldSelector", draw(st.sampled_from(("metadata.name=a", "metadata.name!=a"))))
        )
    if draw(st.integers(0, 3)) == 0:
        query.append(("limit", "1"))
    return Step(verb="list", kind=kind, query=tuple(query), table=draw(st.booleans()))


@st.composite
def _step(draw: st.DrawFn, kinds: tuple[Kind, ...]) -> Step:
    kind = draw(st.sampled_from(kinds))
    name = draw(st.sampled_from(NAMES))
    choices = [
        _create(kind, name),
        _create(kind, name),
        _replace(kind, name),
        _apply(kind, name),
        _apply(kind, name),
        _meta_patch(kind, name),
        _field_patch(kind, name),
        _json_patch(kind, name),
        _delete(kind, name),
        _list(kind),
        st.builds(lambda table: Step(verb="get", kind=kind, name=name, table=table), st.booleans()),
    ]
    if kind.plural in ("pods", "nodes", POOLS):
        choices.append(_status_patch(kind, name))
    return draw(st.one_of(choices))


@st.composite
def sequences(draw: st.DrawFn) -> tuple[Step, ...]:
    """Requests about one or two kinds, so that most of them meet an object."""
    kinds = tuple(draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=2, unique=True)))
    begun = [draw(_create(kind, name)) for kind in kinds for name in NAMES]
    count = draw(st.integers(SHORTEST - len(begun), LONGEST - len(begun)))
    return (*begun, *(draw(_step(kinds)) for _ in range(count)))
