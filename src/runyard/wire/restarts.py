"""The record of a component that ended and was restarted, as the supervisor stores it and the dashboard shows it."""

import msgspec

from runyard.wire.reasons import Catalogue, Code, Value


class Ended(Code):
    """Why a component of `runyard up` had to be restarted; the sentence continues the component's name."""

    KILLED = "component-killed", "was killed by signal {signal:d}"
    EXITED = "component-exited", "exited with code {code:d}"
    NOT_STARTED = "component-not-started", "could not be started"
    GONE = "component-gone", "ended; its exit code is not known"


RESTARTS = Catalogue(Ended)


class Restart(msgspec.Struct, frozen=True, kw_only=True):
    """One interruption of a component, from its end until it was ready again. Times are seconds since the epoch."""

    id: int  # grows with each restart of this machine
    component: str
    reason: str  # a slug of `Ended`
    detail: dict[str, Value] = {}
    ended_at: float
    ready_at: float
    starts: int = 1  # attempts until it was ready
