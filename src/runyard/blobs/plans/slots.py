"""Decides which uploads run, which wait, and which are ended so that others can run.

There are few slots, because each upload uses memory. A client that holds slots without using them would keep all others
waiting; so the slow ones go first.

A client is a path such as `("acme", "app")`: the account and the project whose link is used. Both are parts of the
signed key, so a client cannot choose them, and a token for one account cannot make links of another. The address of the
peer is not used: behind a proxy all clients have the same one, and a client can have many.

Invariants:
- A free slot is given at once. It goes to the client that holds the fewest slots, then to the one whose turn was
  longest ago; accounts are compared first, then the projects of one account. So a thousand uploads of one client delay
  another client by one upload at most.
- An upload is ended only while another one waits, and at most one for each that waits:
  the slowest of those below the least rate; else, once a client has waited for `share_after`, one of a client that
  holds at least two slots more than it does. So shares converge, and no two clients end each other's uploads in turns.
- A rate counts only the time in which the server waited for the client, and an upload is called slow only while the
  server waits for it: what the client sent while the store was busy is not counted yet.
- No upload waits longer than `wait`, and no more than `queue` wait; when there are too many, the newest one of the
  client that has the most is refused.
- An action names the upload, whose number is never used again, and what was known of it. If that has changed
  meanwhile, the action does nothing.
"""

import functools
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from runyard.wire.reasons import Reason
from runyard.wire.reasons_results import Yielded

Client = tuple[str, ...]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How many uploads run and wait, and when one is ended for another."""

    slots: int = 16
    """Uploads at the same time; each uses about 20 MB of memory."""
    queue: int = 128
    """Uploads that wait for a slot; each holds up to 512 KB that its client has sent already."""
    wait: float = 60.0
    """Seconds after which an upload that still waits is refused."""
    share_after: float = 5.0
    """Seconds that a client waits before an upload of a client with more slots is ended."""
    settle: float = 10.0
    """Seconds for which an upload is not called slow."""
    least: float = 25_000.0
    """Bytes per second that an upload needs while others wait; half of what a slow line has."""
    longest: float = 20 * 3600.0
    """Seconds that a whole upload may take."""


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """An upload that has a slot."""

    number: int
    client: Client
    received: int = 0  # bytes
    waited: float = 0.0  # seconds that the server waited for the client
    rate: float = 0.0  # bytes per second, lately
    reading: bool = True  # the server waits for the client now, not for the store
    ending: bool = False  # it was ended, and still has its slot


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """An upload that waits for a slot."""

    number: int
    client: Client
    since: float


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Give a slot to this upload, if it still waits."""

    number: int


class End(msgspec.Struct, frozen=True, kw_only=True):
    """End this upload, if it still runs and has not received more than these bytes."""

    number: int
    received: int
    reason: Reason


class Refuse(msgspec.Struct, frozen=True, kw_only=True):
    """Refuse this upload, if it still waits."""

    number: int
    reason: Reason


Action = Start | End | Refuse


def decide(
    running: Sequence[Running],
    waiting: Sequence[Waiting],
    *,
    served: Mapping[Client, float],
    limits: Limits,
    now: float,
) -> tuple[Action, ...]:
    """Decide what happens to the uploads; `served` says when a client, or an account, was last given a slot."""
    turns = _Turns(running, waiting, served)
    actions: list[Action] = []
    for _ in range(limits.slots - len(running)):
        first = turns.take(now)
        if first is None:
            break
        actions.append(Start(number=first.number))
    for _ in range(sum(each.ending for each in running)):  # these slots are free soon
        turns.take(now, keep=True)
    actions += _ends(running, turns, limits, now)
    return (*actions, *_refusals(turns.left, limits, now))


class _Turns:
    """The uploads that wait, and in which order they get slots."""

    def __init__(
        self, running: Sequence[Running], waiting: Sequence[Waiting], served: Mapping[Client, float]
    ) -> None:
        self.held = Counter(
            path for each in running if not each.ending for path in _paths(each.client)
        )
        self._served = dict(served)
        self._waiting = waiting
        self._started: dict[int, None] = {}
        # The uploads of each client, the oldest one last.
        self._lines: dict[Client, list[Waiting]] = {}
        for each in sorted(waiting, key=lambda one: (one.since, one.number), reverse=True):
            self._lines.setdefault(each.client, []).append(each)

    @property
    def left(self) -> list[Waiting]:
        """The uploads without a slot, also those for which one is free soon."""
        return [each for each in self._waiting if each.number not in self._started]

    def take(self, now: float, *, keep: bool = False) -> Waiting | None:
        """The next upload, counted as if it had a slot; with `keep` it still waits."""
        if not self._lines:
            return None
        oldest: dict[Client, float] = {}
        for client, line in self._lines.items():
            for path in _paths(client):
                oldest[path] = min(oldest.get(path, now), line[-1].since)
        client = min(self._lines, key=lambda each: self._rank(each, oldest))
        first = self._lines[client].pop()
        if not self._lines[client]:
            del self._lines[client]
        if not keep:
            self._started[first.number] = None
        for path in _paths(client):
            self.held[path] += 1
            self._served[path] = now
        return first

    def _rank(self, client: Client, oldest: Mapping[Client, float]) -> tuple[object, ...]:
        first = self._lines[client][-1]
        levels = [
            (self.held[path], max(oldest[path], self._served.get(path, oldest[path])))
            for path in _paths(client)
        ]
        return (levels, first.since, first.number)


def _ends(running: Sequence[Running], turns: _Turns, limits: Limits, now: float) -> list[End]:
    """End at most one upload for each that waits."""
    candidates = [each for each in running if not each.ending]
    found: list[End] = []
    while candidates and (first := turns.take(now, keep=True)) is not None:
        held = Counter(turns.held)
        held.subtract(_paths(first.client))  # without the slot that it waits for
        chosen = None
        if now - first.since < limits.wait:  # else it is refused now, so none is ended for it
            chosen = _slowest(candidates, limits)
            if chosen is None and now - first.since >= limits.share_after:
                chosen = _displaced(candidates, first, held)
        if chosen is None:
            turns.held = held  # it gets no slot; one after it may hold fewer within its own account
            continue
        upload, reason = chosen
        candidates.remove(upload)
        turns.held.subtract(_paths(upload.client))
        found.append(End(number=upload.number, received=upload.received, reason=reason))
    return found


def _slowest(candidates: Sequence[Running], limits: Limits) -> tuple[Running, Reason] | None:
    slow = [
        each
        for each in candidates
        if each.reading and each.waited >= limits.settle and each.rate < limits.least
    ]
    if not slow:
        return None
    upload = min(slow, key=lambda each: (each.rate, each.received, each.number))
    reason = Yielded.UPLOAD_SLOWEST.because(rate=upload.rate, least=limits.least)
    return upload, reason


def _displaced(
    candidates: Sequence[Running], first: Waiting, held: Mapping[Client, int]
) -> tuple[Running, Reason] | None:
    """The slowest upload of the client that holds the most, if that is at least two more than the waiting one holds."""
    best: tuple[tuple[float, ...], Running, Reason] | None = None
    for each in candidates:
        its, mine = _apart(each.client, first.client)
        more = held.get(its, 0) - held.get(mine, 0)
        if its == mine or more < 2:
            continue
        rank = (-more, each.rate, each.received, each.number)
        if best is None or rank < best[0]:
            counts = {"held": held[its], "other": held.get(mine, 0)}
            best = rank, each, Yielded.UPLOAD_DISPLACED.because(**counts)
    return None if best is None else best[1:]


def _refusals(left: Sequence[Waiting], limits: Limits, now: float) -> list[Refuse]:
    """Refuse uploads that have waited too long, and those that are too many."""
    reason = Yielded.UPLOAD_NOT_STARTED.because(wait=limits.wait)
    found: list[Refuse] = []
    kept: list[Waiting] = []
    for each in left:
        if now - each.since >= limits.wait:
            found.append(Refuse(number=each.number, reason=reason))
        else:
            kept.append(each)
    if len(kept) <= limits.queue:
        return found
    count = Counter(path for each in kept for path in _paths(each.client))
    while len(kept) > limits.queue:
        newest = max(
            kept,
            key=lambda each: (
                [count[path] for path in _paths(each.client)],
                each.since,
                each.number,
            ),
        )
        kept.remove(newest)
        count.subtract(_paths(newest.client))
        full = Yielded.UPLOADS_FULL.because(waiting=limits.queue)
        found.append(Refuse(number=newest.number, reason=full))
    return found


@functools.lru_cache(maxsize=1024)
def _paths(client: Client) -> tuple[Client, ...]:
    """The client and what it belongs to: its account first."""
    return tuple(client[: depth + 1] for depth in range(len(client)))


def _apart(one: Client, other: Client) -> tuple[Client, Client]:
    """The first level at which two clients differ; equal if they are the same client."""
    for mine, its in zip(_paths(one), _paths(other), strict=False):
        if mine != its:
            return mine, its
    return one, one
