"""The parts of each kind that this server itself reads, as strict types.

An object is stored only if it converts to its shape, so the scheduler, the node lifecycle and the
deletion rules can rely on what they find. Fields that nothing here reads are stored as they came.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

from runyard.embedded.kube.resources import (
    CONFIG_MAPS,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    RUNNER_POOLS,
    SECRETS,
    SERVICE_ACCOUNTS,
)
from runyard.wire.runnerpool import PoolSpec

Quantity = str | int | float
Quantities = dict[str, Quantity]
Natural = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Seconds = Annotated[int, msgspec.Meta(ge=0, le=2**40)]
Word = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]


class Shape(msgspec.Struct, frozen=True, rename="camel"):
    """Base: field names as on the wire."""


class OwnerReference(Shape, frozen=True):
    """Who must live for this object to live."""

    api_version: Word
    kind: Word
    name: Word
    uid: Word
    controller: bool = False


class Meta(Shape, frozen=True):
    """Metadata of any object."""

    name: Word
    namespace: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[Word] = []
    owner_references: list[OwnerReference] = []


class Whole(Shape, frozen=True):
    """A stored object; this alone where only the metadata matters."""

    metadata: Meta


class Resources(Shape, frozen=True):
    """What a container asks for."""

    requests: Quantities = {}
    limits: Quantities = {}


class Container(Shape, frozen=True):
    """One container."""

    name: Word
    image: str = ""
    restart_policy: str = ""
    resources: Resources = Resources()


class Toleration(Shape, frozen=True):
    """A taint that a Pod puts up with."""

    key: str = ""
    operator: Literal["", "Equal", "Exists"] = "Equal"
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""
    toleration_seconds: int | None = None


class Expression(Shape, frozen=True):
    """One condition on a node's labels."""

    key: Word
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: list[str] = []


class Term(Shape, frozen=True):
    """Conditions that must all hold."""

    match_expressions: list[Expression] = []
    match_fields: list[Expression] = []


class Preference(Shape, frozen=True):
    """A weighted wish."""

    weight: Annotated[int, msgspec.Meta(ge=1, le=100)]
    preference: Term


class NodeSelector(Shape, frozen=True):
    """Terms of which one must hold."""

    node_selector_terms: list[Term] = []


class NodeAffinity(Shape, frozen=True):
    """Which nodes a Pod needs, and which it likes."""

    required: NodeSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[Preference] = msgspec.field(
        default=[], name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Shape, frozen=True):
    """Only the part about nodes is honoured."""

    node_affinity: NodeAffinity = NodeAffinity()


class PodSpec(Shape, frozen=True):
    """What the scheduler and the deletion rules read."""

    containers: Annotated[list[Container], msgspec.Meta(min_length=1)]
    init_containers: list[Container] = []
    node_name: str = ""
    node_selector: dict[str, str] = {}
    tolerations: list[Toleration] = []
    affinity: Affinity = Affinity()
    overhead: Quantities = {}
    service_account_name: str = ""
    scheduler_name: str = ""
    restart_policy: Literal["", "Always", "OnFailure", "Never"] = ""
    termination_grace_period_seconds: Seconds = 30


class Condition(Shape, frozen=True):
    """One condition of a status."""

    type: Word
    status: Literal["True", "False", "Unknown"]
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None
    last_heartbeat_time: datetime | None = None


class PodStatus(Shape, frozen=True):
    """What the scheduler reads of a Pod's status."""

    phase: Literal["", "Pending", "Running", "Succeeded", "Failed", "Unknown"] = ""
    conditions: list[Condition] = []


class Pod(Whole, frozen=True):
    """A Pod."""

    spec: PodSpec
    status: PodStatus = PodStatus()


class Taint(Shape, frozen=True):
    """A reason for Pods to stay away."""

    key: Word
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    value: str = ""


class NodeSpec(Shape, frozen=True):
    """What the scheduler reads of a Node's spec."""

    unschedulable: bool = False
    taints: list[Taint] = []


class NodeStatus(Shape, frozen=True):
    """What the scheduler and the node lifecycle read of a Node's status."""

    allocatable: Quantities = {}
    capacity: Quantities = {}
    conditions: list[Condition] = []


class Node(Whole, frozen=True):
    """A Node."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class LeaseSpec(Shape, frozen=True):
    """Who holds a lease."""

    holder_identity: str = ""
    lease_duration_seconds: Annotated[int, msgspec.Meta(gt=0, le=2**31 - 1)] | None = None
    lease_transitions: Natural = 0
    renew_time: datetime | None = None
    acquire_time: datetime | None = None


class Lease(Whole, frozen=True):
    """A lease."""

    spec: LeaseSpec = LeaseSpec()


class NamespaceStatus(Shape, frozen=True):
    """Active or on its way out."""

    phase: Literal["", "Active", "Terminating"] = ""


class Namespace(Whole, frozen=True):
    """A namespace."""

    status: NamespaceStatus = NamespaceStatus()


class Involved(Shape, frozen=True):
    """What an Event is about."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class Event(Whole, frozen=True):
    """Something that happened to an object."""

    involved_object: Involved
    reason: str = ""
    message: str = ""
    type: str = ""
    count: Natural = 0


class Bag(Whole, frozen=True):
    """A Secret or a ConfigMap."""

    data: dict[str, str] = {}


class RunnerPool(Whole, frozen=True):
    """A pool of runners."""

    spec: PoolSpec
    status: dict[str, Any] = {}


SHAPES: dict[str, type[Whole]] = {
    NAMESPACES.plural: Namespace,
    NODES.plural: Node,
    PODS.plural: Pod,
    SERVICE_ACCOUNTS.plural: Whole,
    EVENTS.plural: Event,
    LEASES.plural: Lease,
    RUNNER_POOLS.plural: RunnerPool,
    SECRETS.plural: Bag,
    CONFIG_MAPS.plural: Bag,
}
