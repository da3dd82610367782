"""The fields of each kind that this server itself reads, as strict types.

An object is stored only if it converts to its shape, so the scheduler, the node lifecycle and the
deletion rules can rely on the types. Other fields are stored as they were sent.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

from runyard.embedded.kube.resources import LEASES, NODES, PODS

Quantity = str | int | float
Quantities = dict[str, Quantity]
NonEmpty = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]


class Shape(msgspec.Struct, frozen=True, rename="camel"):
    """Base: field names as on the wire."""


class OwnerReference(Shape, frozen=True):
    """The owner of an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class Meta(Shape, frozen=True):
    """Metadata of any object."""

    name: NonEmpty
    namespace: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[NonEmpty] = []
    owner_references: list[OwnerReference] = []


class StoredObject(Shape, frozen=True):
    """A stored object; this alone where only the metadata matters."""

    metadata: Meta


class Resources(Shape, frozen=True):
    """The resources that a container requests."""

    requests: Quantities = {}
    limits: Quantities = {}


class Port(Shape, frozen=True):
    """A port of a container, of its host if it names one."""

    host_port: int = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(default="", name="hostIP")


class Container(Shape, frozen=True):
    """One container."""

    name: NonEmpty
    image: str = ""
    restart_policy: str = ""
    resources: Resources = Resources()
    ports: list[Port] = []


class Toleration(Shape, frozen=True):
    """A taint that a Pod tolerates."""

    key: str = ""
    operator: Literal["", "Equal", "Exists"] = "Equal"
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""
    toleration_seconds: int | None = None


class Expression(Shape, frozen=True):
    """One condition on a node's labels."""

    key: NonEmpty
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: list[str] = []


class Term(Shape, frozen=True):
    """Conditions that must all hold."""

    match_expressions: list[Expression] = []
    match_fields: list[Expression] = []


class Preference(Shape, frozen=True):
    """A weighted preference."""

    weight: Annotated[int, msgspec.Meta(ge=1, le=100)]
    preference: Term


class NodeSelector(Shape, frozen=True):
    """Terms of which one must hold."""

    node_selector_terms: list[Term] = []


class NodeAffinity(Shape, frozen=True):
    """Which nodes a Pod requires, and which it prefers."""

    required: NodeSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[Preference] = msgspec.field(
        default=[], name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinity(Shape, frozen=True):
    """Pod affinity: read so that a Pod that requires it is not scheduled."""

    required: list[dict[str, Any]] = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default_factory=list
    )


class Affinity(Shape, frozen=True):
    """Node affinity is supported; Pod affinity is not, see `fit`."""

    node_affinity: NodeAffinity = NodeAffinity()
    pod_affinity: PodAffinity = PodAffinity()
    pod_anti_affinity: PodAffinity = PodAffinity()


class LabelCondition(Shape, frozen=True):
    """One condition on a Pod's labels."""

    key: NonEmpty
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: list[str] = []


class LabelSelector(Shape, frozen=True):
    """A selector of Pods."""

    match_labels: dict[str, str] = {}
    match_expressions: list[LabelCondition] = []


class Spread(Shape, frozen=True):
    """How evenly Pods are to be spread over the Nodes."""

    max_skew: int
    topology_key: NonEmpty
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] = []


class PodSpec(Shape, frozen=True):
    """What the scheduler and the deletion rules read."""

    containers: Annotated[list[Container], msgspec.Meta(min_length=1)]
    init_containers: list[Container] = []
    node_name: str = ""
    node_selector: dict[str, str] = {}
    tolerations: list[Toleration] = []
    affinity: Affinity = Affinity()
    topology_spread_constraints: list[Spread] = []
    overhead: Quantities = {}
    service_account_name: str = ""
    scheduler_name: str = ""
    restart_policy: Literal["", "Always", "OnFailure", "Never"] = ""
    termination_grace_period_seconds: int = 30


class Condition(Shape, frozen=True):
    """One condition of a status."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None
    last_heartbeat_time: datetime | None = None


class PodStatus(Shape, frozen=True):
    """What the scheduler reads of a Pod's status."""

    phase: str = ""
    conditions: list[Condition] = []


class Taint(Shape, frozen=True):
    """A taint of a Node."""

    key: NonEmpty
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


class Node(StoredObject, frozen=True):
    """A Node."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class LeaseSpec(Shape, frozen=True):
    """The holder of a lease."""

    holder_identity: str = ""
    lease_duration_seconds: int | None = None
    lease_transitions: int = 0
    renew_time: datetime | None = None
    acquire_time: datetime | None = None


# The fields of each kind that the server reads.
PARTS: dict[str, tuple[tuple[str, type[Shape]], ...]] = {
    PODS.key: (("spec", PodSpec), ("status", PodStatus)),
    NODES.key: (("spec", NodeSpec), ("status", NodeStatus)),
    LEASES.key: (("spec", LeaseSpec),),
}
