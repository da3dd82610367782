"""The steps of one moment, one transaction: between the store in memory and the journal on disk.

While a journal is there, the store puts each event into the `outbox` instead of telling its watchers.
At the end of the moment `commit` writes the whole outbox in one transaction, and only after that `tell` lets them be
seen, so nobody, neither a client that asked nor a watcher, ever sees what a power cut could take back. Clients that ask
together wait for the disk together: it is the wait that costs, not what is written.

Between `commit` and `tell` memory holds what the watchers have not been told yet. A list shows it, and a watch that is
opened then has it in its first lines and is not told again; nobody's bookmark goes beyond it (`Store.told`).

If the disk refuses, `commit` takes the steps out of memory again: the objects, the history and the
version are what they were before. Between two moments memory is never ahead of the disk.

After a restart history is empty: a watch from an older version gets 410, and its client lists again.
"""

import random
from collections.abc import Iterable

import msgspec

from runyard.embedded.kube.crd.controller import serve_stored
from runyard.embedded.kube.resources import DEFINITIONS
from runyard.embedded.kube.storage.journal import Journal, JournalError, Row
from runyard.embedded.kube.storage.store import Event, Record, Store, record_of
from runyard.wire import shipped

_FIX = "Use the version of runyard that wrote it, or move it away to start empty"


class Keeper:
    """Keeps a store's steps in a journal."""

    def __init__(self, store: Store, journal: Journal) -> None:
        self._store = store
        self._journal = journal
        self._signing_key = b""
        self.outbox: list[Event] = []

    def restore(self) -> None:
        """Fill the empty store with what the journal holds, and keep its steps from now on."""
        kept = self._journal.load()
        self._signing_key = kept.signing_key
        for row in kept.rows:
            if row.plural == DEFINITIONS.key:  # first: they say which other tables there are
                self._store.table(DEFINITIONS).put(self._record(row))
        serve_stored(self._store, shipped.definitions())
        for row in kept.rows:
            if row.plural == DEFINITIONS.key:
                continue
            table = self._store.tables.get(row.plural)
            if table is None:
                cause = (
                    f"{self._journal.path} holds {row.plural}, which this version does not serve"
                )
                raise JournalError(cause, fix=_FIX)
            table.put(self._record(row))
        self._store.version = kept.version
        self._store.compact()
        self._store.outbox = self.outbox

    def _record(self, row: Row) -> Record:
        try:
            obj = msgspec.json.decode(row.body or b"")
            meta = obj["metadata"]
            told = (meta.get("namespace", ""), meta["name"], meta["resourceVersion"])
            if told != (row.namespace, row.name, str(row.version)):
                raise ValueError("it names another object")
            return record_of(obj, row.version, row.body or b"")
        except (msgspec.DecodeError, ValueError, KeyError, TypeError, AttributeError) as error:
            where = f"{row.plural} {row.namespace}/{row.name}"
            cause = f"{self._journal.path} holds {where}, which cannot be read: {error}"
            raise JournalError(cause, fix=_FIX) from error

    def signing_key(self, rng: random.Random) -> bytes:
        """The key that tokens are signed with: always the same one for a journal."""
        if not self._signing_key:
            key = rng.randbytes(32)
            self._journal.keep_signing_key(key)
            self._signing_key = key
        return self._signing_key

    def commit(self) -> tuple[Event, ...]:
        """Keep the steps; raises `JournalError` after taking them back. Then `tell` lets them be seen."""
        events = tuple(self.outbox)
        self.outbox.clear()
        try:
            self._journal.commit(self._store.version, _rows(events))
        except JournalError:
            self._take_back(events)
            raise
        self._store.untold.extend(events)
        return events

    def tell(self) -> None:
        """Tell the watchers, in order, of everything that is kept by now.

        If that fails, those who watch that kind are cut, so that they ask for what they missed, and everybody else
        is told all the same; then what went wrong is raised.
        """
        untold, failed = self._store.untold, None
        while untold:
            event = untold.popleft()
            table = self._store.tables.get(event.resource.key)
            if table is None:
                continue  # a kind that has gone with its definition, and its watches with it
            try:
                table.tell(event)
            except Exception as defect:  # noqa: BLE001  a boundary: one reader's wish must not silence the others
                failed = defect
                for watcher in table.watchers():
                    watcher.close()
        if failed is not None:
            raise failed

    def _take_back(self, events: tuple[Event, ...]) -> None:
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
    """The last word on each object that a step touched, in the order of the first."""
    last = {
        (event.resource.key, event.record.namespace, event.record.name): event for event in events
    }
    return [
        Row(*key, event.version, None if event.new is None else event.new.body)
        for key, event in last.items()
    ]
