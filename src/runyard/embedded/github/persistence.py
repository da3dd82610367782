"""Connects the practice GitHub's records with its store: writes what has changed, loads what was stored.

Invariants:
- `commit` writes exactly the records that were touched since the last successful commit, as they are now, in
  one transaction. If it fails, they stay touched.
- Monotonic times are meaningless in another process: a registration's is stored as a time of day.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import msgspec

from runyard.clock import Clock
from runyard.embedded.github.changes import Kind
from runyard.embedded.github.deliveries import Attempt, DeliveryLog
from runyard.embedded.github.identity import Authenticator, Grant
from runyard.embedded.github.logs import Logs
from runyard.embedded.github.model import Installation, Job, Run, Runner
from runyard.embedded.github.session import RunnerSession
from runyard.embedded.github.state import PracticeState
from runyard.embedded.github.store import Key, RecordStore, StoreError

T = TypeVar("T")


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """The last ids that were used."""

    state: int = msgspec.field(name="world")  # the name in files written so far
    deliveries: int


class AppIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The App that the store belongs to, and every key that it has had."""

    app_id: int
    fingerprints: tuple[str, ...]


class Persistence:
    """One practice GitHub's records and the store that they are written to."""

    def __init__(
        self,
        store: RecordStore,
        *,
        clock: Clock,
        app_id: int,
        state: PracticeState,
        log: DeliveryLog,
        authenticator: Authenticator,
        logs: Logs,
    ) -> None:
        self._store = store
        self._clock = clock
        self._state = state
        self._log = log
        self._authenticator = authenticator
        self._logs = logs
        self._app = AppIdentity(app_id=app_id, fingerprints=(authenticator.fingerprint,))
        self._touched: dict[tuple[Kind, Key], None] = {}
        self._encoders: dict[Kind, Callable[[Key], object]] = {
            "installation": lambda key: state.installations.get(int(key)),
            "runner": self._runner,
            "run": self._run,
            "job": lambda key: state.jobs.get(int(key)),
            "attempt": lambda key: log.find(int(key)),
            "grant": lambda key: authenticator.held(str(key)),
            "meta": self._meta,
        }
        state.touch = log.touch = authenticator.touch = self.touch

    def touch(self, kind: Kind, key: Key) -> None:
        """Marks a record that has changed, appeared or been removed."""
        self._touched[kind, key] = None

    def commit(self) -> None:
        """Writes what was touched, if anything was; raises `StoreError`."""
        if not self._touched and not self._logs.waiting:
            return
        records = {name: self._encode(*name) for name in self._touched}
        logs, forgotten = self._logs.pending_writes()
        self._store.commit(records, logs=logs, forgotten_logs=forgotten)
        self._touched.clear()
        self._logs.written()

    def load(self) -> list[RunnerSession]:
        """Loads the stored records; returns the sessions of runner programs that are assumed to run."""
        try:
            self._check_app()
            self._state.restore(
                installations=self._records("installation", Installation),
                runs=self._records("run", Run),
                jobs=self._records("job", Job),
            )
            self._log.restore(self._records("attempt", Attempt))
            self._authenticator.restore(
                {
                    str(key): msgspec.json.decode(value, type=Grant)
                    for key, value in self._store.records("grant")
                }
            )
            sessions = [self._state.restore_runner(each) for each in self._runners()]
        except (msgspec.MsgspecError, KeyError) as error:
            raise StoreError(
                f"the practice GitHub's store is inconsistent: {error!r}",
                fix="Move its file away to start with an empty one; its records are lost.",
            ) from error
        self.commit()
        return [session for session in sessions if session is not None]

    # Reading

    def _records(self, kind: Kind, shape: type[T]) -> Iterator[T]:
        decoder = msgspec.json.Decoder(shape)
        for _, value in self._store.records(kind):
            yield decoder.decode(value)

    def _runners(self) -> Iterable[Runner]:
        late = self._clock.now() - self._clock.monotonic()
        for runner in list(self._records("runner", Runner)):
            if runner.offline_since is not None:
                # A clock that was set back must not make a registration offline in the future.
                runner.offline_since = min(runner.offline_since - late, self._clock.monotonic())
            yield runner

    def _check_app(self) -> None:
        stored = dict(self._store.records("meta"))
        if "app" in stored:
            before = msgspec.json.decode(stored["app"], type=AppIdentity)
            if before.app_id != self._app.app_id:
                raise StoreError(
                    f"the store belongs to App {before.app_id}, not to App {self._app.app_id}",
                    fix="Use the App id that it belongs to, or move the file away to start with an empty one.",
                )
            known = dict.fromkeys((*before.fingerprints, *self._app.fingerprints))
            self._app = msgspec.structs.replace(self._app, fingerprints=tuple(known))
        if "counters" in stored:
            counters = msgspec.json.decode(stored["counters"], type=Counters)
            # Never less than this start's epoch: the store may lack its last numbers.
            self._state.last_id = max(counters.state, self._state.last_id)
            self._log.last_id = max(counters.deliveries, self._log.last_id)
        self.touch("meta", "app")

    # Writing

    def _encode(self, kind: Kind, key: Key) -> bytes | None:
        value = self._encoders[kind](key)
        return None if value is None else msgspec.json.encode(value)

    def _runner(self, key: Key) -> Runner | None:
        runner = self._state.runners.get(int(key))
        if runner is None or runner.offline_since is None:
            return runner
        ago = self._clock.monotonic() - runner.offline_since
        return msgspec.structs.replace(runner, offline_since=self._clock.now() - ago)

    def _run(self, key: Key) -> Run | None:
        run = self._state.run(int(key))
        return None if run is None else msgspec.structs.replace(run, jobs={})

    def _meta(self, key: Key) -> object:
        if key == "app":
            return self._app
        return Counters(state=self._state.last_id, deliveries=self._log.last_id)
