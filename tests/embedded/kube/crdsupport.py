"""A sample definition, and a core that serves it."""

from typing import Any

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "shop.example.com"
WIDGETS = f"/apis/{GROUP}/v1/namespaces/default/widgets"
NAME = f"widgets.{GROUP}"

SPEC: dict[str, Any] = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 10},
        "colour": {"type": "string", "enum": ["red", "blue"], "default": "red"},
        "word": {"type": "string", "minLength": 2, "maxLength": 5, "pattern": "^[a-z]+$"},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "parts": {
            "type": "array",
            "maxItems": 3,
            "items": {"type": "object", "properties": {"n": {"type": "integer", "default": 7}}},
        },
        "weights": {"type": "object", "additionalProperties": {"type": "number"}},
        "port": {"x-kubernetes-int-or-string": True},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "since": {"type": "string", "format": "date-time"},
        "either": {
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
    },
}
STATUS = {"type": "object", "properties": {"size": {"type": "integer"}, "seen": {"type": "string"}}}


def definition(plural: str = "widgets", kind: str = "Widget", **version: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"spec": SPEC, "status": STATUS}}
    version_spec = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"},
        },
        "additionalPrinterColumns": [
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
            {"name": "Seen", "type": "date", "jsonPath": ".status.seen"},
            {"name": "Colour", "type": "string", "jsonPath": ".spec.colour", "priority": 1},
        ],
        "selectableFields": [{"jsonPath": ".spec.colour"}],
    }
    return {
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, "shortNames": [plural[:2]]},
            "versions": [version_spec | version],
        },
    }


def widget(name: str = "a", **spec: Any) -> dict[str, Any]:
    meta = {"name": name} | spec.pop("meta", {})
    head = {"apiVersion": f"{GROUP}/v1", "kind": "Widget"}
    return {**head, "metadata": meta, "spec": {"size": 3, **spec}}
