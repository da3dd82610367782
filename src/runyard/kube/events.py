"""Records Kubernetes events, as `kubectl describe` shows them.

Recording an event never raises and has a short deadline; an event that cannot be written is logged and dropped. A
repeated event increases the count of the first one; so does an event that differs in its message alone, if it is
recorded as the latest of its series.
"""

import random
from typing import Any

import msgspec

from runyard.clock import Clock
from runyard.http.errors import TransportError
from runyard.kube.client import Kube
from runyard.kube.errors import KubeError, NotFound
from runyard.kube.kinds import EVENTS, Kind
from runyard.kube.objects import Meta
from runyard.telemetry.log import get_logger
from runyard.wire.instants import to_rfc3339

DEADLINE = 5.0  # seconds
REMEMBERED = 512  # series; the oldest is dropped first; its next repetition is then a new event
MESSAGE_LIMIT = 1024  # the API refuses longer ones
NAME_LIMIT = 253


class _Series(msgspec.Struct):
    name: str
    namespace: str
    count: int


class _About(msgspec.Struct, frozen=True):
    kind: Kind
    meta: Meta
    type: str
    reason: str
    message: str

    @property
    def series(self) -> tuple[str, ...]:
        meta = self.meta
        return (self.kind.kind, meta.namespace, meta.name, meta.uid, self.type, self.reason)


class Recorder:
    """Records events of one component."""

    def __init__(self, kube: Kube, *, component: str, clock: Clock, rng: random.Random) -> None:
        self._kube = kube
        self._component = component
        self._clock = clock
        self._rng = rng
        self._log = get_logger("kube.events", component=component)
        self._series: dict[tuple[str, ...], _Series] = {}

    async def event(
        self, kind: Kind, obj_meta: Meta, *, type: str, reason: str, message: str
    ) -> bool:
        """Record an event of an object; `type` is `Normal` or `Warning`. False: it was dropped."""
        about = _About(kind, obj_meta, type, reason, _short(message))
        return await self._record(about, (*about.series, about.message), 1)

    async def latest(
        self, kind: Kind, obj_meta: Meta, *, type: str, reason: str, message: str, count: int
    ) -> bool:
        """Record `count` more events of one series, with the message of the last one. False: dropped."""
        about = _About(kind, obj_meta, type, reason, _short(message))
        return await self._record(about, about.series, count)

    async def _record(self, about: "_About", what: tuple[str, ...], count: int) -> bool:
        try:
            async with self._clock.timeout(DEADLINE):
                if not await self._repeat(about, what, count):
                    await self._begin(about, what, count)
        except (KubeError, TransportError, TimeoutError) as error:
            self._log.info("event not recorded", reason=about.reason, error=str(error))
            return False
        return True

    async def _repeat(self, about: "_About", what: tuple[str, ...], count: int) -> bool:
        series = self._series.get(what)
        if series is None:
            return False
        series.count += count
        body = {
            "count": series.count,
            "lastTimestamp": to_rfc3339(self._clock.now()),
            "message": about.message,
        }
        try:
            await self._kube.patch(EVENTS, series.name, body, namespace=series.namespace)
        except NotFound:  # the API deletes events after about an hour
            self._series.pop(what, None)
            return False
        return True

    async def _begin(self, about: "_About", what: tuple[str, ...], count: int) -> None:
        kind, meta = about.kind, about.meta
        namespace = meta.namespace or "default"
        name = f"{meta.name[: NAME_LIMIT - 17]}.{self._rng.getrandbits(64):016x}"
        now = to_rfc3339(self._clock.now())
        body: dict[str, Any] = {
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "name": meta.name,
                "namespace": meta.namespace,
                "uid": meta.uid,
                "resourceVersion": meta.resource_version,
            },
            "type": about.type,
            "reason": about.reason,
            "message": about.message,
            "count": count,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": self._component},
        }
        await self._kube.create(EVENTS, body, namespace=namespace)
        self._series[what] = _Series(name, namespace, count)
        while len(self._series) > REMEMBERED:
            del self._series[next(iter(self._series))]


def _short(message: str) -> str:
    return message if len(message) <= MESSAGE_LIMIT else message[: MESSAGE_LIMIT - 1] + "…"
