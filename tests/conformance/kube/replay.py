"""Sends one sequence of requests to a server and records normalized responses, so that two servers can be compared.

Values that differ between servers are replaced: a uid by the number of its first appearance, a version by its rank
among all versions in the responses, a time by "time", the random suffix of the name of a token's volume by "suffix".
The message of an error stays where clients read it; messages of validation are dropped.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
from tests.conformance.kube.kinds import GAUGES, KINDS, POOLS, Kind
from tests.conformance.kube.kit import MERGE, TABLE, Api, Json, Watch
from tests.conformance.kube.objects import NAMES
from tests.conformance.kube.sequences import ANOTHER, Step

from runyard.http.messages import Response

TIMES = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$")
AGES = re.compile(r"^(\d+[smhdy])+$|^<unknown>$|^<invalid>$")
UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
NUMBER = re.compile(r"\((\d+)\)")  # a version in the text of a refusal
STORED = re.compile(r"StorageError: invalid object.*?AdditionalErrorMsg: ")  # where etcd keeps it
MOUNT = re.compile(r"(kube-api-access-)[a-z0-9]{5}\b")
LAST = "zz-last"
NOBODY = "00000000-0000-0000-0000-000000000000"
METHODS = {
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "deletecollection": "DELETE",
}
COLLECTIVE = ("list", "page", "snapshot", "deletecollection")
_METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"
SHAPES = {"": "application/json", "table": TABLE, "metadata": _METADATA}
FROM_THE_BEGINNING = {
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "true",
}
WATCHED: dict[str, Json] = {
    "": {},
    "/tier=x": {"labelSelector": "tier=x"},
    "/table": {"accept": TABLE},
}
_SPEC = {"image": "vm:1", "fleetSelector": "f", "dispatchLabel": "d", "runnerLabels": ["r"]}
# A body that is always accepted.
SOUND: dict[str, Json] = {
    POOLS: {"spec": _SPEC},
    GAUGES: {"spec": {"image": "vm:1"}},
    "pods": {"spec": {"containers": [{"name": "c", "image": "vm:1"}]}},
    "roles": {"rules": []},
    "rolebindings": {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
    },
    "runtimeclasses": {"handler": "h"},
}
_PROSE = ("Invalid", "BadRequest", "InternalError", "")


class Difference(msgspec.Struct, frozen=True):
    """One place in which two answers differ."""

    step: int
    request: str
    path: str
    real: Any
    embedded: Any

    def describe(self) -> str:
        return (
            f"step {self.step}: {self.request} at {self.path}: "
            f"real {_short(self.real)}, embedded {_short(self.embedded)}"
        )


class Player:
    """One run of a sequence on one server."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._first: dict[str, Json] = {}
        self._current: dict[str, Json] = {}
        self._watches: list[tuple[Kind, str, Watch]] = []
        self._counts = 0
        self.answers: list[tuple[str, Any]] = []

    async def play(self, steps: tuple[Step, ...]) -> list[tuple[str, Any]]:
        kinds = [kind for kind in KINDS if any(step.kind == kind for step in steps)]
        try:
            for kind in kinds:
                await self._watch(kind)
            for step in steps:
                await self._play(step)
            for kind in kinds:
                await self._finish(kind)
        finally:
            for _, _, watch in self._watches:
                await watch.__aexit__()
            await self._clean(kinds)
        return normalised(self.answers)

    async def _watch(self, kind: Kind) -> None:
        """Opens three watches of each kind: of everything, of a selection, and of table rows."""
        path = kind.path(self._api.space)
        listed = await self._api.get(path)
        since = listed["metadata"]["resourceVersion"]
        for result, options in WATCHED.items():
            watch = await self._api.watch(path, resourceVersion=since, **options)
            self._watches.append((kind, result, watch))

    # ---- one request

    async def _play(self, step: Step) -> None:
        query = dict(step.query)
        if step.verb == "snapshot":
            return await self._snapshot(step, query)
        answer = await self._send(step, query)
        if step.verb == "page":
            while token := (answer["body"].get("metadata") or {}).get("continue"):
                answer = await self._send(step, query | {"continue": token})
        return None

    async def _send(self, step: Step, query: Json) -> Json:
        key = f"{step.kind.plural}/{step.name}"
        answer = await self._api.call(
            METHODS.get(step.verb, "GET"),
            self._path(step),
            self._body(step, key),
            kind=step.media,
            accept=_accepted(step),
            **query,
        )
        given = {"code": answer.status, "body": answer.json()}
        warnings = sorted(value for name, value in answer.headers if name.lower() == "warning")
        self.answers.append((step.label(), given | {"warnings": warnings}))
        self._remember(step, key, given["body"])
        return given

    def _path(self, step: Step) -> str:
        path = step.kind.path(self._api.space)
        if (step.verb == "create" and not step.sub) or step.verb in COLLECTIVE:
            return path
        return "/".join(part for part in (path, self._name(step.kind, step.name), step.sub) if part)

    def _name(self, kind: Kind, name: str) -> str:
        return name if kind.namespaced else self._api.own(name)

    async def _snapshot(self, step: Step, query: Json) -> None:
        """The beginning of a watch: what is there, up to the bookmark that ends it."""
        given: Json = {"events": []}
        options = query | {"accept": SHAPES[step.shape]} | FROM_THE_BEGINNING
        stream = await self._api.send("GET", self._path(step), watch="true", **options)
        if isinstance(stream, Response) or stream.status != 200:
            refusal = await self._api.call("GET", self._path(step), watch="true", **options)
            given = {"code": refusal.status, "body": refusal.json()}
        else:
            async with Watch(stream) as watch:
                while True:
                    event = await watch.next()
                    given["events"].append(event)
                    if event["type"] in ("BOOKMARK", "ERROR"):
                        break
        self.answers.append((step.label(), given))

    # ---- what a request says

    def _body(self, step: Step, key: str) -> Any:
        body = step.body
        wanted = self._names(step, key)
        if step.verb == "delete":
            conditions = {"preconditions": wanted} if wanted else {}
            return {**(body or {}), **conditions} or None
        if not isinstance(body, dict):
            return body
        if step.sub == "scale" and body["spec"]["replicas"] == ANOTHER:
            self._counts += 1
            body = {**body, "spec": {"replicas": 4 + self._counts % 5}}
        meta = {**body.get("metadata", {}), **wanted}
        if "name" in meta:
            meta["name"] = self._name(step.kind, meta["name"])
        if "ownerReferences" in meta:
            meta["ownerReferences"] = [self._owned(step, item) for item in meta["ownerReferences"]]
        if "involvedObject" in body:
            about = {**body["involvedObject"], "namespace": self._api.space}
            body = {**body, "involvedObject": about}
        return {**body, "metadata": meta} if meta else body

    def _owned(self, step: Step, reference: Json) -> Json:
        known = self._current.get(f"{step.kind.plural}/{reference['name']}", {})
        return {**reference, "uid": known.get("uid", NOBODY)}

    def _names(self, step: Step, key: str) -> dict[str, str]:
        wanted: dict[str, str] = {}
        known = {"current": self._current, "first": self._first}.get(step.version, {}).get(key)
        if known is not None:
            wanted["resourceVersion"] = known["resourceVersion"]
        if step.uid == "wrong":
            wanted["uid"] = NOBODY
        elif step.uid == "current" and key in self._current:
            wanted["uid"] = self._current[key]["uid"]
        return wanted

    def _remember(self, step: Step, key: str, expected: Any) -> None:
        if isinstance(expected, dict) and expected.get("kind") == step.kind.kind:
            meta = expected["metadata"]
            if "uid" in meta and not dict(step.query).get("dryRun"):
                self._first.setdefault(key, meta)
                self._current[key] = meta

    # ---- the end of a sequence

    async def _finish(self, kind: Kind) -> None:
        """All events of this sequence: up to an object that is made last, which is no part of them."""
        name = self._name(kind, LAST)
        sound = {"apiVersion": kind.api_version, "kind": kind.kind} | SOUND.get(kind.plural, {})
        if kind.plural == "events":
            sound |= {"involvedObject": {"namespace": self._api.space}}
        meta = {"name": name, "labels": {"tier": "x"}}
        await self._api.create(kind.path(self._api.space), {**sound, "metadata": meta})
        for watched, result, watch in self._watches:
            if watched != kind:
                continue
            while _named(event := await watch.next()) != name:
                self.answers.append((f"watch{result} {kind.plural}", event))

    async def _clean(self, kinds: list[Kind]) -> None:
        """Deletes cluster-wide objects, so that the next sequence starts from the same state."""
        for kind in kinds:
            for name in (*NAMES, LAST) if not kind.namespaced else ():
                path = f"{kind.path('')}/{self._name(kind, name)}"
                await self._api.call("PATCH", path, {"metadata": {"finalizers": None}}, kind=MERGE)
                await self._api.call("DELETE", path)


def _accepted(step: Step) -> str:
    shape = SHAPES[step.shape]
    return shape.replace("Metadata;", "MetadataList;") if step.verb in COLLECTIVE else shape


def _named(event: Json) -> str:
    obj = event["object"]
    if obj["kind"] == "Table":
        obj = obj["rows"][0]["object"]
    name: str = obj["metadata"]["name"]
    return name


# ---- making comparable


def normalised(answers: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """The answers with everything replaced that must differ between servers."""
    versions = sorted({version for _, answer in answers for version in _versions(answer)})
    ranks = {str(version): f"v{rank}" for rank, version in enumerate(versions)}
    uids: dict[str, str] = {}
    return [(request, _plain(answer, ranks, uids)) for request, answer in answers]


def _versions(value: Any) -> Iterator[int]:
    """Versions of objects; that of a list moves on with everybody's writes."""
    if isinstance(value, dict):
        meta = value.get("metadata")
        if isinstance(meta, dict) and "uid" in meta and "resourceVersion" in meta:
            yield int(meta["resourceVersion"])
        for item in value.values():
            yield from _versions(item)
    elif isinstance(value, list):
        for item in value:
            yield from _versions(item)


def _plain(value: Any, ranks: dict[str, str], uids: dict[str, str]) -> Any:
    if isinstance(value, dict):
        if value.get("kind") == "Status":
            value = _status(value)
        cleaned = {
            _numbered(key, uids): _plain(item, ranks, uids) for key, item in sorted(value.items())
        }
        if "resourceVersion" in cleaned:
            rank = ranks.get(str(cleaned["resourceVersion"]), "none")
            cleaned["resourceVersion"] = rank if "uid" in cleaned else "of a list"
        if "managedFields" in cleaned:  # their order hangs on the second in which each was written
            cleaned["managedFields"].sort(key=_manager)
        if "continue" in cleaned:
            cleaned["continue"] = "token"
        return cleaned
    if isinstance(value, list):
        return [_plain(item, ranks, uids) for item in value]
    if isinstance(value, str):
        if TIMES.match(value):
            return "time"
        if AGES.match(value):
            return "age"
        value = MOUNT.sub(r"\1suffix", STORED.sub("", NUMBER.sub("(number)", value)))
        return _numbered(value, uids)
    return value


def _numbered(text: str, uids: dict[str, str]) -> str:
    return UID.sub(lambda match: uids.setdefault(match[0], f"uid-{len(uids)}"), text)


def _manager(entry: Json) -> tuple[str, str, str]:
    return entry.get("operation", ""), entry.get("manager", ""), entry.get("subresource", "")


def _status(status: Json) -> Json:
    kept = {key: item for key, item in status.items() if key != "metadata"}
    if status.get("reason", "") in _PROSE or status.get("code", 200) >= 500:
        kept.pop("message", None)
    elif kept.get("message", "").startswith("Apply failed"):
        # Whose conflicts come first hangs on the second in which each wrote.
        kept["message"] = sorted(kept["message"].replace(": ", ":\n", 1).splitlines())
    details = dict(kept.get("details") or {})
    if "causes" in details:
        named = {(item.get("reason", ""), item.get("field", "")) for item in details["causes"]}
        details["causes"] = [list(pair) for pair in sorted(named)]
    if details:
        kept["details"] = details
    return kept


# ---- comparing


def compare(real: list[tuple[str, Any]], embedded: list[tuple[str, Any]]) -> Iterator[Difference]:
    """Every place in which the answers differ, in order."""
    for number, ((request, one), (other_request, other)) in enumerate(
        zip(real, embedded, strict=False)
    ):
        if request != other_request:
            yield Difference(number, request, "order", request, other_request)
            return
        for path, left, right in _differ(one, other, ""):
            yield Difference(number, request, path or ".", left, right)
    if len(real) != len(embedded):
        yield Difference(min(len(real), len(embedded)), "events", "count", len(real), len(embedded))


MISSING = "(absent)"


def _differ(one: Any, other: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}):
            here = f"{path}.{key}" if path else key
            yield from _differ(one.get(key, MISSING), other.get(key, MISSING), here)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for left, right in zip(one, other, strict=True):
            yield from _differ(left, right, f"{path}[]")
    elif one != other:
        yield path, one, other


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) < 160 else text[:157] + "..."
