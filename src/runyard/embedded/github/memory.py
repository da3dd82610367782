"""Between the practice GitHub's records and its keeper: what has changed is written, what was kept is taken up.

Invariants:
- `commit` writes exactly the records that were touched since the last commit that succeeded, as they are now, in
  one transaction. If it fails, they stay touched.
- Monotonic times mean nothing to another process: a registration's is kept as a time of day.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import msgspec

from runyard.clock import Clock
from runyard.embedded.github.changes import Kind
from runyard.embedded.github.deliveries import Attempt, DeliveryLog
from runyard.embedded.github.identity import Door, Grant
from runyard.embedded.github.keep import Keeper, KeepError, Key
from runyard.embedded.github.logs import Logs
from runyard.embedded.github.model import Installation, Job, Run, Runner
from runyard.embedded.github.session import RunnerSession
from runyard.embedded.github.world import World

T = TypeVar("T")


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """Where the ids have got to."""

    world: int
    deliveries: int


class AppIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Whose memory this is: the App, and every key that it has had."""

    app_id: int
    fingerprints: tuple[str, ...]


class Memory:
    """One practice GitHub's records and the keeper that they are written to."""

    def __init__(
        self,
        keeper: Keeper,
        *,
        clock: Clock,
        app_id: int,
        world: World,
        log: DeliveryLog,
        door: Door,
        logs: Logs,
    ) -> None:
        self._keeper = keeper
        self._clock = clock
        self._world = world
        self._log = log
        self._door = door
        self._logs = logs
        self._app = AppIdentity(app_id=app_id, fingerprints=(door.fingerprint,))
        self._touched: dict[tuple[Kind, Key], None] = {}
        self._encoders: dict[Kind, Callable[[Key], object]] = {
            "installation": lambda key: world.installations.get(int(key)),
            "runner": self._runner,
            "run": self._run,
            "job": lambda key: world.jobs.get(int(key)),
            "attempt": lambda key: log.find(int(key)),
            "grant": lambda key: door.held(str(key)),
            "meta": self._meta,
        }
        world.touch = log.touch = door.touch = self.touch

    def touch(self, kind: Kind, key: Key) -> None:
        """A record has changed, appeared or gone."""
        self._touched[kind, key] = None

    def commit(self) -> None:
        """Write what was touched, if anything was; raises `KeepError`."""
        if not self._touched and not self._logs.waiting:
            return
        records = {name: self._encode(*name) for name in self._touched}
        logs, forgotten = self._logs.unkept()
        self._keeper.commit(records, logs=logs, forgotten_logs=forgotten)
        self._touched.clear()
        self._logs.kept()

    def load(self) -> list[RunnerSession]:
        """Take up what was kept; the sessions of runner programs that are believed to be at work."""
        try:
            self._know_app()
            self._world.restore(
                installations=self._records("installation", Installation),
                runs=self._records("run", Run),
                jobs=self._records("job", Job),
            )
            self._log.restore(self._records("attempt", Attempt))
            self._door.restore(
                {
                    str(key): msgspec.json.decode(value, type=Grant)
                    for key, value in self._keeper.records("grant")
                }
            )
            sessions = [self._world.restore_runner(each) for each in self._runners()]
        except (msgspec.MsgspecError, KeyError) as error:
            raise KeepError(
                f"the practice GitHub's memory makes no sense: {error!r}",
                fix="Move its file away to begin anew; what it held is lost.",
            ) from error
        self.commit()
        return [session for session in sessions if session is not None]

    # Reading

    def _records(self, kind: Kind, shape: type[T]) -> Iterator[T]:
        decoder = msgspec.json.Decoder(shape)
        for _, value in self._keeper.records(kind):
            yield decoder.decode(value)

    def _runners(self) -> Iterable[Runner]:
        late = self._clock.now() - self._clock.monotonic()
        for runner in list(self._records("runner", Runner)):
            if runner.offline_since is not None:
                # A clock that was set back must not make a registration offline in the future.
                runner.offline_since = min(runner.offline_since - late, self._clock.monotonic())
            yield runner

    def _know_app(self) -> None:
        kept = dict(self._keeper.records("meta"))
        if "app" in kept:
            before = msgspec.json.decode(kept["app"], type=AppIdentity)
            if before.app_id != self._app.app_id:
                raise KeepError(
                    f"the memory belongs to App {before.app_id}, not to App {self._app.app_id}",
                    fix="Give the App its id back, or move the file away to begin anew.",
                )
            known = dict.fromkeys((*before.fingerprints, *self._app.fingerprints))
            self._app = msgspec.structs.replace(self._app, fingerprints=tuple(known))
        if "counters" in kept:
            counters = msgspec.json.decode(kept["counters"], type=Counters)
            self._world.last_id = counters.world
            self._log.last_id = counters.deliveries
        self.touch("meta", "app")

    # Writing

    def _encode(self, kind: Kind, key: Key) -> bytes | None:
        value = self._encoders[kind](key)
        return None if value is None else msgspec.json.encode(value)

    def _runner(self, key: Key) -> Runner | None:
        runner = self._world.runners.get(int(key))
        if runner is None or runner.offline_since is None:
            return runner
        ago = self._clock.monotonic() - runner.offline_since
        return msgspec.structs.replace(runner, offline_since=self._clock.now() - ago)

    def _run(self, key: Key) -> Run | None:
        run = self._world.run(int(key))
        return None if run is None else msgspec.structs.replace(run, jobs={})

    def _meta(self, key: Key) -> object:
        if key == "app":
            return self._app
        return Counters(world=self._world.last_id, deliveries=self._log.last_id)
