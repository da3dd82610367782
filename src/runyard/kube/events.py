"""Records Kubernetes events, as `kubectl describe` shows them.

Recording an event never raises and has a short deadline; an event that cannot be written is logged and dropped. A
repeated event increases the count of the first one.
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

REMEMBERED = 512  # series; the oldest is dropped first; its next repetition is then a new event
MESSAGE_LIMIT = 1024  # the API refuses longer ones
NAME_LIMIT = 253


class _Series(msgspec.Struct):
    name: str
    namespace: str
    count: int


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
    ) -> None:
        """Record an event of an object; `type` is `Normal` or `Warning`. Never raises."""
        message = message if len(message) <= MESSAGE_LIMIT else message[: MESSAGE_LIMIT - 1] + "…"
        what = (kind.kind, obj_meta.namespace, obj_meta.name, obj_meta.uid, type, reason, message)
        try:
            if not await self._repeat(what):
                await self._begin(what, kind, obj_meta)
        except (KubeError, TransportError) as error:
            self._log.info("event not recorded", reason=reason, error=str(error))

    async def _repeat(self, what: tuple[str, ...]) -> bool:
        series = self._series.get(what)
        if series is None:
            return False
        series.count += 1
        body = {"count": series.count, "lastTimestamp": to_rfc3339(self._clock.now())}
        try:
            await self._kube.patch(EVENTS, series.name, body, namespace=series.namespace)
        except NotFound:  # the API deletes events after about an hour
            self._series.pop(what, None)
            return False
        return True

    async def _begin(self, what: tuple[str, ...], kind: Kind, meta: Meta) -> None:
        namespace = meta.namespace or "default"
        name = f"{meta.name[: NAME_LIMIT - 17]}.{self._rng.getrandbits(64):016x}"
        type_, reason, message = what[4:]
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
            "type": type_,
            "reason": reason,
            "message": message,
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": self._component},
        }
        await self._kube.create(EVENTS, body, namespace=namespace)
        self._series[what] = _Series(name, namespace, 1)
        while len(self._series) > REMEMBERED:
            del self._series[next(iter(self._series))]
