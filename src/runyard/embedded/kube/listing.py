"""Reading: lists with selectors and pages, and watches.

A page's `continue` token names the version at which the listing began; later pages show the state of that
version, rolled back through the history, so a listing is one consistent picture however long it takes.
When history no longer reaches that far, the answer is 410 and the client begins again.
"""

import random
from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec

from runyard.clock import Clock
from runyard.embedded.kube import selectors, tables
from runyard.embedded.kube.resources import Object, Resource
from runyard.embedded.kube.routes import Target
from runyard.embedded.kube.selectors import Selector
from runyard.embedded.kube.settings import Settings
from runyard.embedded.kube.status import Cause, StatusError, bad_request, invalid
from runyard.embedded.kube.store import Change, Event, Record, Store, watch_line
from runyard.embedded.kube.watch import Line, Terms, Watcher, bookmark
from runyard.http.messages import Request, Response, Stream, json_response

_JSON = (("content-type", "application/json"),)
_TRUE = ("true", "1")


class Page(msgspec.Struct, frozen=True):
    """Where a listing stopped."""

    version: int
    namespace: str
    name: str


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
        """One page, or everything."""
        selector = _selector(target, request)
        limit = _number(request, "limit") or 0
        page = _page(request.param("continue"))
        version = self._store.version if page is None else page.version
        records = self._records(target, request, page)
        if page is not None:
            start = (page.namespace, page.name)
            records = [item for item in records if (item.namespace, item.name) > start]
        if selector:
            records = [item for item in records if selector.matches(item.obj)]
        more = ""
        if limit and len(records) > limit:
            last = records[limit - 1]
            more = _token(Page(version, last.namespace, last.name))
        left = len(records) - limit if more and not selector else 0
        shown = records[:limit] if more else records
        meta = _list_meta(version, more=more, left=left)
        if (form := tables.asked(request)) is not None:
            objects = [item.obj for item in shown]
            now = self._clock.now()
            return json_response(200, tables.table(target.resource, objects, form, meta, now=now))
        return Response(status=200, headers=_JSON, body=_list_body(target.resource, shown, meta))

    def one(self, target: Target, request: Request, record: Record) -> Response:
        """One object, as it is or as a table with one row."""
        if (form := tables.asked(request)) is None:
            return Response(status=200, headers=_JSON, body=record.body)
        meta: Object = {"resourceVersion": str(record.version)}
        now = self._clock.now()
        return json_response(200, tables.table(target.resource, [record.obj], form, meta, now=now))

    def _records(self, target: Target, request: Request, page: Page | None) -> list[Record]:
        table = self._store.table(target.resource)
        if page is not None:
            if page.version > self._store.version:
                raise bad_request("the continue token is from another server")
            return table.records_at(page.version, target.namespace)
        asked = _number(request, "resourceVersion")
        if asked and asked > self._store.version:
            self._store.check_version(target.resource, asked)
        if asked and request.param("resourceVersionMatch") == "Exact":
            return table.records_at(asked, target.namespace)
        return table.records(target.namespace)

    # ---- watch

    def watch(self, target: Target, request: Request) -> Stream:
        """A stream of changes after the version that the client has seen."""
        resource = target.resource
        table = self._store.table(resource)
        watcher = Watcher(
            resource,
            self._terms(target, request),
            clock=self._clock,
            version=lambda: self._store.version,
            forget=table.unsubscribe,
            line=self._line(target, request),
        )
        asked = _number(request, "resourceVersion") or 0
        initial = _initial_events(target, request)
        try:
            if initial or not asked:
                watcher.preload(self._present(target, watcher))
                if initial:
                    end = bookmark(resource, self._store.version, initial_end=True)
                    watcher.preload([end])
            else:
                self._store.check_version(resource, asked)
                lines = (watcher.concerns(event) for event in table.since(asked))
                watcher.preload([line for line in lines if line is not None])
            table.subscribe(watcher)
        except StatusError as error:
            if error.code != 410 or not self._settings.gone_in_stream:
                raise
            watcher.fail(gone_line(error))
        return Stream(watcher, headers=_JSON, on_close=watcher.abandon)

    def _present(self, target: Target, watcher: Watcher) -> list[bytes]:
        records = self._store.table(target.resource).records(target.namespace)
        made = (Event(target.resource, item.version, old=None, new=item) for item in records)
        lines = (watcher.concerns(event) for event in made)
        return [line for line in lines if line is not None]

    def _line(self, target: Target, request: Request) -> Line | None:
        """How to write an event for a reader who wants tables; the first one carries the columns."""
        if (form := tables.asked(request)) is None:
            return None
        columns = True

        def line(event: Event, change: Change) -> bytes:
            nonlocal columns
            obj = event.shown(change)
            meta: Object = {"resourceVersion": str(event.version)}
            now = self._clock.now()
            shown = tables.table(target.resource, [obj], form, meta, now=now, columns=columns)
            columns = False
            return watch_line(change, msgspec.json.encode(shown))

        return line

    def _terms(self, target: Target, request: Request) -> Terms:
        seconds = _number(request, "timeoutSeconds")
        bookmarks = request.param("allowWatchBookmarks").lower() in _TRUE
        selector = _selector(target, request)
        if target.name:
            selector = selectors.parse(target.resource, "", f"metadata.name={target.name}")
        return Terms(
            namespace=target.namespace,
            selector=selector,
            seconds=float(seconds) if seconds else self._rng.uniform(*self._settings.watch_seconds),
            bookmark_every=self._settings.bookmark_every if bookmarks else 0.0,
            buffer=self._settings.watch_buffer,
        )


def gone_line(error: StatusError) -> bytes:
    """The ERROR event that tells a watcher to list again."""
    return watch_line("ERROR", msgspec.json.encode(error.body()))


def wants_watch(request: Request) -> bool:
    """Whether a read is a watch."""
    return request.param("watch").lower() in _TRUE


def _initial_events(target: Target, request: Request) -> bool:
    if request.param("sendInitialEvents").lower() not in _TRUE:
        return False
    if request.param("resourceVersionMatch") != "NotOlderThan":
        cause = Cause("resourceVersionMatch", "sendInitialEvents needs NotOlderThan")
        raise invalid(target.resource, "", [cause])
    return True


def _selector(target: Target, request: Request) -> Selector:
    labels, fields = request.param("labelSelector"), request.param("fieldSelector")
    return selectors.parse(target.resource, labels, fields)


def _number(request: Request, name: str) -> int | None:
    text = request.param(name)
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise bad_request(f"invalid value of the parameter {name}: {text[:40]!r}")
    return int(text)


def _token(page: Page) -> str:
    return urlsafe_b64encode(msgspec.json.encode(page)).decode()


def _page(token: str) -> Page | None:
    if not token:
        return None
    try:
        return msgspec.json.decode(urlsafe_b64decode(token), type=Page)
    except (ValueError, msgspec.DecodeError):
        raise bad_request("the continue token is not valid") from None


def _list_meta(version: int, *, more: str, left: int) -> Object:
    meta: Object = {"resourceVersion": str(version)}
    if more:
        meta["continue"] = more
    if left:
        meta["remainingItemCount"] = left
    return meta


def _list_body(resource: Resource, records: list[Record], meta: Object) -> bytes:
    head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": meta}
    items = b",".join([item.body for item in records])
    return msgspec.json.encode(head)[:-1] + b',"items":[' + items + b"]}"
