"""The one way in which anything is deleted: Pods, their ServiceAccounts, registrations at GitHub.

Whoever wants something gone has a proof that nothing can be running there: its slot is draining, which it only is
after GitHub deleted the runner or said that the job is over, or after a Pod that nobody spoke for was fenced by name.
Here that proof is looked at once more, just before the deletion: the row is still the one that was judged, and the
Pod is still that incarnation. The deletion itself carries the uid, so a stale decision is a no-op. A registration is
judged by GitHub in the very call: a runner that is busy is refused.

Pod and ServiceAccount are a unit. The account goes even if the Pod went already. An account that cannot be deleted
does not keep a proven end from being one, nor a tenant from its budget: the error is counted and logged here, a missing
right is a health condition besides, and the operator, which looks for accounts without Pods, takes it later.

However many proofs there are, only so many Pods go in a minute by each replica: if we are wrong, we are wrong slowly
and visibly. The place is taken before anybody is waited for, so that those who delete at once share it, and given back
if nothing was deleted. A Pod that is on its way out already is not deleted again.
"""

from collections import deque
from collections.abc import Awaitable, Callable

from runyard.clock import Clock
from runyard.dispatch.recovery.modes import Mode
from runyard.dispatch.recovery.proofs import ANOTHER, Prover, why_gone
from runyard.github.api import GitHub
from runyard.github.scope import Scope
from runyard.github.views import Removal
from runyard.http.errors import TransportError
from runyard.kube.client import Kube
from runyard.kube.errors import Conflict, Forbidden, KubeError, NotFound
from runyard.kube.kinds import PODS, SERVICE_ACCOUNTS
from runyard.kube.objects import Pod, ServiceAccount
from runyard.telemetry.catalogue import RUNYARD_DELETIONS_TOTAL
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter

Still = Callable[[], Awaitable[bool]]
_MINUTE = 60.0


class SafeDelete:
    """Deletes what must go."""

    def __init__(
        self,
        *,
        kube: Kube,
        github: GitHub,
        prover: Prover,
        clock: Clock,
        meter: Meter,
        log: Logger,
        namespace: str,
        most: int,
    ) -> None:
        self._kube = kube
        self._github = github
        self._prover = prover
        self._clock = clock
        self._meter = meter
        self._log = log
        self._namespace = namespace
        self._most = most  # Pods in any minute
        self._lately: deque[float] = deque()

    async def delete_runner(
        self,
        *,
        pod_name: str,
        pod_uid: str,
        reason: str,
        still: Still,
    ) -> str:
        """Delete a Pod and its account; why the Pod is proven gone, or nothing if it is not (yet).

        `still` is asked just before: is the proof still true? Errors about the Pod propagate.
        """
        pod = await self._prover.look(pod_name)
        why = why_gone(pod, pod_uid=pod_uid)
        if why == ANOTHER:
            return why  # neither the name nor the account is ours any more
        if not why:
            going = still() if _ending(pod) else self._pod(pod_name, pod_uid, reason, still)
            if not await going:
                return ""
        await self._account(pod_name, reason)
        return why or await self._prover.gone(pod_name=pod_name, pod_uid=pod_uid)

    async def registration(
        self,
        scope: Scope,
        runner_id: int,
        *,
        name: str,
        reason: str,
        mode: Mode = Mode.ENABLED,
    ) -> Removal | None:
        """Delete a runner at GitHub, which refuses if it is busy; None in a dry run. Raises `GitHubError`."""
        if mode is not Mode.ENABLED:
            self._tell("registration", name, "would", reason)
            return None
        removal = await self._github.delete_runner(scope, runner_id)
        self._tell("registration", name, removal.value, reason)
        return removal

    async def _pod(self, name: str, uid: str, reason: str, still: Still) -> bool:
        """False if it may not be deleted now."""
        at = self._clock.monotonic()
        if not self._allowed(at):
            self._tell("pod", name, "capped", reason)
            return False
        self._lately.append(at)
        spent = False
        try:
            if not await still():
                self._tell("pod", name, "moved on", reason)
                return False
            spent = True  # from here on it may be gone, whatever we hear
            await self._kube.delete(PODS, name, namespace=self._namespace, uid=uid)
            outcome = "deleted"
        except NotFound:
            outcome, spent = "gone", False
        except Conflict:
            outcome, spent = "another", False  # by now; the proof that follows will say so
        except (KubeError, TransportError) as error:
            spent = not isinstance(error, Forbidden)
            self._tell("pod", name, failure(error), reason, error=str(error))
            raise
        finally:
            if not spent:
                self._lately.remove(at)
        self._tell("pod", name, outcome, reason)
        return outcome != "another"

    async def _account(self, name: str, reason: str) -> None:
        try:
            found = await self._kube.get_as(
                SERVICE_ACCOUNTS, name, ServiceAccount, namespace=self._namespace
            )
            await self._kube.delete(
                SERVICE_ACCOUNTS, name, namespace=self._namespace, uid=found.metadata.uid
            )
        except (NotFound, Conflict):
            return  # gone, or a later one
        except (KubeError, TransportError) as error:
            self._tell("serviceaccount", name, failure(error), reason, error=str(error))
            return
        self._tell("serviceaccount", name, "deleted", reason)

    def _allowed(self, now: float) -> bool:
        since = now - _MINUTE
        while self._lately and self._lately[0] <= since:
            self._lately.popleft()
        return len(self._lately) < self._most

    def _tell(self, what: str, name: str, outcome: str, reason: str, **more: str) -> None:
        self._meter.inc(RUNYARD_DELETIONS_TOTAL, what=what, outcome=outcome)
        say = self._log.warning if more or outcome == "capped" else self._log.info
        say("deletion", what=what, name=name, outcome=outcome, reason=reason, **more)


def _ending(pod: Pod | None) -> bool:
    return pod is not None and bool(pod.metadata.deletion_timestamp)


def failure(error: Exception) -> str:
    """What to call an error in a metric."""
    if isinstance(error, Forbidden):
        return "forbidden"
    return "failed" if isinstance(error, KubeError) else "unanswered"
