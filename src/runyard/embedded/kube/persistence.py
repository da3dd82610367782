"""Writes the commits of the store in memory to the journal on disk, one transaction for each batch of steps.

With a journal, the store puts each event into the `outbox` instead of sending it to its watchers.
At the end of a batch `commit` writes the whole outbox in one transaction, and only after that `publish` sends the
events, so neither a client nor a watcher ever gets what a power cut could undo. Concurrent requests share one sync of
the disk, because its latency is expensive, not the amount of data.

Between `commit` and `publish` memory holds events that the watchers do not have yet. A list shows them, and a watch
that is opened then has them in its first lines and does not get them again; no bookmark goes beyond them
(`Store.published`).

If the write fails, `commit` rolls the batch back in memory: the objects, the history and the version are what they
were before. Between two batches memory is never ahead of the disk.

After a restart history is empty: a watch from an older version gets 410, and its client lists again.
"""

import random
from collections.abc import Iterable

import msgspec

from runyard.embedded.kube.controllers.definitions import serve_stored
from runyard.embedded.kube.resources import DEFINITIONS
from runyard.embedded.kube.storage.journal import Journal, JournalError, Row
from runyard.embedded.kube.storage.store import Event, Record, Store, record_of
from runyard.wire import manifests

_FIX = "Use the version of runyard that wrote it, or move it away to start empty"


class Persistence:
    """Persists a store's steps in a journal."""

    def __init__(self, store: Store, journal: Journal) -> None:
        self._store = store
        self._journal = journal
        self._signing_key = b""
        self.outbox: list[Event] = []

    def restore(self) -> None:
        """Fills the empty store from the journal, and persists its commits from then on."""
        snapshot = self._journal.load()
        self._signing_key = snapshot.signing_key
        for row in snapshot.rows:
            if row.plural == DEFINITIONS.key:  # first: they determine which other tables exist
                self._store.table(DEFINITIONS).put(self._record(row))
        serve_stored(self._store, manifests.definitions())
        for row in snapshot.rows:
            if row.plural == DEFINITIONS.key:
                continue
            table = self._store.tables.get(row.plural)
            if table is None:
                cause = (
                    f"{self._journal.path} holds {row.plural}, which this version does not serve"
                )
                raise JournalError(cause, fix=_FIX)
            table.put(self._record(row))
        self._store.version = snapshot.version
        self._store.compact()
        self._store.outbox = self.outbox

    def _record(self, row: Row) -> Record:
        try:
            obj = msgspec.json.decode(row.body or b"")
            meta = obj["metadata"]
            given = (meta.get("namespace", ""), meta["name"], meta["resourceVersion"])
            if given != (row.namespace, row.name, str(row.version)):
                raise ValueError("its metadata does not match its row")
            return record_of(obj, row.version, row.body or b"")
        except (msgspec.DecodeError, ValueError, KeyError, TypeError, AttributeError) as error:
            where = f"{row.plural} {row.namespace}/{row.name}"
            cause = f"{self._journal.path} holds {where}, which cannot be read: {error}"
            raise JournalError(cause, fix=_FIX) from error

    def signing_key(self, rng: random.Random) -> bytes:
        """Returns the key that signs tokens; it is created once per journal."""
        if not self._signing_key:
            key = rng.randbytes(32)
            self._journal.put_signing_key(key)
            self._signing_key = key
        return self._signing_key

    def commit(self) -> tuple[Event, ...]:
        """Stores the outbox; raises `JournalError` after a rollback. Then `publish` sends the events."""
        events = tuple(self.outbox)
        self.outbox.clear()
        try:
            self._journal.commit(self._store.version, _rows(events))
        except JournalError:
            self._roll_back(events)
            raise
        self._store.unpublished.extend(events)
        return events

    def publish(self) -> None:
        """Sends the stored events to the watchers, in order.

        If that fails for a kind, its watches are closed, so that their clients list again; the other kinds get their
        events, and then the error is raised.
        """
        unpublished, failed = self._store.unpublished, None
        while unpublished:
            event = unpublished.popleft()
            table = self._store.tables.get(event.resource.key)
            if table is None:
                continue  # the kind was removed, and its watches were closed
            try:
                table.notify(event)
            except Exception as defect:  # noqa: BLE001  a boundary: a failure for one kind must not stop the others
                failed = defect
                for watcher in table.watchers():
                    watcher.close()
        if failed is not None:
            raise failed

    def _roll_back(self, events: tuple[Event, ...]) -> None:
        before = events[0].version - 1
        for event in reversed(events):
            table = self._store.table(event.resource)
            if event.old is not None:
                table.put(event.old)
            elif event.new is not None:
                table.drop(event.new)
            if table.history and table.history[-1].version > before:
                table.history.pop()
            table.floor = min(table.floor, before)
        self._store.version = before


def _rows(events: Iterable[Event]) -> list[Row]:
    """Returns the last state of each changed object, in the order of the first changes."""
    last = {
        (event.resource.key, event.record.namespace, event.record.name): event for event in events
    }
    return [
        Row(*key, event.version, None if event.new is None else event.new.body)
        for key, event in last.items()
    ]
