"""The kinds of generated sequences: built-in ones, our own, and one that uses many schema keywords."""

import msgspec
from tests.conformance.kube.kit import Json

POOLS = "runnerpools"
GAUGES = "gauges"


class Kind(msgspec.Struct, frozen=True):
    """The path of a kind, and how to create its objects."""

    plural: str
    kind: str
    api_version: str = "v1"
    namespaced: bool = True
    custom: bool = False
    subresources: tuple[str, ...] = ()

    def path(self, space: str) -> str:
        base = "/api/v1" if self.api_version == "v1" else f"/apis/{self.api_version}"
        return (
            f"{base}/namespaces/{space}/{self.plural}"
            if self.namespaced
            else f"{base}/{self.plural}"
        )


RBAC = "rbac.authorization.k8s.io/v1"
KINDS = (
    Kind("configmaps", "ConfigMap"),
    Kind("pods", "Pod", subresources=("status",)),
    Kind("secrets", "Secret"),
    Kind("serviceaccounts", "ServiceAccount"),
    Kind("leases", "Lease", "coordination.k8s.io/v1"),
    Kind("events", "Event"),
    Kind("nodes", "Node", namespaced=False, subresources=("status",)),
    Kind("roles", "Role", RBAC),
    Kind("rolebindings", "RoleBinding", RBAC),
    Kind("runtimeclasses", "RuntimeClass", "node.k8s.io/v1", namespaced=False),
    Kind(POOLS, "RunnerPool", "tuist.dev/v1alpha1", custom=True, subresources=("status",)),
    Kind(GAUGES, "Gauge", "example.com/v1", custom=True, subresources=("status", "scale")),
)
# Pods and our own kind are drawn more often, because runyard uses them most.
CHOICE = (*(kind.plural for kind in KINDS), "pods", "pods", "nodes", POOLS, POOLS, GAUGES)
BY_PLURAL = {kind.plural: kind for kind in KINDS}

_TEXT: Json = {"type": "string"}
_SPEC: Json = {
    "type": "object",
    "required": ["image"],
    "properties": {
        "image": {**_TEXT, "minLength": 1, "maxLength": 12},
        "replicas": {"type": "integer", "minimum": 0, "maximum": 9},
        "mode": {**_TEXT, "enum": ["fast", "slow"], "default": "fast"},
        "tags": {"type": "array", "items": _TEXT, "maxItems": 2, "x-kubernetes-list-type": "set"},
        "options": {"type": "object", "additionalProperties": _TEXT},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "port": {"x-kubernetes-int-or-string": True},
        "note": {**_TEXT, "nullable": True, "pattern": "^[a-z]+$"},
        "tuning": {
            "type": "object",
            "properties": {
                "level": {"type": "integer", "default": 3},
                "deep": {
                    "type": "object",
                    "default": {},
                    "properties": {"on": {"type": "boolean", "default": True}},
                },
            },
        },
        "parts": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": _TEXT, "size": {"type": "integer", "default": 1}},
            },
        },
    },
}
_STATUS: Json = {
    "type": "object",
    "properties": {"replicas": {"type": "integer"}, "selector": _TEXT, "phase": _TEXT},
}
GAUGE_DEFINITION: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{GAUGES}.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": GAUGES, "singular": "gauge", "kind": "Gauge", "listKind": "GaugeList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": _SPEC, "status": _STATUS},
                    }
                },
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                        "labelSelectorPath": ".status.selector",
                    },
                },
                "selectableFields": [{"jsonPath": ".spec.mode"}],
                "additionalPrinterColumns": [
                    {"name": "Mode", "type": "string", "jsonPath": ".spec.mode"},
                    {"name": "Level", "type": "integer", "jsonPath": ".spec.tuning.level"},
                    {"name": "Phase", "type": "string", "jsonPath": ".status.phase", "priority": 1},
                ],
            }
        ],
    },
}
