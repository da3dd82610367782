"""Decides which replica may lead, from the Lease that all replicas share.

A replica never compares the clocks of two machines. It notes on its own monotonic clock when it last saw the Lease
change, and treats the Lease as expired when it has not changed for the duration that its holder wrote into it. The
holder counts from the moment before it sent its last acknowledged renewal, which no other replica can have seen
earlier. So the holder's own deadline (`renew_deadline`) passes before any other replica's (`duration`) does.

Invariants:
- A write names the resourceVersion that the decision was made from. Of two replicas that decide to take the same
  Lease, one gets a conflict.
- An unreadable or missing duration counts as this replica's own duration, never as zero.
- A Lease that does not exist proves nothing about its last holder, whose term may still run: it is created one
  duration after it was first found missing. Only the last holder itself may create it at once.
- The time left to lead is the shorter of two measures, monotonic and wall clock: a machine that was suspended may
  have stopped the first one. A wall clock that jumps forward ends a term early, which is safe.
"""

from enum import StrEnum

import msgspec


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """The periods of an election in seconds; the defaults are those of Kubernetes' own components."""

    duration: float = 15.0
    """How long other replicas wait after the last change of the Lease; whole seconds, as the Lease stores them."""
    renew_deadline: float = 10.0
    """How long a leader writes after its last acknowledged renewal was sent."""
    retry_period: float = 2.0
    """The pause between two attempts to take or to renew the Lease."""

    def __post_init__(self) -> None:
        """Refuse periods under which two replicas could lead at once."""
        if self.duration < 1 or self.duration != int(self.duration):
            raise ValueError("the duration of a lease is a whole number of seconds, at least 1")
        if not 0 < self.retry_period < self.renew_deadline < self.duration:
            raise ValueError("a lease needs retry period < renew deadline < duration")


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a Lease."""

    holder: str = ""
    duration: float = 0.0
    acquire_time: str = ""
    renew_time: str = ""
    transitions: int = 0


class Observation(msgspec.Struct, frozen=True):
    """A Lease as last read, and when a change of it was last seen on this replica's monotonic clock."""

    record: Record
    resource_version: str  # empty: it did not exist when it was last read
    changed_at: float


class Reason(StrEnum):
    """Why a replica writes the Lease, or does not."""

    MISSING = "lease-missing"
    RELEASED = "lease-released"
    EXPIRED = "lease-expired"
    OWN = "lease-is-own"
    HELD = "lease-is-held"
    LATELY_MISSING = "lease-lately-missing"


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """Write this record. Without a resourceVersion the Lease is created, which fails if it exists."""

    reason: Reason
    resource_version: str
    record: Record


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """Another replica holds the Lease, or may still; it cannot expire sooner than in `seconds`."""

    holder: str
    seconds: float
    reason: Reason = Reason.HELD


class Renewal(msgspec.Struct, frozen=True):
    """When the last acknowledged write of the Lease was sent, on both clocks."""

    monotonic: float
    wall: float


def observe(
    before: Observation | None, record: Record, *, resource_version: str, now: float
) -> Observation:
    """Return the observation after a read; `now` is when the answer arrived, so that waiting errs on the long side."""
    same = before is not None and before.record == record
    changed_at = before.changed_at if same and before is not None else now
    return Observation(record, resource_version, changed_at)


def missing(before: Observation | None, *, now: float) -> Observation:
    """Return the observation after a read that found no Lease; its last holder, if known, is kept."""
    if before is None:
        return Observation(Record(), "", now)
    if not before.resource_version:
        return before
    return Observation(before.record, "", now)


def decide(
    seen: Observation, *, identity: str, timing: Timing, now: float, stamp: str
) -> Write | Wait:
    """Decide what this replica does next; `stamp` is the wall-clock text that a write carries."""
    fresh = Record(holder=identity, duration=timing.duration, acquire_time=stamp, renew_time=stamp)
    held = seen.record
    if held.holder == identity:
        renewed = msgspec.structs.replace(held, duration=timing.duration, renew_time=stamp)
        return Write(reason=Reason.OWN, resource_version=seen.resource_version, record=renewed)
    left = seen.changed_at + (held.duration or timing.duration) - now
    if not seen.resource_version:
        left = seen.changed_at + max(held.duration, timing.duration) - now
        if left > 0:
            return Wait(holder=held.holder, seconds=left, reason=Reason.LATELY_MISSING)
        return Write(reason=Reason.MISSING, resource_version="", record=fresh)
    if held.holder and left > 0:
        return Wait(holder=held.holder, seconds=left)
    return Write(
        reason=Reason.EXPIRED if held.holder else Reason.RELEASED,
        resource_version=seen.resource_version,
        record=msgspec.structs.replace(fresh, transitions=held.transitions + 1),
    )


def released(record: Record, *, stamp: str) -> Record:
    """Return the record of a leader that stops in order: the Lease is free, and no replica has to wait."""
    return msgspec.structs.replace(
        record, holder="", duration=1.0, acquire_time=stamp, renew_time=stamp
    )


def time_left(renewal: Renewal | None, timing: Timing, *, monotonic: float, wall: float) -> float:
    """For how many seconds this replica may still write; zero or less: it may not."""
    if renewal is None:
        return 0.0
    return timing.renew_deadline - max(monotonic - renewal.monotonic, wall - renewal.wall)
