"""Plays one sequence of requests on a server and writes down the answers so that two servers can be compared.

What two servers cannot agree on is replaced by what they must agree on: a uid by the number of its first
appearance, a version by its rank among all versions that the server told in this sequence, a time by the word
"time". The text of a refusal stays where clients read it; what a validation says in prose does not.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
from tests.conformance.kube.kit import TABLE, Api, Json, Watch
from tests.conformance.kube.sequences import KINDS, Step

TIMES = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$")
AGES = re.compile(r"^(\d+[smhdy])+$|^<unknown>$|^<invalid>$")
UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
NUMBER = re.compile(r"\((\d+)\)")  # a version in the text of a refusal
SENTINEL = "zz-last"
_PROSE = ("Invalid", "BadRequest", "InternalError", "")


class Difference(msgspec.Struct, frozen=True):
    """One place in which two answers differ."""

    step: int
    request: str
    path: str
    real: Any
    embedded: Any

    def told(self) -> str:
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
        self._watches: dict[str, Watch] = {}
        self.answers: list[tuple[str, Any]] = []

    async def play(self, steps: tuple[Step, ...]) -> list[tuple[str, Any]]:
        kinds = [kind for kind in KINDS if any(step.kind == kind for step in steps)]
        try:
            for kind in kinds:
                listed = await self._api.get(kind.path(self._api.space))
                self._watches[kind.plural] = await self._api.watch(
                    kind.path(self._api.space),
                    resourceVersion=listed["metadata"]["resourceVersion"],
                )
            for step in steps:
                await self._play(step)
            for kind in kinds:
                await self._watched(kind.plural, kind.path(self._api.space), steps)
        finally:
            for watch in self._watches.values():
                await watch.__aexit__()
        return normalised(self.answers)

    async def _play(self, step: Step) -> None:
        key = f"{step.kind.plural}/{step.name}"
        path = step.kind.path(self._api.space)
        name = step.name if step.kind.namespaced else self._api.own(step.name)
        method = {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}
        if step.verb not in ("create", "list"):
            path = "/".join(part for part in (path, name, step.sub) if part)
        query = dict(step.query)
        if not step.kind.namespaced and step.verb == "list":  # other sequences have Nodes too
            mine = ",".join(filter(None, (query.get("labelSelector"), f"seq={self._api.space}")))
            query["labelSelector"] = mine
        answer = await self._api.call(
            method.get(step.verb, "GET"),
            path,
            self._body(step, key, name),
            kind=step.media,
            accept=TABLE if step.table else "application/json",
            **query,
        )
        told = answer.json()
        self.answers.append((step.told(), {"code": answer.status, "body": told}))
        self._remember(step, key, told)

    def _body(self, step: Step, key: str, name: str) -> Any:
        body = step.body
        wanted = self._names(step, key)
        if step.verb == "delete":
            conditions = {"preconditions": wanted} if wanted else {}
            return {**(body or {}), **conditions} or None
        if not isinstance(body, dict):
            return body
        meta = {**body.get("metadata", {}), **wanted}
        if "name" in meta:
            meta["name"] = name
        if not step.kind.namespaced and (
            step.verb in ("create", "update") or "apply" in step.media
        ):
            meta["labels"] = {**meta.get("labels", {}), "seq": self._api.space}
        return {**body, "metadata": meta} if meta else body

    def _names(self, step: Step, key: str) -> dict[str, str]:
        wanted: dict[str, str] = {}
        known = {"current": self._current, "first": self._first}.get(step.version, {}).get(key)
        if known is not None:
            wanted["resourceVersion"] = known["resourceVersion"]
        if step.uid == "wrong":
            wanted["uid"] = "00000000-0000-0000-0000-000000000000"
        elif step.uid == "current" and key in self._current:
            wanted["uid"] = self._current[key]["uid"]
        return wanted

    def _remember(self, step: Step, key: str, told: Any) -> None:
        if isinstance(told, dict) and told.get("kind") == step.kind.kind:
            meta = told["metadata"]
            if "uid" in meta and not dict(step.query).get("dryRun"):
                self._first.setdefault(key, meta)
                self._current[key] = meta

    async def _watched(self, plural: str, path: str, steps: tuple[Step, ...]) -> None:
        """All events of this sequence: up to an object that is made last, which is no part of them."""
        kind = next(kind for kind in KINDS if kind.plural == plural)
        body = next(step.body for step in steps if step.kind == kind and step.verb == "create")
        name = SENTINEL if kind.namespaced else self._api.own(SENTINEL)
        await self._api.create(path, {**body, "metadata": {"name": name}} | _sound(plural))
        watch = self._watches[plural]
        while (event := await watch.next())["object"]["metadata"]["name"] != name:
            if kind.namespaced or event["object"]["metadata"]["name"].startswith(self._api.space):
                self.answers.append((f"watch {plural}", event))


def _sound(plural: str) -> Json:
    """A body that is accepted wherever the generated one may be refused."""
    if plural != "runnerpools":
        return {}
    spec = {"image": "vm:1", "fleetSelector": "f", "dispatchLabel": "d", "runnerLabels": ["r"]}
    return {"spec": spec}


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
        cleaned = {key: _plain(item, ranks, uids) for key, item in value.items()}
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
        value = NUMBER.sub("(number)", value)
        return UID.sub(lambda match: uids.setdefault(match[0], f"uid-{len(uids)}"), value)
    return value


def _manager(entry: Json) -> tuple[str, str, str]:
    return entry.get("operation", ""), entry.get("manager", ""), entry.get("subresource", "")


def _status(status: Json) -> Json:
    kept = {key: item for key, item in status.items() if key != "metadata"}
    if status.get("reason", "") in _PROSE or status.get("code", 200) >= 500:
        kept.pop("message", None)
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
