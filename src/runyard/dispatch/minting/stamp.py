"""Writes and clears stamps: the label that keeps the pool operator from deleting a Pod, set before a JIT is delivered.

A stamp counts only if the Pod has the expected uid and is not terminating: a terminating Pod must not be armed.
Clearing a stamp is as destructive as deleting the Pod, because the operator may delete unstamped Pods. So it is done
only while the slot is still offered and certainly has no runner.
"""

from typing import Any

from runyard.clock import Clock
from runyard.dispatch.machine.values import Slot
from runyard.dispatch.plans.mint import StampAnswer
from runyard.http.errors import NotSent, TransportError
from runyard.kube.client import Kube
from runyard.kube.errors import Conflict, Forbidden, Invalid, KubeError, NotFound
from runyard.kube.kinds import PODS
from runyard.telemetry.log import Logger
from runyard.wire.names import POOL_OWNER


class Stamper:
    """Writes and clears the owner label of Pods."""

    def __init__(self, kube: Kube, *, namespace: str, clock: Clock, log: Logger) -> None:
        self._kube = kube
        self._namespace = namespace
        self._clock = clock
        self._log = log

    async def stamp(self, slot: Slot, *, within: float) -> StampAnswer:
        """Stamp the Pod with its tenant. Errors of the Kubernetes API are answers, not raised."""
        try:
            async with self._clock.timeout(within):
                pod = await self._label(slot, {POOL_OWNER: slot.tenant})
        except Invalid as error:
            self._log.warning(
                "the account name is no valid label value", pod=slot.pod_name, error=str(error)
            )
            return StampAnswer.INVALID
        except (NotFound, Conflict, Forbidden, NotSent):
            return StampAnswer.REFUSED
        except (KubeError, TransportError, TimeoutError):
            return StampAnswer.UNCLEAR
        meta = pod.get("metadata")
        if not isinstance(meta, dict) or meta.get("uid") != slot.pod_uid:
            return StampAnswer.UNCLEAR  # the response does not name the Pod that was stamped
        if meta.get("deletionTimestamp"):
            return StampAnswer.UNCLEAR  # stamped, but terminating: never arm it
        return StampAnswer.STAMPED

    async def clear(self, slot: Slot, *, within: float) -> bool:
        """Remove the stamp; True only if it is certainly removed."""
        try:
            async with self._clock.timeout(within):
                await self._label(slot, {POOL_OWNER: None})
        except NotFound:
            return True  # that Pod is gone, and its stamp with it
        except (KubeError, TransportError, TimeoutError) as error:
            self._log.warning("stamp not cleared", pod=slot.pod_name, error=str(error))
            return False
        return True

    async def _label(self, slot: Slot, labels: dict[str, str | None]) -> dict[str, Any]:
        return await self._kube.patch(
            PODS,
            slot.pod_name,
            {"metadata": {"labels": labels}},
            namespace=self._namespace,
            uid=slot.pod_uid,
        )
