"""Converts a Pod's spec into a VM's environment and size.

An unsupported field is an error that names it: a guest without a variable it needs would hang.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgspec

# As Kubernetes reads them: a number with a decimal or binary unit, or with an exponent.
_QUANTITY = re.compile(
    r"\+?(\d{1,24}\.?\d{0,9}|\.\d{1,9})(?:[eE]([+-]?\d{1,2})|(|[numkMGTPE]|[KMGTPE]i))"
)
_UNITS = {
    "": Decimal(1),
    **{unit: Decimal(10) ** (-3 * n) for n, unit in enumerate("mun", 1)},
    **{unit: Decimal(10) ** (3 * n) for n, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": Decimal(2) ** (10 * n) for n, unit in enumerate("KMGTPE", 1)},
}
_LARGEST = Decimal(10) ** 21
_REFERENCE = re.compile(r"\$\$|\$\(([^()]*)\)")
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")  # what the guest's shell can export


class UnsupportedSpec(ValueError):
    """The Pod's spec has a field or a value that a VM does not support."""


class EnvVar(msgspec.Struct, frozen=True, rename="camel"):
    """One variable, as a Pod writes it."""

    name: str = ""
    value: str = ""
    value_from: dict[str, Any] | None = None


def resolve_env(
    variables: tuple[EnvVar, ...], fields: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """The guest's environment in the Pod's order; of equal names the last one counts.

    `$(NAME)` in a value is a variable before it, `$$` a dollar, as in Kubernetes. References to Secrets and ConfigMaps
    are replaced before (`sources.with_values`).
    """
    resolved: dict[str, str] = {}
    for variable in variables:
        if not ENV_NAME.fullmatch(variable.name):
            raise UnsupportedSpec(
                f"environment variable name {variable.name[:64]!r} is invalid:"
                " use letters, digits and underscores, and no digit first"
            )
        value = _value(variable, fields)
        if variable.value_from is None:
            value = _expanded(value, resolved)
        resolved[variable.name] = value
    return tuple(resolved.items())


def _expanded(text: str, known: Mapping[str, str]) -> str:
    """Replaces `$(NAME)` by a known variable and `$$` by a dollar; leaves an unknown name as it is."""

    def one(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        return known.get(found[1], found[0])

    return _REFERENCE.sub(one, text)


def _value(variable: EnvVar, fields: Mapping[str, str]) -> str:
    if variable.value_from is None:
        return variable.value
    source = variable.value_from
    path = source["fieldRef"].get("fieldPath") if isinstance(source.get("fieldRef"), dict) else None
    if path is None:
        kinds = ", ".join(sorted(source)) or "nothing"
        raise UnsupportedSpec(
            f"environment variable {variable.name} comes from {kinds}: use a value, a fieldRef,"
            " a secretKeyRef or a configMapKeyRef"
        )
    if not isinstance(path, str) or path not in fields:
        known = ", ".join(fields)
        raise UnsupportedSpec(
            f"environment variable {variable.name} comes from field {path!r}: use one of {known}"
        )
    return fields[path]


def cpu_milli(resources: Mapping[str, str], default: int) -> int:
    """The requested CPU in thousandths of a processor."""
    text = resources.get("cpu")
    return default if text is None else max(1, int(_quantity(text) * 1000))


def memory_mb(resources: Mapping[str, str], default: int) -> int:
    """The requested memory in whole mebibytes."""
    text = resources.get("memory")
    return default if text is None else max(1, int(_quantity(text) / 2**20))


def _quantity(text: str) -> Decimal:
    found = _QUANTITY.fullmatch(text)
    if found is not None:
        scale = Decimal(10) ** int(found[2]) if found[2] else _UNITS[found[3]]
        if (value := Decimal(found[1]) * scale) < _LARGEST:
            return value
    raise UnsupportedSpec(f"resource quantity {text[:64]!r} is invalid: use 500m, 2 or 4Gi")
