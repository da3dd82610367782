"""Labels, annotations, finalizers and other names that leave a process.

Other programs of a fleet (charts, dashboards, an older controller) read and write them, so none of them may
change, and none may be written out anywhere else in the code.
"""

import hashlib

GROUP = "tuist.dev"
VERSION = "v1alpha1"
POOL_KIND = "RunnerPool"
POOL_PLURAL = "runnerpools"

# Labels on Pods and ServiceAccounts.
RUNNER = "tuist.dev/runner"  # "true": a runner Pod
RUNNER_POOL = "tuist.dev/runner-pool"  # pool membership
POOL_OWNER = "tuist.dev/runner-pool-owner"  # the stamp: busy, by the server, before delivery
RUNNER_ACCOUNT = (
    "tuist.dev/runner-account"  # dispatch committed: the number of the account at GitHub
)
CACHE_UNTRUSTED = "tuist.dev/runner-cache-untrusted"  # "true": no cache for this job
DRAIN_ELIGIBLE = "tuist.dev/drain-eligible"  # this stale Pod may be answered with 410 now
OPERATOR_DRAIN = "tuist.dev/runner-operator-drain"  # an operator marked this Pod for removal
APP_NAME = "app.kubernetes.io/name"
APP_COMPONENT = "app.kubernetes.io/component"
APP_NAME_VALUE = "tuist-runner"
COMPONENT_RUNNER = "runner"
COMPONENT_RUNNER_SA = "runner-sa"

# Annotations.
RUNTIME_REVISION = "tuist.dev/runtime-class-revision"  # on the pool, copied to its Pods
POLLER = (
    "runyard.dev/poller"  # on the pool, copied to its Pods: who polls, POLLER_HOST or POLLER_GUEST
)
POLLER_HOST, POLLER_GUEST = "host", "guest"
GUEST_DISPATCH_URL = "runyard.dev/dispatch-url"  # on the pool: where its guests reach the server
START_PROGRESS_AT = "tuist.dev/start-progress-at"  # by the agent: the start last moved on then
FIRST_POOL_MADE = (
    "runyard.dev/first-pool-made"  # on the runners' namespace: `runyard up` has made its pool once
)
SENT_BY_UP = "runyard.dev/sent-by-up"  # on the first pool: the fields that `runyard up` sent last
DRAIN_ELIGIBLE_AT = "tuist.dev/drain-eligible-at"  # by the operator, together with the label

# Labels and taints on Nodes.
NODE_RUNTIME = "tuist.dev/runtime"
NODE_RUNTIME_TART = "tart"
NODE_RUNTIME_PROCESS = "process"
NODE_ISOLATION = "runyard.dev/isolation"  # of the process runtime: bwrap or none
NODE_JOB_NETWORK = "runyard.dev/job-network"  # of the process runtime: own or host
RUNTIME_CLASS_PREFIX = "runyard-"  # + a runtime: hosts with that runtime run these Pods as VMs
NODE_FLEET = "tuist.dev/fleet"
NODE_LINUX_POOL = "node.cluster.x-k8s.io/pool"
NODE_TAINT = "tuist.dev/macos"
NODE_TAINT_LINUX = "tuist.dev/runner-tier"
NODE_TAINT_LINUX_VALUE = "bare-metal"
NODE_OS = "kubernetes.io/os"
NODE_ARCH = "kubernetes.io/arch"
NODE_HOSTNAME = "kubernetes.io/hostname"
GOLDEN_PREFIX = "tuist.dev/golden-"

# Finalizers.
POOL_DRAIN_FINALIZER = "tuist.dev/runner-pool-drain"
VM_FINALIZER = "tart-kubelet.tuist.dev/vm-cleanup"

# Tokens.
DISPATCH_AUDIENCE = "tuist-runners-dispatch"
GUEST_TOKEN_SECONDS = 28800

# Environment of the guest.
ENV_DISPATCH_URL = "TUIST_RUNNER_DISPATCH_URL"
ENV_POOL = "TUIST_RUNNER_POOL"
ENV_POD_NAME = "TUIST_RUNNER_POD_NAME"
ENV_POD_UID = "TUIST_RUNNER_POD_UID"
ENV_IDLE_TIMEOUT = "TUIST_RUNNER_IDLE_TIMEOUT_SECONDS"
ENV_PRINT_LOG = "ACTIONS_RUNNER_PRINT_LOG_TO_STDOUT"
ENV_CLUSTER_DNS_IP = "TUIST_CLUSTER_DNS_IP"
ENV_CLUSTER_DOMAIN = "TUIST_CLUSTER_DOMAIN"
ENV_JIT_PATH = "TUIST_RUNNER_JIT_PATH"

# Namespaces and principals.
RUNNERS_NAMESPACE = "tuist-runners"
CONTROLLER_NAMESPACE = "tuist"
NODE_LEASE_NAMESPACE = "kube-node-lease"
CONTROLLER_ACCOUNT = "tuist-runners-controller"
CONTROLLER_LEASE = "runners-controller.tuist.dev"  # held by the operator that leads

# What the operator publishes about a pool, as conditions in its status, with the reasons.
POOL_FILLED = "Filled"  # all replicas exist or are being created
POOL_ROLLED = "Rolled"  # every runner is created from the pool's current template
REASON_AS_ASKED = "AsAsked"
REASON_SCALED_TO_ZERO = "ScaledToZero"
REASON_BACKOFF = "Backoff"
REASON_NO_HEALTHY_HOST = "NoHealthyHost"
REASON_PROVISIONING_CEILING = "ProvisioningCeiling"
REASON_PROVISIONING_SHARE = "ProvisioningShare"
REASON_DELETING = "Deleting"
REASON_ROLLING = "Rolling"
REASON_ROLL_CAPPED = "RollCapped"

# The node agent's name, and what it publishes.
NODE_AGENT = "tart-kubelet"
CONTAINER_ID_SCHEME = "tart://"
REASON_CREATE_FAILED = "TartCreateFailed"
REASON_RUN_EXITED = "TartRunExited"
REASON_RUN_FAILED = "TartRunFailed"
REASON_NODE_READY = "TartKubeletReady"
EVENT_CREATING_VM = "CreatingVM"
EVENT_POLLS_ITSELF = "PollsLoopback"
WAITING_PULL = "Pulling"  # why a Pod's container does not run yet
WAITING_BOOT = "ContainerCreating"
WAITING_SLOT = "SlotsFull"
WAITING_NO_SPACE = "NoSpace"  # these are kinds of failures (`vm.contract.Fault`), each tried again
WAITING_NO_IMAGE = "ImageMissing"
WAITING_REFUSED = "Unauthorized"
WAITING_UNREACHABLE = "Unreachable"
WAITING_STALLED = "PullStalled"

RUNNER_NAME_LIMIT = 64  # GitHub's limit on a runner's name


def runner_name(pod_name: str) -> str:
    """The name under which a Pod's runner registers at GitHub.

    Derived from the Pod's name alone, so that a registration can be found again when the answer that
    created it was lost. Names over GitHub's limit keep their beginning and get a hash of the whole.
    """
    if len(pod_name) <= RUNNER_NAME_LIMIT:
        return pod_name
    digest = hashlib.sha256(pod_name.encode()).hexdigest()[:8]
    return f"{pod_name[: RUNNER_NAME_LIMIT - 9]}-{digest}"


def golden_label(image: str) -> str:
    """The Node label of a host that holds this image."""
    return GOLDEN_PREFIX + hashlib.sha256(image.encode()).hexdigest()[:16]
