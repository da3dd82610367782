"""Performs each method at each path, between the route and the registry.

A write is parsed (`bodies`, `options`), performed by the registry, and answered with the resulting object. With
`dryRun` the store creates records without storing them, so watchers and controllers do not get them.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

from runyard.clock import Clock
from runyard.embedded.kube import bodies, negotiation, patching
from runyard.embedded.kube.access.tokens import Tokens
from runyard.embedded.kube.bodies import decode
from runyard.embedded.kube.controllers.podeviction import evict
from runyard.embedded.kube.crd.scale import existing_scale, scale_of, scaled
from runyard.embedded.kube.listing import Reader, list_body
from runyard.embedded.kube.metadata import check_name, check_preconditions, check_uid
from runyard.embedded.kube.methods import creates_on_put, needs_version, verb_of
from runyard.embedded.kube.nodeproxy.calls import NodeCall, node_call
from runyard.embedded.kube.options import (
    IGNORE,
    STRICT,
    DeleteOptions,
    WriteOptions,
    delete_options,
    write_options,
)
from runyard.embedded.kube.patches.apply import Writer
from runyard.embedded.kube.patches.patch import merge
from runyard.embedded.kube.patching import APPLY, Patched
from runyard.embedded.kube.protobuf.encoding import transcoded
from runyard.embedded.kube.registry import Registry
from runyard.embedded.kube.resources import (
    NAMESPACES,
    NODE_SUBRESOURCES,
    NODES,
    PODS,
    SERVICE_ACCOUNTS,
    TOKEN_REVIEWS,
    Object,
    Resource,
)
from runyard.embedded.kube.routes import Target
from runyard.embedded.kube.schema.typed import TypedError, typed
from runyard.embedded.kube.status import (
    StatusError,
    bad_request,
    conflict,
    delete_conflict,
    forbidden,
    not_found,
    other_uid,
    success,
    version_required,
    warned,
    warning_headers,
)
from runyard.embedded.kube.storage.store import Record
from runyard.http.messages import Request, Response, Stream, json_response
from runyard.wire.instants import to_rfc3339

_JSON = (("content-type", "application/json"),)
_RETURNED_ON_DELETE = (PODS, SERVICE_ACCOUNTS)  # their deletion answers with the deleted object
_PROTECTED_NAMESPACES = ("default", "kube-system", "kube-public")  # cannot be deleted
_SUBRESOURCES = ("status", "approval", "scale")
_BODIES = {"token": "TokenRequest", "eviction": "Eviction", "binding": "Binding"}  # of other kinds

Review = Callable[[Resource, Object], Object]
Serve = Callable[[Target, Request], Response | Stream]


class Verbs:
    """Serves every request that names a resource."""

    def __init__(
        self,
        registry: Registry,
        reader: Reader,
        *,
        tokens: Tokens,
        clock: Clock,
        review: Review,
    ) -> None:
        self._registry = registry
        self._store = registry.store
        self._reader = reader
        self._tokens = tokens
        self._clock = clock
        self._review = review
        self._serve: dict[str, Serve] = {
            "get": self._get,
            "list": reader.listed,
            "watch": reader.watch,
            "create": self._create,
            "update": self._replace,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_all,
        }

    def serve(self, request: Request) -> Response | Stream | NodeCall:
        """Answers, or raises a `StatusError`."""
        target = self._store.catalogue.parse(request.path)
        verb = verb_of(target, request)
        if target.subresource in NODE_SUBRESOURCES:
            return node_call(self._store, target, request)
        form = negotiation.negotiated(request, target.resource)
        answer = self._served(verb, target, request)
        return transcoded(answer) if form.protobuf and isinstance(answer, Response) else answer

    def _served(self, verb: str, target: Target, request: Request) -> Response | Stream:
        if verb in ("get", "list", "watch") and target.subresource != "scale":
            return self._serve[verb](target, request)
        try:
            return self._written(verb, target, request)
        finally:
            self._store.dry_run = False

    def _written(self, verb: str, target: Target, request: Request) -> Response | Stream:
        if target.subresource == "scale":
            return self._scale(verb, target, request)
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
        options = self._options(request, "CreateOptions")
        body = bodies.read_object(target.resource, request, _BODIES.get(target.subresource, ""))
        if not target.resource.stored:
            given = self._registry.typed(target.resource, body)
            if target.resource is TOKEN_REVIEWS:
                return json_response(201, given | {"status": self._tokens.review(body)})
            return json_response(201, self._review(target.resource, given))
        if target.subresource == "token":
            return json_response(201, self._tokens.issue(self._found(target), body))
        if target.subresource == "eviction":
            return evict(self._registry, target.namespace, target.name, body)
        if target.subresource == "binding":
            return self._bind(target, body)
        warnings = self._warnings(target.resource, request, body, options)
        try:
            with warned(warnings):
                return _answer(201, self._created(target, request, body, options), warnings)
        except TypedError as error:
            raise bad_request(bodies.cannot_handle(target.resource, str(error))) from None

    def _created(
        self, target: Target, request: Request, body: Any, options: WriteOptions
    ) -> Record:
        writer = self._writer(request, target, "Update", options)
        return self._registry.create(
            target.resource, body, namespace=target.namespace, writer=writer
        )

    def _warnings(
        self, resource: Resource, request: Request, body: Any, options: WriteOptions
    ) -> list[str]:
        """The warnings; raises a 400 where the client wants strict validation."""
        if isinstance(body, dict) and not bodies.is_complete(resource, body):
            message = f"the object provided is unrecognized (must be of type {resource.kind})"
            raise bad_request(f"{message}: Object 'Kind' is missing")
        if options.validation == IGNORE:
            return []
        found = bodies.unknown_fields(resource, body)
        if bodies.media(request) in ("", bodies.JSON):
            found += bodies.duplicates(request.body, body)
        if found and options.validation == STRICT:
            why = "strict decoding error: " + ", ".join(found)
            raise bad_request(bodies.cannot_handle(resource, why))
        return found

    def _bind(self, target: Target, body: Any) -> Response:
        meta = body.get("metadata") if isinstance(body, dict) else None
        if not isinstance(meta, dict) or meta.get("name") != target.name:
            raise bad_request("name in URL does not match name in Binding object")
        given = body.get("target")
        node = given.get("name") if isinstance(given, dict) else None
        if not isinstance(node, str) or not node:
            raise StatusError(500, "", "target.name: Required value")
        if (kind := given.get("kind") or NODES.kind) != NODES.kind:
            why = f'target.kind: Unsupported value: "{kind}": supported values: "Node", "<empty>"'
            raise StatusError(500, "", why)
        record = self._found(target)
        check_preconditions(PODS, record, meta)
        self._registry.bind(record, node, transition=self._now())
        body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
        return json_response(201, {**body, "code": 201})

    def _replace(self, target: Target, request: Request) -> Response:
        resource = target.resource
        options = self._options(request, "UpdateOptions")
        raw = bodies.read_object(resource, request)
        warnings = self._warnings(resource, request, raw, options)
        try:
            with warned(warnings):
                return self._replaced(target, request, raw, options, warnings)
        except TypedError as error:
            raise bad_request(bodies.cannot_handle(resource, str(error))) from None

    def _replaced(
        self,
        target: Target,
        request: Request,
        raw: Any,
        options: WriteOptions,
        warnings: list[str],
    ) -> Response:
        resource = target.resource
        body = typed(resource, self._registry.typed(resource, raw))
        check_name(target.namespace, target.name, body["metadata"])
        record = self._store.get(resource, target.namespace, target.name)
        if record is None and creates_on_put(resource) and not target.subresource:
            if uid := body["metadata"].get("uid"):
                raise other_uid(resource, target.name, uid, "")
            made = self._created(target, request, self._unversioned(body), options)
            return _answer(201, made, warnings)
        if record is None:
            raise not_found(resource, target.name)
        check_uid(resource, record, body["metadata"])
        if needs_version(resource) and not body["metadata"].get("resourceVersion"):
            raise version_required(resource, target.name)
        check_preconditions(resource, record, body["metadata"])
        writer = self._writer(request, target, "Update", options)
        writer = msgspec.structs.replace(writer, whole=True)
        return _answer(200, self._update(target, record, body, writer), warnings)

    def _unversioned(self, body: Object) -> Object:
        """Removes the version from a new object; a dry run returns the version that was sent."""
        if self._store.dry_run:
            return body
        meta = {key: item for key, item in body["metadata"].items() if key != "resourceVersion"}
        return {**body, "metadata": meta}

    def _patch(self, target: Target, request: Request) -> Response:
        kind = patching.kind_of(target.resource, request)
        options = self._options(request, "PatchOptions", applies=kind == APPLY)
        if kind == APPLY:
            return self._apply(target, request, options)
        body = patching.read(kind, request)
        record = self._found(target)
        patched = patching.patched(kind, target.resource, record, body, request, options)
        if patched.obj is record.obj:
            return _answer(200, record, patched.warnings)
        with warned(patched.warnings):
            updated = self._patched(target, record, patched, request, options)
        return _answer(200, updated, patched.warnings)

    def _patched(
        self,
        target: Target,
        record: Record,
        patched: Patched,
        request: Request,
        options: WriteOptions,
    ) -> Record:
        writer = self._writer(request, target, "Update", options)
        try:
            return self._update(target, record, patched.obj, writer)
        except TypedError as error:
            raise patching.unreadable(patched, str(error)) from None

    def _update(self, target: Target, record: Record, desired: Object, writer: Writer) -> Record:
        return self._registry.update(
            target.resource, record, desired, subresource=target.subresource, writer=writer
        )

    def _scale(self, verb: str, target: Target, request: Request) -> Response:
        record = self._found(target)
        given = target.resource.definition.scale
        if verb == "get":
            return json_response(200, existing_scale(given, record.obj))
        self._options(request, "PatchOptions" if verb == "patch" else "UpdateOptions")
        body = decode(request, keep_nulls=verb == "patch", expected="Scale")
        wanted = merge(scale_of(given, record.obj), body) if verb == "patch" else body
        meta = wanted.get("metadata") if isinstance(wanted, dict) else None
        check_preconditions(target.resource, record, meta)
        desired = scaled(given, record.obj, wanted)
        writer = self._writer(request, target, "Update")
        updated = self._registry.update(target.resource, record, desired, writer=writer)
        return json_response(200, scale_of(given, updated.obj))

    def _apply(self, target: Target, request: Request, options: WriteOptions) -> Response:
        resource = target.resource
        if target.subresource:
            self._found(target)
        wanted = patching.applied(resource, request, target, options)
        writer = self._writer(request, target, "Apply", options)
        record = self._store.get(resource, target.namespace, target.name)
        if record is None:
            return self._apply_absent(target, wanted, writer)
        patching.check_applied(resource, record, wanted["metadata"])
        try:
            applied = self._registry.apply(
                resource,
                record,
                wanted,
                subresource=target.subresource,
                writer=writer,
                force=options.force,
            )
        except TypedError as error:
            raise patching.untyped(resource, target, str(error)) from None
        return _answer(200, applied)

    def _apply_absent(self, target: Target, wanted: Object, writer: Writer) -> Response:
        if target.subresource:
            raise not_found(target.resource, target.name)
        if uid := wanted["metadata"].get("uid"):
            why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise conflict(target.resource, target.name, why)
        try:
            created = self._registry.create(
                target.resource, wanted, namespace=target.namespace, writer=writer
            )
        except TypedError as error:
            raise patching.untyped(target.resource, target, str(error)) from None
        return _answer(201, created)

    # ---- delete

    def _delete(self, target: Target, request: Request) -> Response:
        options = delete_options(request)
        self._store.dry_run = bool(options.dry_run)
        record = self._found(target)
        if target.resource is NAMESPACES and target.name in _PROTECTED_NAMESPACES:
            raise forbidden(NAMESPACES, target.name, "this namespace may not be deleted")
        left, gone = self._deleted(target.resource, record, options)
        if gone and target.resource not in _RETURNED_ON_DELETE:
            return success(target.resource, record.name, record.uid)
        waits = not gone and options.orphan_dependents is False
        return _answer(202 if waits else 200, left)

    def _deleted(
        self, resource: Resource, record: Record, options: DeleteOptions
    ) -> tuple[Record, bool]:
        given = options.preconditions or {}
        uid, version = (
            given.get("uid", record.uid),
            given.get("resourceVersion", str(record.version)),
        )
        if uid != record.uid:
            why = f"the UID in the precondition ({uid}) does not match the UID in record ({record.uid})"
            hint = "The object might have been deleted and then recreated"
            raise delete_conflict(resource, record.name, f"{why}. {hint}")
        if version != str(record.version):
            why = f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion"
            hint = f"in record ({record.version}). The object might have been modified"
            raise delete_conflict(resource, record.name, f"{why} {hint}")
        return self._registry.deleted(resource, record, options.deletion)

    def _delete_all(self, target: Target, request: Request) -> Response:
        """Deletes what a list would show, and returns it as it was."""
        options = delete_options(request)
        page = self._reader.page(target, request)
        self._store.dry_run = bool(options.dry_run)
        for record in page.records:
            current = self._store.get(target.resource, record.namespace, record.name)
            if current is not None and current.uid == record.uid:
                self._deleted(target.resource, current, options)
        body = list_body(target.resource, page.records, page.meta)
        return Response(status=200, headers=_JSON, body=body)

    # ---- manager and time

    def _options(self, request: Request, kind: str, *, applies: bool = False) -> WriteOptions:
        options = write_options(request, kind, applies=applies)
        self._store.dry_run = options.dry_run
        return options

    def _writer(
        self, request: Request, target: Target, operation: str, options: WriteOptions | None = None
    ) -> Writer:
        given = options.manager if options is not None else request.param("fieldManager")
        manager = given or request.header("user-agent").partition("/")[0] or "unknown"
        return Writer(
            manager=manager[:128],
            operation=operation,
            subresource=target.subresource if target.subresource in _SUBRESOURCES else "",
            time=self._now(),
        )

    def _now(self) -> str:
        return _written(int(self._clock.now()))


@lru_cache(maxsize=4)
def _written(second: int) -> str:
    return to_rfc3339(second)


def _answer(code: int, record: Record, warnings: list[str] | None = None) -> Response:
    headers = (*_JSON, *warning_headers(warnings)) if warnings else _JSON
    return Response(status=code, headers=headers, body=record.body)
