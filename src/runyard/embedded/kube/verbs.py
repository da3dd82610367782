"""What each method does at each path, between the route and the registry."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

from runyard.clock import Clock
from runyard.embedded.kube import routes
from runyard.embedded.kube.apply import Writer
from runyard.embedded.kube.auth import Action, Authorize, User
from runyard.embedded.kube.listing import Reader, wants_watch
from runyard.embedded.kube.patch import is_plain, merge, pruned
from runyard.embedded.kube.registry import Registry, check_preconditions
from runyard.embedded.kube.resources import NODES, PODS, Object
from runyard.embedded.kube.routes import Target
from runyard.embedded.kube.status import (
    bad_request,
    conflict,
    forbidden,
    method_not_allowed,
    not_found,
    not_served,
    success,
    unsupported_media,
)
from runyard.embedded.kube.store import Record
from runyard.embedded.kube.tokens import Tokens
from runyard.http.messages import Request, Response, Stream, json_response
from runyard.wire.instants import to_rfc3339

MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
_STRATEGIC = "application/strategic-merge-patch+json"
_JSON_PATCH = "application/json-patch+json"
_JSON = (("content-type", "application/json"),)
_METHODS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}

Serve = Callable[[Target, Request], Response | Stream]


class DeleteOptions(msgspec.Struct, frozen=True, rename="camel"):
    """How a client wants something deleted."""

    grace_period_seconds: int | None = None
    preconditions: dict[str, str] | None = None
    propagation_policy: str | None = None
    dry_run: list[str] | None = None


class Verbs:
    """Serves every request that names a resource."""

    def __init__(
        self,
        registry: Registry,
        reader: Reader,
        *,
        tokens: Tokens,
        clock: Clock,
        authorize: Authorize,
    ) -> None:
        self._registry = registry
        self._store = registry.store
        self._reader = reader
        self._tokens = tokens
        self._clock = clock
        self._authorize = authorize
        self._serve: dict[str, Serve] = {
            "get": self._get,
            "list": reader.listed,
            "watch": reader.watch,
            "create": self._create,
            "update": self._replace,
            "patch": self._patch,
            "delete": self._delete,
        }

    def serve(self, user: User, request: Request) -> Response | Stream:
        """Answer, or raise a `StatusError`."""
        target = routes.parse(request.path)
        verb = _verb(target, request)
        resource = target.resource
        action = Action(
            verb=verb,
            group=resource.group,
            plural=resource.plural,
            subresource=target.subresource,
            namespace=target.namespace,
            name=target.name,
        )
        if why := self._authorize(user, action):
            raise forbidden(resource, target.name, why)
        if request.param("dryRun"):
            raise not_served("dry runs")
        return self._serve[verb](target, request)

    # ---- read

    def _get(self, target: Target, request: Request) -> Response:
        return self._reader.one(target, request, self._found(target))

    def _found(self, target: Target) -> Record:
        record = self._store.get(target.resource, target.namespace, target.name)
        if record is None:
            raise not_found(target.resource, target.name)
        return record

    # ---- write

    def _create(self, target: Target, request: Request) -> Response:
        body = decode(request)
        if not target.resource.stored:
            told = self._registry.typed(target.resource, body)
            return json_response(201, told | {"status": self._tokens.review(body)})
        if target.subresource == "token":
            return json_response(201, self._tokens.issue(self._found(target), body))
        if target.subresource == "binding":
            return self._bind(target, body)
        record = self._registry.create(
            target.resource,
            body,
            namespace=target.namespace,
            writer=self._writer(request, target, "Update"),
        )
        return _answer(201, record)

    def _bind(self, target: Target, body: Any) -> Response:
        record = self._found(target)
        told = body.get("target") if isinstance(body, dict) else None
        node = told.get("name") if isinstance(told, dict) else None
        if not isinstance(node, str) or not node:
            raise bad_request("a binding needs target.name")
        check_preconditions(PODS, record, body.get("metadata"))
        if self._store.get(NODES, "", node) is None:
            raise not_found(NODES, node)
        bound = self._registry.bind(record, node, transition=self._now())
        answer = success(PODS, bound.name, bound.uid)
        return Response(status=201, headers=answer.headers, body=answer.body)

    def _replace(self, target: Target, request: Request) -> Response:
        body = self._registry.typed(target.resource, decode(request))
        record = self._found(target)
        check_preconditions(target.resource, record, body["metadata"])
        writer = self._writer(request, target, "Update")
        return _answer(200, self._update(target, record, body, writer))

    def _patch(self, target: Target, request: Request) -> Response:
        kind = request.header("content-type").partition(";")[0].strip().lower()
        if kind == MERGE:
            return self._merge(target, request)
        if kind == APPLY:
            return self._apply(target, request)
        strategic = kind == _STRATEGIC and not target.resource.custom
        if strategic and is_plain(decode(request, keep_nulls=True)):
            return self._merge(target, request)
        if kind == _JSON_PATCH or strategic:
            what = "lists and directives in strategic patches" if strategic else "JSON patches"
            raise not_served(f"{what}; use {MERGE} or {APPLY}")
        raise unsupported_media(kind, (MERGE, APPLY))

    def _merge(self, target: Target, request: Request) -> Response:
        body = decode(request, keep_nulls=True)
        if not isinstance(body, dict):
            raise bad_request("a merge patch must be a JSON object")
        record = self._found(target)
        check_preconditions(target.resource, record, body.get("metadata"))
        desired = merge(record.obj, body)
        if desired is record.obj:
            return _answer(200, record)
        writer = self._writer(request, target, "Update")
        return _answer(200, self._update(target, record, desired, writer))

    def _update(self, target: Target, record: Record, desired: Object, writer: Writer) -> Record:
        return self._registry.update(
            target.resource, record, desired, subresource=target.subresource, writer=writer
        )

    def _apply(self, target: Target, request: Request) -> Response:
        resource = target.resource
        if not request.param("fieldManager"):
            raise bad_request("an apply needs the parameter fieldManager")
        wanted = self._registry.typed(resource, decode(request))
        told = wanted["metadata"]
        for key, value in (("name", target.name), ("namespace", target.namespace)):
            if told.get(key, value) != value:
                raise bad_request(f"metadata.{key} does not match the path of the request")
        wanted = {**wanted, "metadata": {**told, "name": target.name}}
        writer = self._writer(request, target, "Apply")
        record = self._store.get(resource, target.namespace, target.name)
        if record is None:
            return self._apply_absent(target, wanted, writer)
        check_preconditions(resource, record, told)
        applied = self._registry.apply(
            resource,
            record,
            wanted,
            subresource=target.subresource,
            writer=writer,
            force=request.param("force").lower() in ("true", "1"),
        )
        return _answer(200, applied)

    def _apply_absent(self, target: Target, wanted: Object, writer: Writer) -> Response:
        if target.subresource:
            raise not_found(target.resource, target.name)
        if wanted["metadata"].get("uid"):
            why = "uid mismatch: the object named in the request no longer exists"
            raise conflict(target.resource, target.name, why)
        created = self._registry.create(
            target.resource, wanted, namespace=target.namespace, writer=writer
        )
        return _answer(201, created)

    def _delete(self, target: Target, request: Request) -> Response:
        resource = target.resource
        options = _delete_options(request)
        record = self._found(target)
        check_preconditions(resource, record, options.preconditions)
        if options.propagation_policy not in (None, "", "Background"):
            raise not_served(f"propagation policy {options.propagation_policy}; only Background")
        left = self._registry.delete(resource, record, grace=options.grace_period_seconds)
        if left is None and resource is not PODS:
            return success(resource, record.name, record.uid)
        return _answer(200, left or record)

    # ---- who and when

    def _writer(self, request: Request, target: Target, operation: str) -> Writer:
        agent = request.header("user-agent").partition("/")[0]
        manager = request.param("fieldManager") or agent or "unknown"
        return Writer(
            manager=manager[:128],
            operation=operation,
            subresource=target.subresource if target.subresource == "status" else "",
            time=self._now(),
        )

    def _now(self) -> str:
        return _written(int(self._clock.now()))


@lru_cache(maxsize=4)
def _written(second: int) -> str:
    return to_rfc3339(second)


def _verb(target: Target, request: Request) -> str:
    """The verb as RBAC names it; raises 405 or 501 where that method has no meaning."""
    method = "GET" if request.method == "HEAD" else request.method
    verb = _METHODS.get(method)
    sub, named = target.subresource, bool(target.name)
    if verb is None or (not target.resource.stored and (verb != "create" or named)):
        raise method_not_allowed(request.method)
    if sub in ("token", "binding"):
        if verb != "create":
            raise method_not_allowed(request.method)
        return verb
    if verb == "create":
        if named or (target.resource.namespaced and not target.namespace):
            raise method_not_allowed(request.method)
    elif verb == "get":
        if not named:
            return "watch" if wants_watch(request) else "list"
        return "watch" if wants_watch(request) and not sub else "get"
    elif not named:
        if verb == "delete":
            raise not_served("deletion of whole collections")
        raise method_not_allowed(request.method)
    elif verb == "delete" and sub:
        raise method_not_allowed(request.method)
    return verb


def decode(request: Request, *, keep_nulls: bool = False) -> Any:
    """The body as JSON; nulls mean absence, except in a merge patch."""
    kind = request.header("content-type").partition(";")[0].strip().lower()
    if "protobuf" in kind:
        raise unsupported_media(kind, ("application/json",))
    try:
        value = msgspec.json.decode(request.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(f"the body of the request is not JSON: {error}") from None
    return pruned(value) if not keep_nulls and b"null" in request.body else value


def _delete_options(request: Request) -> DeleteOptions:
    body = decode(request) if request.body.strip() else {}
    try:
        options = msgspec.convert(body, DeleteOptions)
    except msgspec.ValidationError as error:
        raise bad_request(f"the delete options are not valid: {error}") from None
    told = request.param("gracePeriodSeconds")
    if options.grace_period_seconds is None and told.isascii() and told.isdigit():
        options = msgspec.structs.replace(options, grace_period_seconds=int(told[:9]))
    if options.dry_run:
        raise not_served("dry runs")
    return options


def _answer(code: int, record: Record) -> Response:
    return Response(status=code, headers=_JSON, body=record.body)
