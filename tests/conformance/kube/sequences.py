"""Generates sequences of requests, as values that do not depend on a server.

A request refers to versions and uids by the response that had them (`current`, `first`), so that the same
sequence can be sent to two servers with different ones. Names are few, so that requests meet the same objects.
"""

from typing import Any

import msgspec
from hypothesis import strategies as st
from tests.conformance.kube import objects
from tests.conformance.kube.kinds import BY_PLURAL, CHOICE, GAUGES, KINDS, POOLS, Kind
from tests.conformance.kube.kit import APPLY, JSON_PATCH, MERGE, STRATEGIC, Json
from tests.conformance.kube.objects import FIELDS, NAMES, STATUSES, owner, seldom, whole

SHORTEST = 20
LONGEST = 32
__all__ = ["KINDS", "LONGEST", "SHORTEST", "Step", "sequences"]
ANOTHER = "another"  # count than there is: the player says which
_CALLED = {MERGE: "/merge", STRATEGIC: "/strategic", JSON_PATCH: "/json", APPLY: "/apply"}


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One request; `version` and `uid` say which of those seen so far to name in it."""

    verb: str  # of roles; and `page`, a list taken in pieces, and `snapshot`, the beginning of a watch
    kind: Kind
    name: str = ""
    sub: str = ""
    body: Any = None
    media: str = "application/json"
    query: tuple[tuple[str, str], ...] = ()
    version: str = ""  # "", current, first
    uid: str = ""  # "", current, wrong
    shape: str = ""  # "", table, metadata

    def label(self) -> str:
        """The name in reports and in the list of known differences: `patch/merge pods/status`."""
        where = f"{self.kind.plural}/{self.sub}" if self.sub else self.kind.plural
        shape = f"/{self.shape}" if self.shape else ""
        return f"{self.verb}{_CALLED.get(self.media, '')}{shape} {where}"


Query = list[tuple[str, str]]
_seen = st.sampled_from(("", "", "current", "first"))
_whom = st.sampled_from(("", "", "", "current", "wrong"))
_shapes = st.sampled_from(("", "", "table", "metadata"))


@st.composite
def _options(draw: st.DrawFn) -> Query:
    """The options that any write may have."""
    query: Query = []
    if draw(seldom(7)):
        query.append(("dryRun", "All"))
    if draw(seldom(4)):
        answer = st.sampled_from(("Strict", "Strict", "Warn", "Ignore"))
        query.append(("fieldValidation", draw(answer)))
    return query


# ---- writes of whole objects


@st.composite
def _create(draw: st.DrawFn, kind: Kind, name: str) -> Step:
    body, query = draw(whole(kind, name)), draw(_options())
    if draw(seldom(20)):
        other: tuple[Json, ...] = ({"apiVersion": "v9"}, {"extra": 1})
        body = body | draw(st.sampled_from(other if kind.custom else (*other, {"kind": "Other"})))
    if draw(seldom(6)):
        query.append(("fieldManager", "one"))
    return Step(verb="create", kind=kind, name=name, body=body, query=tuple(query))


@st.composite
def _replace(draw: st.DrawFn, kind: Kind, name: str) -> Step:
    sub = draw(st.sampled_from(("", "", *(sub for sub in kind.subresources if sub == "status"))))
    body: Json = draw(whole(kind, name))
    if sub:
        body = body | draw(st.sampled_from(STATUSES[kind.plural]))
        body["metadata"] = {**body["metadata"], "name": name}
    query = tuple(draw(_options()))
    rehearsed = ("dryRun", "All") in query  # what is made then echoes the version that it was sent
    return Step(
        verb="update",
        kind=kind,
        name=name,
        sub=sub,
        body=body,
        version="" if rehearsed else draw(st.sampled_from(("", "current", "current", "first"))),
        uid=draw(_whom),
        query=query,
    )


@st.composite
def _apply(draw: st.DrawFn, kind: Kind, name: str) -> Step:
    query = [("fieldManager", draw(st.sampled_from(("one", "two")))), *draw(_options())]
    if draw(seldom(3)):
        query.append(("force", "true"))
    body: Json = {key: item for key, item in draw(whole(kind, name)).items() if key != "status"}
    sub = "status" if "status" in kind.subresources and draw(seldom(4)) else ""
    if sub:
        answer = draw(st.sampled_from(STATUSES[kind.plural]))
        parts = ("status",) if kind.custom else ("status", "metadata")
        status = {key: _nullless(answer[key]) for key in parts if key in answer}
        body = {key: body[key] for key in ("apiVersion", "kind")} | status
        body["metadata"] = {**status.get("metadata", {}), "name": name}
    return Step(
        verb="patch", kind=kind, name=name, sub=sub, body=body, media=APPLY, query=tuple(query)
    )


def _nullless(value: Json) -> Json:
    """The value without nulls: an apply omits a field to remove it."""
    return {key: item for key, item in value.items() if item is not None}


# ---- patches


@st.composite
def _media(draw: st.DrawFn, kind: Kind) -> str:
    if kind.custom:
        return STRATEGIC if draw(seldom(12)) else MERGE
    return draw(st.sampled_from((MERGE, STRATEGIC)))


@st.composite
def _meta_patch(draw: st.DrawFn, kind: Kind, name: str) -> Step:
    meta: Json = {"labels": draw(objects.cleared_labels)}
    if draw(seldom(3)):
        meta["finalizers"] = draw(st.one_of(st.none(), objects.finalizers))
    if draw(seldom(4)):
        meta = {"annotations": draw(st.one_of(st.none(), objects.labels))}
    if draw(seldom(6)) and kind.namespaced and kind.plural != "events":
        meta["ownerReferences"] = [owner(kind, draw(st.sampled_from(NAMES)))]
    media = draw(_media(kind))
    if media == STRATEGIC and draw(seldom(6)):
        meta = {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}
    if draw(seldom(20)):
        meta["name"] = "another"
    return Step(
        verb="patch",
        kind=kind,
        name=name,
        body={"metadata": meta},
        media=media,
        version=draw(_seen),
        uid=draw(_whom),
        query=tuple(draw(_options())),
    )


@st.composite
def _field_patch(draw: st.DrawFn, kind: Kind, name: str) -> Step:
    body = draw(st.sampled_from(FIELDS[kind.plural]))
    media = draw(_media(kind))
    if kind.plural == "pods" and "containers" in body["spec"]:
        media = STRATEGIC  # a merge patch would replace the list and with it all that was filled in
    query = tuple(draw(_options()))
    return Step(verb="patch", kind=kind, name=name, body=body, media=media, query=query)


_JSON_STEPS = (
    {"op": "add", "path": "/metadata/labels", "value": {"tier": "y"}},
    {"op": "replace", "path": "/metadata/labels/tier", "value": "x"},
    {"op": "remove", "path": "/metadata/labels/tier"},
    {"op": "remove", "path": "/metadata/finalizers"},
    {"op": "remove", "path": "/metadata/finalizers/0"},
    {"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/c"},
    {"op": "add", "path": "/metadata/annotations", "value": {"a~b/c": "1"}},
    {"op": "copy", "from": "/metadata/labels", "path": "/metadata/annotations"},
    {"op": "move", "from": "/metadata/labels/tier", "path": "/metadata/labels/zone"},
    {"op": "test", "path": "/metadata/name", "value": "a"},
    {"op": "test", "path": "/metadata/labels/zone", "value": None},
)


@st.composite
def _json_patch(draw: st.DrawFn, kind: Kind, name: str) -> Step:
    body = draw(st.lists(st.sampled_from(_JSON_STEPS), min_size=1, max_size=2))
    query = tuple(draw(_options()))
    return Step(verb="patch", kind=kind, name=name, body=body, media=JSON_PATCH, query=query)


@st.composite
def _status_patch(draw: st.DrawFn, kind: Kind, name: str) -> Step:
    return Step(
        verb="patch",
        kind=kind,
        name=name,
        sub="status",
        body=draw(st.sampled_from(STATUSES[kind.plural])),
        media=draw(_media(kind)),
        version=draw(st.sampled_from(("", "", "", "current", "first"))),
        query=tuple(draw(_options())),
    )


# ---- subresources that are no part of the object


@st.composite
def _scale(draw: st.DrawFn, kind: Kind, name: str) -> Step:
    verb = draw(st.sampled_from(("get", "update", "patch")))
    count = -1 if draw(seldom(4)) else ANOTHER
    media, body = "application/json", None
    if verb == "patch":
        media, body = MERGE, {"spec": {"replicas": count}}
    elif verb == "update":
        given = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": name}}
        body = {**given, "spec": {"replicas": count}}
    version = draw(st.sampled_from(("", "current", "first"))) if verb == "update" else ""
    return Step(
        verb=verb, kind=kind, name=name, sub="scale", body=body, media=media, version=version
    )


@st.composite
def _binding(draw: st.DrawFn, kind: Kind, name: str) -> Step:
    target = draw(st.sampled_from(({"name": "mac-1"}, {"kind": "Node", "name": "mac-2"}, {})))
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    return Step(verb="create", kind=kind, name=name, sub="binding", body=body)


@st.composite
def _eviction(draw: st.DrawFn, kind: Kind, name: str) -> Step:
    body: Json = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    if draw(st.booleans()):
        body["deleteOptions"] = {"gracePeriodSeconds": draw(st.sampled_from((0, 4)))}
    return Step(verb="create", kind=kind, name=name, sub="eviction", body=body)


# ---- deletions and reads


@st.composite
def _delete(draw: st.DrawFn, kind: Kind, name: str) -> Step:
    body: Json = {}
    grace = draw(st.sampled_from((None, None, 0, 3))) if kind.plural == "pods" else None
    if grace is not None:
        body["gracePeriodSeconds"] = grace
    if draw(seldom(3)):
        policies = st.sampled_from(("Foreground", "Background", "Orphan", "Sideways"))
        body["propagationPolicy"] = draw(policies)
    if draw(seldom(10)):
        body["orphanDependents"] = draw(st.booleans())
    return Step(
        verb="delete",
        kind=kind,
        name=name,
        body=body or None,
        version=draw(st.sampled_from(("", "", "", "current", "first"))),
        uid=draw(_whom),
        query=(("dryRun", "All"),) if draw(seldom(8)) else (),
    )


LABELS = ("tier=x", "tier!=x", "tier in (x,y)", "tier notin (x)", "!zone", "tier,zone=x", "a b")
FIELD_SELECTORS: dict[str, tuple[str, ...]] = {
    "pods": (
        "spec.nodeName=mac-1",
        "status.phase!=Running",
        "spec.restartPolicy=Never,status.phase=Pending",
        "status.podIP=10.0.0.1",
        "spec.other=x",
    ),
    "nodes": ("spec.unschedulable=true", "spec.unschedulable!=true", "spec.podCIDR=x"),
    "secrets": ("type=Opaque", "type!=Opaque"),
    "events": ("involvedObject.name=a", "reason=Killed,type!=Normal", "involvedObject.kind=Node"),
    GAUGES: ("spec.mode=slow", "spec.mode!=slow", "spec.image=vm:1"),
    POOLS: ("spec.image=vm:1",),
}


@st.composite
def _selection(draw: st.DrawFn, kind: Kind) -> Query:
    query: Query = []
    if draw(st.booleans()):
        query.append(("labelSelector", draw(st.sampled_from(LABELS))))
    if draw(seldom(3)):
        own = FIELD_SELECTORS.get(kind.plural, ())
        named = ("metadata.name=a", "metadata.name!=a", *own, *own)
        query.append(("fieldSelector", draw(st.sampled_from(named))))
    return query


@st.composite
def _list(draw: st.DrawFn, kind: Kind) -> Step:
    query = draw(_selection(kind))
    limited = draw(seldom(3))
    if limited:
        query.append(("limit", draw(st.sampled_from(("1", "1", "2")))))
    verb = "page" if limited and draw(st.booleans()) else "list"
    return Step(verb=verb, kind=kind, query=tuple(query), shape=draw(_shapes))


@st.composite
def _snapshot(draw: st.DrawFn, kind: Kind) -> Step:
    query = [item for item in draw(_selection(kind)) if item[1] not in ("a b", "spec.other=x")]
    return Step(verb="snapshot", kind=kind, query=tuple(query), shape=draw(_shapes))


@st.composite
def _purge(draw: st.DrawFn, kind: Kind) -> Step:
    """Deletes a selection; never a whole collection of a kind that the server itself creates objects of."""
    query = draw(_selection(kind))
    if not kind.namespaced:
        query = [("labelSelector", "tier=x")]
    return Step(verb="deletecollection", kind=kind, query=tuple(query))


@st.composite
def _get(draw: st.DrawFn, kind: Kind, name: str) -> Step:
    sub = "status" if "status" in kind.subresources and draw(seldom(5)) else ""
    return Step(verb="get", kind=kind, name=name, sub=sub, shape=draw(_shapes))


# ---- sequences


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
        _field_patch(kind, name),
        _json_patch(kind, name),
        _delete(kind, name),
        _list(kind),
        _get(kind, name),
        _get(kind, name) if draw(st.booleans()) else _snapshot(kind),
    ]
    if draw(seldom(10)):
        choices.append(_purge(kind))
    if "status" in kind.subresources:
        choices += [_status_patch(kind, name)] * 2
    if "scale" in kind.subresources:
        choices += [_scale(kind, name)] * 2
    if kind.plural == "pods":
        choices += [_binding(kind, name), _eviction(kind, name)]
    return draw(st.one_of(choices))


@st.composite
def sequences(draw: st.DrawFn) -> tuple[Step, ...]:
    """Requests about one or two kinds, so that most of them meet an object."""
    chosen = draw(st.lists(st.sampled_from(CHOICE), min_size=1, max_size=2))
    kinds = tuple(BY_PLURAL[plural] for plural in dict.fromkeys(chosen))
    begun = [draw(_create(kind, name)) for kind in kinds for name in NAMES]
    count = draw(st.integers(SHORTEST - len(begun), LONGEST - len(begun)))
    return (*begun, *(draw(_step(kinds)) for _ in range(count)))
