"""Delivers the App's webhook and logs every attempt.

Invariants:
- An event is tried once. A failed attempt stays failed until a redelivery is requested: GitHub does not retry by
  itself. A redelivery has the same `guid`, a new id, and `redelivery` set.
- Ids grow in the order of the events; an attempt is listed once it has ended. So an attempt with a lower id may
  appear after one with a higher id, and a reader must search back further than the timeout.
- Old attempts are dropped, as GitHub drops them.
"""

import bisect
import hashlib
import hmac
import random
import uuid
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from runyard.clock import Clock
from runyard.embedded.github.changes import Touch, ignored
from runyard.embedded.github.model import Job
from runyard.embedded.github.render import Json
from runyard.embedded.github.settings import PracticeSettings
from runyard.http.errors import TransportError
from runyard.http.messages import Pairs, Request
from runyard.wire.instants import to_rfc3339


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt, as passed to the sender."""

    id: int
    guid: str
    event: str
    action: str
    installation_id: int
    repository_id: int
    redelivery: bool
    headers: Pairs
    body: bytes

    def request(self, path: str) -> Request:
        """The POST that the receiver should get."""
        return Request(method="POST", path=path, headers=self.headers, body=self.body)


Deliver = Callable[[Delivery], Awaitable[int]]


class Attempt(msgspec.Struct, kw_only=True, eq=False):
    """An attempt and its outcome."""

    delivery: Delivery
    created_at: float
    ended: bool = False
    delivered_at: float = 0.0
    duration: float = 0.0
    status: str = ""
    status_code: int = 0


class DeliveryLog:
    """All attempts that are not yet dropped, by id."""

    def __init__(
        self,
        *,
        clock: Clock,
        rng: random.Random,
        secret: str,
        settings: PracticeSettings,
        deliver: Deliver | None,
        touch: Touch = ignored,
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._secret = secret.encode()
        self._settings = settings
        self._deliver = deliver
        self.touch = touch
        self._attempts: dict[int, Attempt] = {}
        self._ids: list[int] = []
        self._pending: list[Attempt] = []
        self.last_id = 500_000_000_000 + settings.epoch
        self.crashes = (
            0  # senders that raised an unexpected error; counted, because it is swallowed
        )

    def sign_with(self, secret: str) -> None:
        """Sets a new secret; what was signed before stays as it is."""
        self._secret = secret.encode()

    def add(self, job: Job, action: str, *, body: bytes) -> None:
        """Adds a new event of a job."""
        guid = str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
        digest = hmac.new(self._secret, body, hashlib.sha256).hexdigest()
        self._append(
            Delivery(
                id=self._next_id(),
                guid=guid,
                event="workflow_job",
                action=action,
                installation_id=job.installation_id,
                repository_id=job.repo.id,
                redelivery=False,
                headers=(
                    ("content-type", "application/json"),
                    ("user-agent", "GitHub-Hookshot/practice"),
                    ("x-github-event", "workflow_job"),
                    ("x-github-delivery", guid),
                    ("x-github-hook-installation-target-type", "integration"),
                    ("x-hub-signature-256", f"sha256={digest}"),
                ),
                body=body,
            )
        )

    def redeliver(self, attempt: Attempt) -> None:
        """Adds another attempt of the same event."""
        fresh = msgspec.structs.replace(attempt.delivery, id=self._next_id(), redelivery=True)
        self._append(fresh)

    def get(self, delivery_id: int) -> Attempt | None:
        """An attempt that has ended."""
        attempt = self._attempts.get(delivery_id)
        return attempt if attempt is not None and attempt.ended else None

    def page(self, *, before: int | None, size: int) -> tuple[list[Attempt], int | None]:
        """Ended attempts, newest first, with ids under `before`; and the next `before`."""
        self._forget_old()
        position = len(self._ids) if before is None else bisect.bisect_left(self._ids, before)
        found: list[Attempt] = []
        while position > 0 and len(found) < size:
            position -= 1
            attempt = self._attempts[self._ids[position]]
            if attempt.ended:
                found.append(attempt)
        more = position > 0 and bool(found)
        return found, found[-1].delivery.id if more else None

    def find(self, delivery_id: int) -> Attempt | None:
        """An attempt, whether or not it has ended."""
        return self._attempts.get(delivery_id)

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Every stored attempt, oldest first, also those not ended."""
        return tuple(self._attempts.values())

    @property
    def has_pending(self) -> bool:
        """Whether there are attempts that have not started."""
        return bool(self._pending)

    def take_pending(self) -> list[Attempt]:
        """Attempts that have not started; the caller starts them."""
        pending, self._pending = self._pending, []
        return pending

    async def attempt(self, attempt: Attempt) -> None:
        """Sends one attempt to the receiver and records its outcome."""
        started = self._clock.monotonic()
        attempt.delivered_at = self._clock.now()
        status, code = await self._send(attempt.delivery)
        attempt.duration = self._clock.monotonic() - started
        attempt.status, attempt.status_code = status, code
        attempt.ended = True
        self.touch("attempt", attempt.delivery.id)

    def restore(self, attempts: Iterable[Attempt]) -> None:
        """Restores the attempts, ordered by id. Those that had not ended are tried: they may arrive twice."""
        for attempt in attempts:
            self._remember(attempt)
            if not attempt.ended:
                self._pending.append(attempt)

    async def _send(self, delivery: Delivery) -> tuple[str, int]:
        if self._deliver is None:
            return "failed to connect to host", 502
        try:
            async with self._clock.timeout(self._settings.delivery_timeout):
                code = await self._deliver(delivery)
        except TimeoutError:
            return "timed out", 504
        except TransportError:
            return "failed to connect to host", 502
        except Exception:  # noqa: BLE001 - the receiver may fail in any way; it is counted
            self.crashes += 1
            return "failed to connect to host", 502
        return ("OK", code) if 200 <= code < 300 else (f"Invalid HTTP Response: {code}", code)

    def _append(self, delivery: Delivery) -> None:
        attempt = Attempt(delivery=delivery, created_at=self._clock.now())
        self._remember(attempt)
        self._pending.append(attempt)
        self.touch("attempt", delivery.id)

    def _remember(self, attempt: Attempt) -> None:
        self._attempts[attempt.delivery.id] = attempt
        self._ids.append(attempt.delivery.id)

    def _forget_old(self) -> None:
        limit = self._clock.now() - self._settings.deliveries_kept
        drop = 0
        while drop < len(self._ids) and self._attempts[self._ids[drop]].created_at < limit:
            del self._attempts[self._ids[drop]]
            self.touch("attempt", self._ids[drop])
            drop += 1
        del self._ids[:drop]

    def _next_id(self) -> int:
        self.last_id += self._rng.randint(1, 50)
        self.touch("meta", "counters")
        return self.last_id


def summary(attempt: Attempt) -> Json:
    """An attempt in a list."""
    delivery = attempt.delivery
    return {
        "id": delivery.id,
        "guid": delivery.guid,
        "delivered_at": to_rfc3339(attempt.delivered_at),
        "redelivery": delivery.redelivery,
        "duration": round(attempt.duration, 3),
        "status": attempt.status,
        "status_code": attempt.status_code,
        "event": delivery.event,
        "action": delivery.action,
        "installation_id": delivery.installation_id,
        "repository_id": delivery.repository_id,
    }


def detail(attempt: Attempt) -> Json:
    """An attempt with what was sent."""
    return {
        **summary(attempt),
        "request": {
            "headers": dict(attempt.delivery.headers),
            "payload": msgspec.Raw(attempt.delivery.body),
        },
        "response": {"headers": {}, "payload": None},
    }
