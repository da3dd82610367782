"""Records which components were restarted, why, and how long they were away: `restarts.json` in the data directory.

The supervisor writes it, the server reads it for the dashboard. An interruption begins with the end of a component and
is recorded when the component is ready again, whatever number of starts that takes. The first cause is kept.

Invariants:
- The newest `KEPT` restarts are kept, also over restarts of the machine.
- The record never stops the machine: if it cannot be written (a full disk), the next restart writes it; if it is
  damaged, it is replaced by an empty one.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from runyard.clock import Clock
from runyard.embedded.up.supervisor import ComponentView
from runyard.files import write_whole
from runyard.telemetry.log import Logger
from runyard.wire.reasons import Reason
from runyard.wire.restarts import Ended, Restart

KEPT = 200
_DECODER = msgspec.json.Decoder(tuple[Restart, ...])


class RestartRecord:
    """The supervisor's side: notes ends, starts and readiness, and stores what was restarted."""

    def __init__(self, path: Path, *, clock: Clock, log: Logger) -> None:
        self._path = path
        self._clock = clock
        self._log = log
        self._open: dict[str, tuple[Reason, float]] = {}  # by component: the first cause, and when
        self._starts: dict[str, int] = {}
        self._restarts = self._load()

    def note(self, view: ComponentView) -> None:
        """Note a change of a component that the supervisor runs; a stop is not an interruption."""
        match view.state:
            case "waiting":
                self.ended(view.name, reason_of_exit(view.code))
            case "starting":
                self.started(view.name)
            case "running":
                self.ready(view.name)

    def ended(self, component: str, reason: Reason) -> None:
        """Note that a component ended; later ends before it is ready belong to the same interruption."""
        self._open.setdefault(component, (reason, self._clock.now()))

    def started(self, component: str) -> None:
        """Note an attempt to start it."""
        self._starts[component] = self._starts.get(component, 0) + 1

    def ready(self, component: str) -> None:
        """Note that it is ready; store the restart if it had ended before."""
        starts = self._starts.pop(component, 1)
        interruption = self._open.pop(component, None)
        if interruption is None:
            return
        reason, ended_at = interruption
        restart = Restart(
            id=self._restarts[-1].id + 1 if self._restarts else 1,
            component=component,
            reason=reason.slug,
            detail=reason.fields,
            ended_at=round(ended_at, 3),
            ready_at=round(self._clock.now(), 3),
            starts=starts,
        )
        self._restarts = (*self._restarts, restart)[-KEPT:]
        self._store(self._restarts)

    def _load(self) -> tuple[Restart, ...]:
        try:
            return _DECODER.decode(self._path.read_bytes())
        except FileNotFoundError:
            return ()
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            self._log.warning("restart record is damaged", path=str(self._path), error=str(error))
            self._store(())
            return ()

    def _store(self, restarts: Iterable[Restart]) -> None:
        try:
            write_whole(self._path, msgspec.json.encode(tuple(restarts)))
        except OSError as error:
            self._log.warning("restart record not written", path=str(self._path), error=str(error))


class RestartReader:
    """The dashboard's side: returns the record, and reads the file only when it was replaced."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None  # inode and time of the content below
        self._restarts: tuple[Restart, ...] = ()

    def __call__(self) -> tuple[Restart, ...]:
        """Return the restarts, oldest first; without a readable file those that were read before."""
        try:
            info = self._path.stat()
            version = (info.st_ino, info.st_mtime_ns)
            if version != self._seen:
                self._restarts = _DECODER.decode(self._path.read_bytes())
                self._seen = version
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            pass
        return self._restarts


def reason_of_exit(code: int | None) -> Reason:
    """The reason for an exit code as `subprocess` reports it: negative for a signal, None without a process."""
    if code is None:
        return Ended.NOT_STARTED.because()
    return Ended.KILLED.because(signal=-code) if code < 0 else Ended.EXITED.because(code=code)
