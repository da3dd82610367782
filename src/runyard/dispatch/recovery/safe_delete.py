"""Deletes Pods, their ServiceAccounts and registrations at GitHub; nothing else in dispatch deletes them.

The caller has a proof that no job can be running: the slot is draining, which it only is after GitHub deleted the
runner or reported the job's end, or after a Pod without a claim was fenced by name. The proof is checked again just
before the deletion: the slot is unchanged, and the Pod has the same uid. The request carries the uid, so an outdated
decision deletes nothing. GitHub itself refuses to delete the registration of a busy runner.

Pod and ServiceAccount are deleted together; the account also if the Pod is gone already. If the account cannot be
deleted, the slot is closed and its budget freed all the same: the error is counted and logged, a missing permission is
a health condition, and the operator deletes accounts without Pods later.

Each replica deletes a limited number of Pods a minute, whatever the number of proofs: a defect would be slow and
visible. The limit is taken before anything is awaited, so that concurrent deletions share it, and given back if nothing
was deleted. A terminating Pod is not deleted again.
"""

from collections import deque
from collections.abc import Awaitable, Callable

from runyard.dispatch.deps import Deps
from runyard.dispatch.modes import Mode
from runyard.dispatch.recovery.proofs import Prover, reason_gone
from runyard.github.client import GitHub
from runyard.github.scope import Scope
from runyard.github.views import Removal
from runyard.http.errors import TransportError
from runyard.kube.client import Kube
from runyard.kube.errors import Conflict, Forbidden, KubeError, NotFound
from runyard.kube.kinds import PODS, SERVICE_ACCOUNTS
from runyard.kube.objects import Pod, ServiceAccount
from runyard.telemetry.catalogue import RUNYARD_DELETIONS_TOTAL
from runyard.wire.reasons import Reason, logged
from runyard.wire.reasons_dispatch import Why

StillValid = Callable[[], Awaitable[bool]]
_MINUTE = 60.0


class SafeDelete:
    """Deletes Pods, accounts and registrations, with a last check and a limit."""

    def __init__(
        self,
        deps: Deps,
        *,
        kube: Kube,
        github: GitHub,
        prover: Prover,
    ) -> None:
        self._kube = kube
        self._github = github
        self._prover = prover
        self._clock = deps.clock
        self._meter = deps.meter
        self._log = deps.log
        self._namespace = deps.settings.namespace
        self._most = deps.settings.delete_most  # Pods per minute
        self._recent: deque[float] = deque()

    async def delete_runner(
        self,
        *,
        pod_name: str,
        pod_uid: str,
        reason: Reason,
        still_valid: StillValid,
    ) -> Reason | None:
        """Delete a Pod and its account; returns why the Pod is proven gone, or None if it is not (yet).

        `still_valid` is called just before, to check the proof again. Errors about the Pod propagate.
        """
        pod = await self._prover.pod(pod_name)
        gone = reason_gone(pod, pod_uid=pod_uid)
        if gone is not None and gone.code is Why.POD_REPLACED:
            return gone  # the name and the account belong to another Pod now
        if gone is None:
            going = (
                still_valid() if _ending(pod) else self._pod(pod_name, pod_uid, reason, still_valid)
            )
            if not await going:
                return None
        await self._account(pod_name, reason)
        return gone or await self._prover.gone(pod_name=pod_name, pod_uid=pod_uid)

    async def registration(
        self,
        scope: Scope,
        runner_id: int,
        *,
        name: str,
        reason: Reason,
        mode: Mode = Mode.ENABLED,
    ) -> Removal | None:
        """Delete a runner at GitHub, which refuses if it is busy; None in a dry run. Raises `GitHubError`."""
        if mode is not Mode.ENABLED:
            self._record("registration", name, "dry-run", reason)
            return None
        removal = await self._github.delete_runner(scope, runner_id)
        self._record("registration", name, removal.value, reason)
        return removal

    async def _pod(self, name: str, uid: str, reason: Reason, still_valid: StillValid) -> bool:
        """Delete the Pod; False if it may not be deleted now."""
        at = self._clock.monotonic()
        if not self._allowed(at):
            self._record("pod", name, "capped", reason)
            return False
        self._recent.append(at)
        counted = False
        try:
            if not await still_valid():
                self._record("pod", name, "moved-on", reason)
                return False
            counted = True  # from here on the Pod may be deleted, whatever the response
            await self._kube.delete(PODS, name, namespace=self._namespace, uid=uid)
            outcome = "deleted"
        except NotFound:
            outcome, counted = "gone", False
        except Conflict:
            outcome, counted = (
                "another",
                False,
            )  # another Pod has the name now; the proof that follows shows that
        except (KubeError, TransportError) as error:
            counted = not isinstance(error, Forbidden)
            self._record("pod", name, failure(error), reason, error=str(error))
            raise
        finally:
            if not counted:
                self._recent.remove(at)
        self._record("pod", name, outcome, reason)
        return outcome != "another"

    async def _account(self, name: str, reason: Reason) -> None:
        try:
            found = await self._kube.get_as(
                SERVICE_ACCOUNTS, name, ServiceAccount, namespace=self._namespace
            )
            await self._kube.delete(
                SERVICE_ACCOUNTS, name, namespace=self._namespace, uid=found.metadata.uid
            )
        except (NotFound, Conflict):
            return  # gone, or the account of a later Pod
        except (KubeError, TransportError) as error:
            self._record("service-account", name, failure(error), reason, error=str(error))
            return
        self._record("service-account", name, "deleted", reason)

    def _allowed(self, now: float) -> bool:
        since = now - _MINUTE
        while self._recent and self._recent[0] <= since:
            self._recent.popleft()
        return len(self._recent) < self._most

    def _record(self, what: str, name: str, outcome: str, reason: Reason, **more: str) -> None:
        self._meter.inc(RUNYARD_DELETIONS_TOTAL, kind=what, outcome=outcome)
        write = self._log.warning if more or outcome == "capped" else self._log.info
        write("deletion", what=what, name=name, outcome=outcome, **logged(reason), **more)


def _ending(pod: Pod | None) -> bool:
    return pod is not None and bool(pod.metadata.deletion_timestamp)


def failure(error: Exception) -> str:
    """The slug of an error in a metric."""
    if isinstance(error, Forbidden):
        return "forbidden"
    return "failed" if isinstance(error, KubeError) else "unanswered"
