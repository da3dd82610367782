"""The embedded Kubernetes API: `handle` takes a request and returns a response or a stream.

It is not a rewrite of Kubernetes. It serves what runyard's components use, with the messages and the rules of
a real API server, and answers everything else with 501 and a reason. The same core runs behind a socket on one
machine and behind a loopback in the simulator.

Each request is one synchronous step: read, decide, commit, and then let the built-in controllers
(garbage collection, scheduler, node lifecycle) handle the commits, including their own, until there are
none left. So a client can never read a half-done write, and a run with the same clock, generator and
requests gives the same answers. Only what depends on time alone (silent nodes, evictions, old Events)
needs `run_controllers`, which ticks.

With a journal each step is also on disk before its response is sent and before a watcher gets it (`persistence`).
The steps of one batch, those before the loop's next iteration, share one transaction and one sync of the disk. Reads
among them wait for it too, because they may have read what is not stored yet. When the write fails, the batch is
rolled back as a whole and its clients get an error. If the disk was only full, serving continues: everything can be
read, and writes work again once there is free space. If the disk failed in any other way, its content is unknown, so
the core stops: it refuses every request, `run_controllers` raises, and the next process reads what was stored.

Invariants:
- `handle` never raises; an unexpected exception becomes a 500 and is counted in `failures`.
- `on_write` gets every commit once, in order, synchronously, when it is stored and before the
  response is sent. An exception that it raises is counted as a failure.
- `/healthz` and `/livez` are ok until the core stops. `/readyz` is ok, once `run_controllers` has started, only while
  the controllers tick and the last commit to the journal succeeded.
- A committed write gets a success response, whatever a controller does with the object afterwards.
"""

import asyncio
import math
import random
from collections import Counter, deque
from collections.abc import Callable

import msgspec

from runyard.clock import Clock
from runyard.embedded.kube import verbs
from runyard.embedded.kube.access import auth
from runyard.embedded.kube.access.access import Access
from runyard.embedded.kube.access.tokens import Tokens
from runyard.embedded.kube.controllers.controllers import Controllers
from runyard.embedded.kube.controllers.definitions import Definitions
from runyard.embedded.kube.listing import Reader
from runyard.embedded.kube.negotiation import wants_protobuf
from runyard.embedded.kube.nodeproxy.calls import NodeCall, NodeProxy, pass_on
from runyard.embedded.kube.openapi import discovery
from runyard.embedded.kube.persistence import Persistence
from runyard.embedded.kube.protobuf.encoding import transcoded
from runyard.embedded.kube.registry import Registry
from runyard.embedded.kube.resources import NAMESPACES, RUNTIME_CLASSES, Object, Resource
from runyard.embedded.kube.settings import Settings
from runyard.embedded.kube.status import (
    StatusError,
    bad_request,
    body_too_large,
    expired,
    internal,
    not_persisted,
    not_ready,
    stopped,
    unauthorized,
)
from runyard.embedded.kube.storage.journal import Journal, JournalError, JournalFull
from runyard.embedded.kube.storage.store import Event, Store
from runyard.http.messages import Request, Response, Stream
from runyard.http.tls import Pair
from runyard.telemetry.freshness import Freshness, due_within
from runyard.telemetry.log import get_logger
from runyard.telemetry.names import Loop
from runyard.wire import manifests

CONTROLLERS = Loop.KUBE_CONTROLLERS
JOURNAL = Loop.KUBE_JOURNAL
_PERSIST_ALERT_AFTER = 10.0  # seconds of failed writes after which it counts as unhealthy
_READYZ = "/readyz"
_REFUSED = 400  # and above: the body is a Status

OnWrite = Callable[[str, str, str, str], None]


class Security(msgspec.Struct, frozen=True, kw_only=True):
    """Authentication and authorization; by default every caller is an administrator."""

    authenticate: auth.Authenticate = auth.always_admin
    authorize: auth.Authorize = auth.always_allow
    rbac: bool = False
    authority: Pair | None = None


OPEN = Security()


class KubeCore:
    """One Kubernetes API with its controllers."""

    def __init__(
        self,
        *,
        clock: Clock,
        rng: random.Random,
        on_write: OnWrite | None = None,
        settings: Settings | None = None,
        journal: Journal | None = None,
        security: Security = OPEN,
        proxy: NodeProxy | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self.failures: Counter[str] = Counter()
        self._clock = clock
        self._on_write = on_write
        self.proxy = proxy  # forwards a Pod's log, exec, attach and portforward to its node
        self._authenticate = security.authenticate
        self._freshness = Freshness(clock)
        self._unpersisted_since: float | None = None  # None: the last step was stored
        self._log = get_logger("embedded.kube")
        self._unhandled: deque[Event] = deque()
        self._stopped: JournalError | None = None
        # Requests that wait for the next commit.
        self._pending: list[asyncio.Future[StatusError | None]] = []
        self._store = Store(history=self.settings.history, on_commit=self._committed)
        self._discovery = discovery.Discovery(self._store.catalogue)
        tolerated = math.ceil(self.settings.pod_eviction)
        self._registry = Registry(self._store, clock=clock, rng=rng, tolerated=tolerated)
        self._persistence: Persistence | None = None
        if journal is None:
            key = rng.randbytes(32)
        else:
            self._persistence = Persistence(self._store, journal)
            self._persistence.restore()
            key = self._persistence.signing_key(rng)
        self.tokens = Tokens(self._store, clock=clock, rng=rng, key=key)
        reader = Reader(self._store, clock=clock, rng=rng, settings=self.settings)
        self._verbs = verbs.Verbs(
            self._registry, reader, tokens=self.tokens, clock=clock, review=self._review
        )
        self._access = Access(
            self._registry,
            authorize=security.authorize,
            rbac=security.rbac,
            authority=security.authority,
        )
        self._root_ca = b"" if security.authority is None else security.authority.certificate
        self._start_controllers()
        self._create_defaults()

    def _start_controllers(self) -> None:
        """Creates new controllers, which index what is stored and write nothing yet."""
        registry, clock, settings = self._registry, self._clock, self.settings
        self._definitions = Definitions(registry)
        self._controllers = Controllers(
            registry, clock=clock, settings=settings, root_ca=self._root_ca
        )
        self.scheduler = self._controllers.scheduler
        self._access.forget()
        self._first_handlers = (self._definitions.on_event, self._access.on_event)
        if self._persistence is not None:
            self._definitions.load_stored()
            self._controllers.load_stored()

    def _create_defaults(self) -> None:
        """Creates the objects that must always exist; raises `JournalError` if they cannot be stored."""
        for name in self.settings.namespaces:
            if self._store.get(NAMESPACES, "", name) is None:
                self._registry.create(NAMESPACES, {"metadata": {"name": name}}, namespace="")
        self._definitions.install(manifests.definitions())
        for obj in manifests.runtime_classes():
            if self._store.get(RUNTIME_CLASSES, "", obj["metadata"]["name"]) is None:
                self._registry.create(RUNTIME_CLASSES, obj, namespace="")
        self._access.create_defaults()
        self._controllers.resume()
        self._settle()
        if self._persistence is not None and self._persistence.outbox:
            self._report(self._persistence.commit())
            self._publish()

    def guard(self, authenticate: auth.Authenticate) -> None:
        """Sets the authentication; for one that needs this core's `tokens`."""
        self._authenticate = authenticate

    # ---- requests

    async def handle(self, request: Request) -> Response | Stream:
        """Answers one request; never raises."""
        answer = await self._handled(request)
        if (
            isinstance(answer, Response)
            and answer.status >= _REFUSED
            and wants_protobuf(request.header("accept"))
        ):
            return transcoded(answer)
        return answer

    async def _handled(self, request: Request) -> Response | Stream:
        if self._stopped is not None:
            return stopped(self._stopped.cause).response()
        try:
            answer: Response | Stream | NodeCall = self._answer(request)
        except StatusError as refusal:
            answer = refusal.response()
        except RecursionError:
            answer = bad_request("the body of the request is nested too deeply").response()
        except Exception as defect:  # noqa: BLE001  the boundary: answered with 500, and counted
            self._failed(defect, path=request.path)
            answer = internal().response()
        self._settle()
        if self._persistence is not None and self._persistence.outbox:
            lost = await self._wait_for_commit(answer)
            if lost is not None:
                return lost.response()
        if self._definitions.retired:
            self._publish()
            self._definitions.retire()
        return await self._pass_on(answer, request) if isinstance(answer, NodeCall) else answer

    async def _pass_on(self, call: NodeCall, request: Request) -> Response | Stream:
        try:
            return await pass_on(self.proxy, call)
        except Exception as defect:  # noqa: BLE001  the boundary: answered with 500, and counted
            self._failed(defect, path=request.path)
            return internal().response()

    async def _wait_for_commit(self, answer: object) -> StatusError | None:
        """Waits for the commit of this step; returns the error if it failed."""
        loop = asyncio.get_running_loop()
        if not self._pending:
            loop.call_soon(self._commit_pending)
        end: asyncio.Future[StatusError | None] = loop.create_future()
        self._pending.append(end)
        lost: StatusError | None = stopped("the client went away")
        try:
            lost = await end
        finally:
            if lost is not None and isinstance(answer, Stream):
                await answer.aclose()
        return lost

    def _commit_pending(self) -> None:
        if self._persistence is not None:
            self._persist(self._persistence)

    def _persist(self, persistence: Persistence) -> None:
        """Commits the batch, or rolls it back, and wakes the requests that wait for it."""
        if not persistence.outbox:
            return
        lost: StatusError | None = internal()
        try:
            lost = self._commit(persistence)
        except Exception as defect:  # noqa: BLE001  the boundary: waiting requests must get a response
            self._failed(defect, path="journal")
        waiting, self._pending = self._pending, []
        for end in waiting:
            if not end.done():
                end.set_result(lost)
        if waiting:
            # Responses first: clients can send their next request while events are sent to watchers.
            asyncio.get_running_loop().call_soon(self._publish)
        else:
            self._publish()

    def _publish(self) -> None:
        """Sends the stored events to the watchers."""
        if self._persistence is None:
            return
        try:
            self._persistence.publish()
        except Exception as defect:  # noqa: BLE001  the boundary of a loop callback, whose result is not awaited
            self._failed(defect, path="watches")

    def _commit(self, persistence: Persistence) -> StatusError | None:
        try:
            events = persistence.commit()
        except JournalError as error:
            self._failed(error, path=f"journal: {error.cause}")
            if self._unpersisted_since is None:
                self._unpersisted_since = self._clock.monotonic()
            return self._rolled_back(error)
        self._unpersisted_since = None
        try:
            self._report(events)
        except Exception as defect:  # noqa: BLE001  the boundary of a listener: the write is committed
            self._failed(defect, path="on_write")
        return None

    def _rolled_back(self, error: JournalError) -> StatusError:
        self._unhandled.clear()
        self._start_controllers()  # the old ones have indexed the changes
        if not isinstance(error, JournalFull):
            self._stopped = error
            self.close_watches()
        return not_persisted(str(error), full=isinstance(error, JournalFull))

    def _failed(self, defect: Exception, *, path: str) -> None:
        self.failures[type(defect).__name__] += 1
        self._log.error("embedded API failed", path=path, exc_info=defect)

    def _answer(self, request: Request) -> Response | Stream | NodeCall:
        user = self._authenticate(request)
        if user is None:
            raise unauthorized()
        if len(request.body) > self.settings.body_limit:
            raise body_too_large(self.settings.body_limit)
        self._access.enter(user, request)
        if request.method in ("GET", "HEAD"):
            if request.path.rstrip("/") == _READYZ and (stale := self._freshness.stale()):
                raise not_ready(each.loop for each in stale)
            found = self._discovery.document(request)
            if found is not None:
                return found
        return self._verbs.serve(request)

    def _review(self, resource: Resource, body: Object) -> Object:
        return self._access.review(resource, body)

    # ---- controllers

    def _committed(self, event: Event) -> None:
        self._unhandled.append(event)
        if self._persistence is None:
            self._report((event,))

    def _report(self, events: tuple[Event, ...]) -> None:
        if self._on_write is None:
            return
        for event in events:
            verb = "delete" if event.new is None else "update" if event.old else "create"
            record = event.record
            key = f"{record.namespace}/{record.name}" if record.namespace else record.name
            self._on_write(verb, event.resource.kind, key, record.uid)

    def _settle(self) -> None:
        """Lets the controllers handle commits until there are none left."""
        while self._unhandled:
            event = self._unhandled.popleft()
            for on_event in (*self._first_handlers, *self._controllers.handlers(event)):
                try:
                    on_event(event)
                except Exception as defect:  # noqa: BLE001  the boundary of a handler: the write is committed
                    self._failed(defect, path=f"reaction to {event.resource.plural}")

    def tick(self) -> None:
        """Runs what depends on time: silent nodes, evictions, old Events, reasons of waiting Pods."""
        self._controllers.tick(self._settle)
        if self._persistence is not None:
            self._persist(self._persistence)

    async def run_controllers(self) -> None:
        """Ticks until the disk fails, and then raises the `JournalError`: the process must end."""
        every = self.settings.tick
        self._freshness.expect(CONTROLLERS, due_within(every=every, deadline=every))
        self._freshness.follow(JOURNAL, _PERSIST_ALERT_AFTER, self._last_persisted)
        while self._stopped is None:
            await self._clock.sleep(every)
            if self._stopped is None:
                self.tick()
                self._freshness.succeeded(CONTROLLERS)
        raise self._stopped

    def _last_persisted(self) -> float:
        return (
            self._clock.monotonic() if self._unpersisted_since is None else self._unpersisted_since
        )

    # ---- inspection, for tests and the simulator

    @property
    def version(self) -> int:
        """The number of the last commit."""
        return self._store.version

    def objects(self, plural: str) -> tuple[Object, ...]:
        """All objects of a kind, ordered by namespace and name. Not to be changed."""
        return tuple(record.obj for record in self._store.tables[plural].records())

    def find(self, plural: str, namespace: str, name: str) -> Object | None:
        """One object. Not to be changed."""
        record = self._store.tables[plural].get(namespace, name)
        return None if record is None else record.obj

    def watcher_count(self, plural: str) -> int:
        """How many watches of a kind are open."""
        return len(self._store.tables[plural].watchers())

    def compact(self) -> None:
        """Drops all history: a watch or a page from an earlier version gets 410."""
        self._store.compact()

    def expire_watches(self) -> None:
        """Ends every open watch with an ERROR event with code 410."""
        self._publish()
        gone = expired(self.version, self.version).body()
        for table in self._store.tables.values():
            for watcher in table.watchers():
                watcher.fail(gone)

    def close_watches(self) -> None:
        """Ends every open watch, as a restart of the server would."""
        self._publish()
        for table in self._store.tables.values():
            for watcher in table.watchers():
                watcher.close()
