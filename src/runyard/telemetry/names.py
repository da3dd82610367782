"""Names of components and loops, as they appear in metrics, logs and probes.

Dashboards and alerts select by these names, so they are declared once, as slugs, and do not change. A
member carries its slug and a sentence for people; `docs/metrics.md` is generated from both.
"""

import re
from enum import StrEnum

from runyard.wire.reasons import Code

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class Component(StrEnum):
    """The processes that serve `/metrics`."""

    SERVER = "server"
    OPERATOR = "operator"
    AGENT = "agent"
    PROCESSOR = "processor"


class Loop(Code):
    """Every periodic loop and every watch, with its description."""

    # every component that uses the Kubernetes API
    DENIED_ACCESS = "denied-access", "Checks whether forbidden requests are allowed again."
    # dispatch server
    MATCHER = "matcher", "Claims queued jobs for waiting runners."
    RUNNER_POOL_REFRESH = "runner-pool-refresh", "Reads the RunnerPools."
    SERVICE_HEARTBEAT = "service-heartbeat", "Records that the service runs; a gap is an outage."
    SLOT_SWEEP = "slot-sweep", "Acts on slots whose deadline has passed."
    JOB_READ = "job-read", "Reads jobs at GitHub before they are offered again."
    STALE_QUEUED_JOBS = "stale-queued-jobs", "Reads jobs that have been queued for very long."
    ORPHANED_STAMPED_PODS = "orphaned-stamped-pods", "Reaps stamped Pods that no claim covers."
    PODS_AGAINST_SLOTS = "pods-against-slots", "Compares the Pods with the slots."
    DROPPED_POLLS = "dropped-polls", "Records runners whose polls were cut off as not asking."
    POD_MARKS = "pod-marks", "Labels Pods whose runners got other jobs than their own."
    GHOST_REGISTRATIONS = "ghost-registrations", "Removes runners at GitHub that have no slot."
    DELIVERY_AUDIT = "delivery-audit", "Compares GitHub's webhook deliveries with those received."
    DELIVERY_PULL = "delivery-pull", "Pulls webhook deliveries where none can arrive."
    QUEUE_GAUGES = "queue-gauges", "Publishes the queue, the claims and the pool sizes."
    ROW_RETENTION = "row-retention", "Deletes rows that are past their retention."
    GITHUB_RATE_BUDGET = "github-rate-budget", "Publishes what is left of GitHub's rate limit."
    OBJECT_STORE_CHECK = "object-store-check", "Checks that the object store can be used."
    TEST_RESULT_RETENTION = "test-result-retention", "Deletes test results past their retention."
    TEST_RESULT_QUEUE = "test-result-queue", "Publishes the server's view of the processing queue."
    # the server's dashboard
    DASHBOARD = "dashboard", "Renders what the dashboard shows."
    DASHBOARD_POSTGRES = "dashboard-postgres", "Reads the rows for the dashboard."
    DASHBOARD_KUBERNETES = "dashboard-kubernetes", "Reads the cluster for the dashboard."
    # processor of test results
    PROCESSOR_CLAIM = "processor-claim", "Claims the next test run to process."
    PROCESSOR_HEARTBEAT = "processor-heartbeat", "Records that this processor runs."
    PROCESSOR_REPAIR = "processor-repair", "Requeues runs of processors that died."
    PROCESSOR_QUEUE = "processor-queue", "Publishes the processor's view of the processing queue."
    PROCESSOR_RETENTION = "processor-retention", "Deletes finished deliveries from the queue."
    PROCESSOR_SCRATCH = "processor-scratch", "Cleans and measures the scratch directory."
    PROCESSOR_CONNECTIONS = "processor-connections", "Publishes the use of database connections."
    # pool operator
    RUNNER_POOL_CONTROLLER = "runner-pool-controller", "Reconciles RunnerPools into Pods."
    LEADER_ELECTION = "leader-election", "Acquires and renews the operator's lease."
    # node agent
    POD_CONTROLLER = "pod-controller", "Reconciles this host's Pods into VMs."
    VM_LIST = "vm-list", "Lists the VMs of this host."
    VM_RECORDS = "vm-records", "Loads the durable records of VMs at the start."
    IMAGE_INVENTORY = "image-inventory", "Lists the images of this host."
    GUEST_PROBES = "guest-probes", "Measures the disks of running guests."
    NODE_STATUS = "node-status", "Writes the Node's labels, size and conditions."
    NODE_LEASE = "node-lease", "Renews the Node's lease."
    GARBAGE_COLLECTION = "garbage-collection", "Finds records without Pods and unused images."
    # node agent of a machine that joined another one
    HOST_CREDENTIAL = "host-credential", "Renews the credential of a host that joined."
    # watches
    POD_REFLECTOR = "pod-reflector", "Mirrors Pods."
    NODE_REFLECTOR = "node-reflector", "Mirrors Nodes."
    SERVICE_ACCOUNT_REFLECTOR = "service-account-reflector", "Mirrors ServiceAccounts."
    RUNNER_POOL_REFLECTOR = "runner-pool-reflector", "Mirrors RunnerPools."
    # one machine
    TOKEN_RENEWAL = "token-renewal", "Renews the tokens of the components on one machine."
    LISTENER_CERTIFICATE = "listener-certificate", "Renews the certificate of the hosts' listener."
    KUBE_CONTROLLERS = "kube-controllers", "Runs the controllers of the embedded Kubernetes API."
    KUBE_JOURNAL = "kube-journal", "Writes the embedded Kubernetes API's objects to disk."
    GITHUB_STATE = "github-state", "Writes the practice GitHub's state to disk."


def slug_of(name: str) -> str:
    """A class name as a slug: `OutcomeUnknown` becomes `outcome-unknown`."""
    return _HUMP.sub("-", name).replace("_", "-").lower()


def error_slug(error: BaseException) -> str:
    """The kind of an error as a label value."""
    return slug_of(type(error).__name__)
