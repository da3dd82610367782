"""Serves reads: lists with selectors and pages, and watches.

A page's `continue` token names the version of the first page; later pages show the state at that version, rolled back
through the history, so a paged list is one consistent snapshot however long it takes. When the history no longer
reaches back that far, the response is 410, with a token that continues in the current state, for clients that accept
an inconsistent list.

A list shows the current version, unless an exact version is requested. Version 0 and "not older than" get the current
one too, because there is no watch cache with an older one.
"""

import random
from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right

import msgspec

from runyard.clock import Clock
from runyard.embedded.kube import selectors
from runyard.embedded.kube.negotiation import (
    Form,
    metadata_list,
    metadata_of,
    negotiated,
    table_of,
    wants_metadata,
)
from runyard.embedded.kube.protobuf import encoding
from runyard.embedded.kube.reading import ReadOptions, read_options
from runyard.embedded.kube.resources import Object, Resource
from runyard.embedded.kube.routes import Target
from runyard.embedded.kube.selectors import Selector
from runyard.embedded.kube.settings import Settings
from runyard.embedded.kube.status import (
    StatusError,
    bad_request,
    list_expired,
    page_expired,
    version_too_large,
)
from runyard.embedded.kube.storage.store import Event, Record, Store, watch_line
from runyard.embedded.kube.storage.watch import Line, Watcher, WatchOptions
from runyard.embedded.kube.tables import tables
from runyard.http.messages import Request, Response, Stream, json_response

_JSON = (("content-type", "application/json"),)
_PROTOBUF = (("content-type", encoding.STREAM),)
_ERROR = "ERROR"  # the event that makes a watcher list again
_TOKEN = "meta.k8s.io/v1"
_INCONSISTENT = -1  # the version in a token that continues in the current state


class Page(msgspec.Struct, frozen=True):
    """A `continue` token."""

    v: str
    rv: int
    start: str  # namespace/name of the last object shown, and a zero


class Listing(msgspec.Struct, frozen=True):
    """One page of records and the list's metadata."""

    records: list[Record]
    meta: Object


class Reader:
    """Answers lists and watches."""

    def __init__(
        self, store: Store, *, clock: Clock, rng: random.Random, settings: Settings
    ) -> None:
        self._store = store
        self._clock = clock
        self._rng = rng
        self._settings = settings

    # ---- list

    def listed(self, target: Target, request: Request) -> Response:
        """Serves a list: one page, or everything."""
        page, form = self.page(target, request), negotiated(request, target.resource)
        if (shown := table_of(request, form)) is not None:
            objects = [item.obj for item in page.records]
            meta, now = _without_empty(page.meta), self._clock.now()
            return json_response(200, tables.table(target.resource, objects, shown, meta, now=now))
        if wants_metadata(form, listed=True):
            body = metadata_list([item.obj for item in page.records], _without_empty(page.meta))
        else:
            body = list_body(target.resource, page.records, page.meta)
        return Response(status=200, headers=_JSON, body=body)

    def page(self, target: Target, request: Request) -> Listing:
        """The records that a list shows, from the parameters of the request."""
        options = read_options(request)
        options.check_list()
        selector = _selector(target, request)
        token = _page(options.continue_token)
        if token is not None and options.version:
            message = "specifying resource version is not allowed when using continue"
            raise bad_request(message)
        version, records = self._records(target, options, token)
        if token is not None:
            start = _start(target, token.start)
            records = records[bisect_right(records, start, key=_position) :]
        read = records
        if selector:
            records = [item for item in records if selector.matches(item.obj)]
        limit = 0 if options.version == 0 and options.version_text else options.limit
        # Whether there are more pages depends on the records after this one, also those that do not match.
        if not limit or len(records) < limit or records[limit - 1] is _last(read, selector):
            end: Object = {"continue": ""} if target.resource.custom else {}
            return Listing(records, {**end, "resourceVersion": str(version)})
        last = records[limit - 1]
        continue_token = _token(target, version, last)
        meta: Object = {"resourceVersion": str(version), "continue": continue_token}
        if not selector:
            meta["remainingItemCount"] = len(records) - limit
        return Listing(records[:limit], meta)

    def one(self, target: Target, request: Request, record: Record) -> Response:
        """One object, as it is or as a table with one row."""
        options = read_options(request, listing=False)
        if options.version and options.version > self._store.version:
            raise version_too_large(options.version, self._store.version)
        form = negotiated(request, target.resource)
        if wants_metadata(form, listed=False):
            return json_response(200, metadata_of(record.obj))
        if (shown := table_of(request, form)) is None:
            return Response(status=200, headers=_JSON, body=record.body)
        meta: Object = {"resourceVersion": str(record.version)}
        now = self._clock.now()
        return json_response(200, tables.table(target.resource, [record.obj], shown, meta, now=now))

    def _records(
        self, target: Target, options: ReadOptions, token: Page | None
    ) -> tuple[int, list[Record]]:
        """The version that a list shows, and its state."""
        table, current = self._store.table(target.resource), self._store.version
        exact = options.version
        if token is not None:
            exact = 0 if token.rv == _INCONSISTENT else token.rv
        elif not options.exact:
            if exact > current:
                raise version_too_large(exact, current)
            exact = 0
        if exact > current:
            raise version_too_large(exact, current)
        if not exact:
            return current, table.records(target.namespace)
        if exact < table.floor:
            raise (
                list_expired()
                if token is None
                else page_expired(_encoded(_INCONSISTENT, token.start))
            )
        return exact, table.records_at(exact, target.namespace)

    # ---- watch

    def watch(self, target: Target, request: Request) -> Stream:
        """A stream of changes after the version that the client has seen."""
        resource = target.resource
        table = self._store.table(resource)
        options = read_options(request, listing=False)
        options.check_watch()
        form = negotiated(request, resource)
        watcher = Watcher(
            resource,
            self._watch_options(target, request, options),
            clock=self._clock,
            version=lambda: self._store.published,
            unsubscribe=table.unsubscribe,
            failure=_error_event if form.protobuf else _error_line,
            line=self._line(target, request, form),
        )
        try:
            if options.initial or (options.initial is None and not options.version):
                watcher.preload(self._initial_lines(target, watcher))
                if options.initial and options.bookmarks:
                    watcher.preload([watcher.bookmark(self._store.version, initial_end=True)])
            elif options.version and options.version <= self._store.version:
                self._store.check_version(resource, options.version)
                lines = (watcher.line_for(event) for event in table.since(options.version))
                watcher.preload([line for line in lines if line is not None])
            table.subscribe(watcher)
        except StatusError as error:
            if error.code != 410 or not self._settings.gone_in_stream:
                raise
            watcher.fail(error.body())
        headers = _PROTOBUF if form.protobuf else _JSON
        return Stream(watcher, headers=headers, on_close=watcher.abandon)

    def _initial_lines(self, target: Target, watcher: Watcher) -> list[bytes]:
        records = self._store.table(target.resource).records(target.namespace)
        made = (Event(target.resource, item.version, old=None, new=item) for item in records)
        lines = (watcher.line_for(event) for event in made)
        return [line for line in lines if line is not None]

    def _line(self, target: Target, request: Request, form: Form) -> Line | None:
        """Returns the encoder for a client that requested another form; the first table has the columns."""
        if wants_metadata(form):
            return _metadata_event if form.protobuf else _metadata_line
        if (shown := table_of(request, form)) is None:
            return _event if form.protobuf else None
        columns = True

        def line(kind: str, obj: Object, version: int) -> bytes:
            nonlocal columns
            meta: Object = {"resourceVersion": str(version)}
            now = self._clock.now()
            table = tables.table(target.resource, [obj], shown, meta, now=now, columns=columns)
            columns = False
            return watch_line(kind, msgspec.json.encode(table))

        return line

    def _watch_options(
        self, target: Target, request: Request, options: ReadOptions
    ) -> WatchOptions:
        lifetime = self._settings.watch_seconds
        return WatchOptions(
            namespace=target.namespace,
            selector=_selector(target, request),
            seconds=float(options.seconds) if options.seconds else self._rng.uniform(*lifetime),
            bookmark_every=self._settings.bookmark_every if options.bookmarks else 0.0,
            buffer=self._settings.watch_buffer,
            # The first lines contain the current objects, also those that are not published yet.
            after=max(options.version, self._store.version),
            shown=self._store.version,
        )


def _last(read: list[Record], selector: Selector) -> Record | None:
    """Returns the last record that the list reads."""
    return next((item for item in reversed(read) if selector.reads(item.obj)), None)


def _without_empty(meta: Object) -> Object:
    """The list's metadata, without empty fields."""
    return {key: value for key, value in meta.items() if value != ""}


def _metadata_line(kind: str, obj: Object, version: int) -> bytes:
    return watch_line(kind, msgspec.json.encode(metadata_of(obj)))


def _error_line(status: Object) -> bytes:
    return watch_line(_ERROR, msgspec.json.encode(status))


def _error_event(status: Object) -> bytes:
    return encoding.event(_ERROR, status)


def _event(kind: str, obj: Object, version: int) -> bytes:
    return encoding.event(kind, obj)


def _metadata_event(kind: str, obj: Object, version: int) -> bytes:
    return encoding.event(kind, metadata_of(obj))


def _selector(target: Target, request: Request) -> Selector:
    labels, fields = request.param("labelSelector"), request.param("fieldSelector")
    return selectors.parse(target.resource, labels, fields)


# ---- tokens of pages


def _token(target: Target, version: int, last: Record) -> str:
    inside = target.namespace or not target.resource.namespaced
    key = last.name if inside else f"{last.namespace}/{last.name}"
    return _encoded(version, f"{key}\x00")


def _encoded(version: int, start: str) -> str:
    page = msgspec.json.encode(Page(_TOKEN, version, start))
    return urlsafe_b64encode(page).decode().rstrip("=")


def _page(token: str) -> Page | None:
    if not token:
        return None
    try:
        padded = token + "=" * (-len(token) % 4)
        page = msgspec.json.decode(urlsafe_b64decode(padded), type=Page)
    except (ValueError, msgspec.DecodeError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from None
    if page.v != _TOKEN or page.rv < _INCONSISTENT or page.rv == 0 or not page.start:
        raise bad_request("invalid continue token: continue key is not valid")
    return page


def _position(record: Record) -> tuple[str, str]:
    """The position of a record in a list."""
    return record.namespace, record.name


def _start(target: Target, text: str) -> tuple[str, str]:
    """The namespace and name after which a page starts."""
    key = text.rstrip("\x00").lstrip("/")
    if target.namespace or not target.resource.namespaced:
        return target.namespace, key
    namespace, _, name = key.partition("/")
    return namespace, name


# ---- bodies


def list_body(resource: Resource, records: list[Record], meta: Object) -> bytes:
    """A list as JSON; items of built-in kinds do not repeat kind and apiVersion."""
    head = {"kind": resource.list_kind, "apiVersion": resource.api_version, "metadata": meta}
    lead = msgspec.json.encode(head)[:-1] + b',"items":['
    if not records:
        return lead + b"]}"
    return lead + b"{" + b",{".join([item.tail for item in records]) + b"]}"
