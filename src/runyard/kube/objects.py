"""Structs for reading Kubernetes objects.

Frozen structs of the fields that runyard reads; everything else on the wire is skipped while
decoding. They are for READING ONLY: writing one back would drop all other fields, so every write
is a patch of named fields (`client.Kube.patch` and `apply`).

Invariants:
- Every field but `metadata.name` has a default: an object that lacks a field still decodes.
- An explicit `null` means the same as an absent field, as it does in Kubernetes (`Reader` drops it).
- Timestamps stay the strings that they were on the wire; `""` means absent.
"""

from typing import Any, Generic, Protocol, TypeVar

import msgspec

from runyard.wire.runnerpool import PoolSpec, PoolStatus


class _Read(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Values that hold no cycles, so they need no garbage collection."""


class OwnerReference(_Read, frozen=True):
    """The owner of an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class Meta(_Read, frozen=True):
    """The metadata of an object."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()


class HasMeta(Protocol):
    """Anything with metadata."""

    @property
    def metadata(self) -> Meta:
        """The object's metadata."""
        ...


class Bare(_Read, frozen=True):
    """An object of which only the metadata matters."""

    metadata: Meta


class Condition(_Read, frozen=True):
    """One condition of a Pod or a Node."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""
    last_heartbeat_time: str = ""


class EnvVar(_Read, frozen=True):
    """One variable of a container's environment; `value` is empty if it has a `valueFrom`."""

    name: str = ""
    value: str = ""


class Resources(_Read, frozen=True):
    """Resource requests and limits of a container; quantities stay text."""

    requests: dict[str, str] = {}
    limits: dict[str, str] = {}


class Container(_Read, frozen=True):
    """One container of a Pod."""

    name: str = ""
    image: str = ""
    env: tuple[EnvVar, ...] = ()
    resources: Resources = Resources()


class PodSpec(_Read, frozen=True):
    """The spec of a Pod."""

    node_name: str = ""
    service_account_name: str = ""
    automount_service_account_token: bool | None = None
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    termination_grace_period_seconds: int | None = None
    node_selector: dict[str, str] = {}


class Waiting(_Read, frozen=True):
    """Why a container does not run yet."""

    reason: str = ""
    message: str = ""


class Running(_Read, frozen=True):
    """Since when a container runs."""

    started_at: str = ""


class Terminated(_Read, frozen=True):
    """How a container ended."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""
    started_at: str = ""
    finished_at: str = ""


class ContainerState(_Read, frozen=True):
    """At most one of the three is set."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(_Read, frozen=True):
    """The status of one container."""

    name: str = ""
    ready: bool = False
    state: ContainerState = ContainerState()


class PodStatus(_Read, frozen=True):
    """The status of a Pod."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    host_ip: str = msgspec.field(default="", name="hostIP")
    start_time: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(_Read, frozen=True):
    """A Pod."""

    metadata: Meta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Taint(_Read, frozen=True):
    """A taint of a Node."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(_Read, frozen=True):
    """The spec of a Node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    provider_id: str = msgspec.field(default="", name="providerID")


class Address(_Read, frozen=True):
    """One address of a Node."""

    type: str = ""
    address: str = ""


class NodeInfo(_Read, frozen=True):
    """Operating system and architecture of a Node."""

    architecture: str = ""
    operating_system: str = ""
    os_image: str = ""
    kernel_version: str = ""
    kubelet_version: str = ""


class NodeStatus(_Read, frozen=True):
    """The status of a Node."""

    conditions: tuple[Condition, ...] = ()
    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}
    addresses: tuple[Address, ...] = ()
    node_info: NodeInfo = NodeInfo()


class Node(_Read, frozen=True):
    """A Node."""

    metadata: Meta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class ServiceAccount(_Read, frozen=True):
    """A ServiceAccount: only its existence and labels matter."""

    metadata: Meta


class LeaseSpec(_Read, frozen=True):
    """The holder of a lease, and its times."""

    holder_identity: str = ""
    lease_duration_seconds: int = 0
    renew_time: str = ""
    acquire_time: str = ""
    lease_transitions: int = 0


class Lease(_Read, frozen=True):
    """A lease: a heartbeat, or a lock."""

    metadata: Meta
    spec: LeaseSpec = LeaseSpec()


class RunnerPool(_Read, frozen=True):
    """A pool of runners; the one kind whose spec has required fields."""

    metadata: Meta
    spec: PoolSpec
    status: PoolStatus = PoolStatus()


T = TypeVar("T")


def key(obj: HasMeta) -> str:
    """What identifies an object within its kind: `namespace/name`; `/name` for cluster-wide kinds."""
    meta = obj.metadata
    return f"{meta.namespace}/{meta.name}"


def split_key(text: str) -> tuple[str, str]:
    """The namespace and the name in a key."""
    namespace, _, name = text.partition("/")
    return namespace, name


class Reader(Generic[T]):
    """Decodes one type from JSON, quickly when nothing is null and correctly when something is.

    Raises `msgspec.ValidationError` if the object does not fit the type, `msgspec.DecodeError` if it
    is not JSON.
    """

    def __init__(self, type_: type[T]) -> None:
        self._type = type_
        self._decoder = msgspec.json.Decoder(type_)

    def read(self, raw: bytes | msgspec.Raw) -> T:
        """The object in `raw`."""
        try:
            return self._decoder.decode(raw)
        except msgspec.ValidationError:
            return msgspec.convert(without_nulls(msgspec.json.decode(raw)), self._type)

    def of(self, value: object) -> T:
        """The object in an already decoded value."""
        try:
            return msgspec.convert(value, self._type)
        except msgspec.ValidationError:
            return msgspec.convert(without_nulls(value), self._type)


def without_nulls(value: Any) -> Any:
    """A copy in which no mapping has a null member."""
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value
