"""The reason codes of the pool operator: of its actions, of creations that wait, and of a pool's conditions.

Actions and conditions carry these codes; sentences are rendered where they are shown.
"""

from runyard.wire.kube_reasons import KubeCode
from runyard.wire.reasons import Code


class Why(KubeCode):
    """Why an action is taken; the reason of the pool's event about it."""

    REPLICAS_MISSING = "replicas-missing", "the pool has fewer runners than replicas"
    # a runner is reaped
    TERMINAL = "terminal", "the runner ended"
    FAILED_START = "failed-start", "the runner failed right after its start, without a job"
    NODE_LEAVING = "node-leaving", "the host is cordoned or being deleted"
    NODE_GONE = "node-gone", "the host is gone"
    START_TIMEOUT = "start-timeout", "the runner did not start in time"
    UNSCHEDULABLE = "unschedulable", "no host could take the runner in time"
    DRAIN_OVERDUE = "drain-overdue", "the runner was to drain and did not poll again in time"
    ROLLED = "rolled", "the runner was created from an older template"
    SCALED_DOWN = "scaled-down", "the pool has more runners than replicas"
    POOL_DELETED = "pool-deleted", "the pool is being deleted"
    # the rest
    POD_GONE = "pod-gone", "the account's Pod is gone"
    DELETED_EXTERNALLY = "deleted-externally", "the Pod was deleted by another client"
    NEVER_SCHEDULED = "never-scheduled", "the Pod is being deleted and never had a host"
    STALE_TEMPLATE = "stale-template", "an idle runner was created from an older template"
    GUARD_JOBS = "guard-jobs", "running jobs must be able to finish when the pool is deleted"
    NO_RUNNER_LEFT = "no-runner-left", "no runner of the deleted pool is left"


class Blocked(Code):
    """Why missing runners are not created yet."""

    BACKOFF = "backoff", "the last runners failed at once"
    NO_HEALTHY_NODE = "no-healthy-node", "no healthy host"
    FLEET_CAP = "fleet-cap", "the shared hosts start as many runners as they may at once"
    POOL_SHARE = "pool-share", "other pools on the shared hosts start first"

    @property
    def label(self) -> str:
        """The value in the metric, whose spelling existing dashboards read."""
        return self.value.replace("-", "_")


class Waiting(Code):
    """What a pool that is being deleted waits for."""

    BUSY_RUNNERS = "busy-runners", "{count:d} busy runners"
    RUNNERS_TERMINATING = "runners-terminating", "runners that are being deleted"


class PoolReason(KubeCode):
    """Reasons of the conditions in a RunnerPool's status."""

    AS_ASKED = "as-asked", "all {replicas:d} replicas exist or are being created"
    SCALED_TO_ZERO = "scaled-to-zero", "{replicas:d} replicas"
    BACKOFF = (
        "backoff",
        (
            "{missing:d} of {replicas:d} replicas missing: the last runners failed at once;"
            " next attempt in {pause:g} s"
        ),
    )
    NO_HEALTHY_HOST = (
        "no-healthy-host",
        "{missing:d} of {replicas:d} replicas missing: no healthy host in {selector}",
    )
    PROVISIONING_CEILING = (
        "provisioning-ceiling",
        (
            "{missing:d} of {replicas:d} replicas missing: {starting:d} of at most {ceiling:d} runners"
            " start on the shared hosts"
        ),
    )
    PROVISIONING_SHARE = (
        "provisioning-share",
        (
            "{missing:d} of {replicas:d} replicas missing: {starting:d} of at most {ceiling:d} runners"
            " start on the shared hosts, {here:d} of them in this pool; {hungry_siblings:d} other"
            " pools have none"
        ),
    )
    DELETING = "deleting", "the pool is being deleted and waits for {waiting}"
    CURRENT = "current", "every runner is created from the current template"
    ROLLING = (
        "rolling",
        (
            "{stale:d} of {replicas:d} runners are created from an older template;"
            " {unavailable:d} are unavailable, at most {cap:d} may be"
        ),
    )
    ROLL_CAPPED = (
        "roll-capped",
        (
            "{stale:d} of {replicas:d} runners are created from an older template;"
            " {unavailable:d} are unavailable, which is as many as may be ({cap:d})"
        ),
    )


class EventReason(KubeCode):
    """Reasons of the operator's events that are not the reason of an action."""

    API_REFUSED = "api-refused", "the Kubernetes API refused {action}: {error}"
    ROLL_STARTED = (
        "roll-started",
        "{stale:d} of {replicas:d} runners are created from an older template; the image is {image}",
    )
    ROLL_FINISHED = (
        "roll-finished",
        "every runner is created from the current template; the image is {image}",
    )

    RUNNER_POD_START_TIMED_OUT = "runner-pod-start-timed-out", "runner retired: {why}"
    RUNNER_POD_UNSCHEDULABLE = "runner-pod-unschedulable", "runner retired: {why}"
    RUNNER_POD_RETIRED_FOR_NODE_DRAIN = "runner-pod-retired-for-node-drain", "runner retired: {why}"
