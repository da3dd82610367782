"""Replaces references to Secrets and ConfigMaps in a Pod's environment by their values.

It follows Kubernetes: `envFrom` comes first, in its order and with its prefix; then `env`; of equal names the last one
counts. An optional reference to what does not exist leaves its variables out. Keys of an `envFrom` that are no names of
variables are left out.

Invariants:
- The values of Secrets and ConfigMaps arrive unchanged: a dollar in them begins no reference.
- An error names objects, keys and variables, and never a value.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from runyard.node.plans.spec import ENV_NAME, EnvVar, UnsupportedSpec

_KEY_REFS: dict[str, Literal["Secret", "ConfigMap"]] = {
    "secretKeyRef": "Secret",
    "configMapKeyRef": "ConfigMap",
}
_ENV_FROM: dict[str, Literal["Secret", "ConfigMap"]] = {
    "secretRef": "Secret",
    "configMapRef": "ConfigMap",
}


class Source(msgspec.Struct, frozen=True):
    """A Secret or a ConfigMap in the Pod's namespace."""

    kind: Literal["Secret", "ConfigMap"]
    name: str


Values = Mapping[Source, Mapping[str, str] | None]
"""What each source holds; None: it does not exist."""


class _Reference(msgspec.Struct, frozen=True):
    """A reference as a Pod writes it; for `envFrom` without a key."""

    name: str = ""
    key: str = ""
    optional: bool | None = None


class _Use(msgspec.Struct, frozen=True):
    """One reference: where it points, and what it was written for."""

    source: Source
    key: str
    optional: bool
    prefix: str = ""


def sources_of(variables: tuple[EnvVar, ...], env_from: tuple[Any, ...]) -> tuple[Source, ...]:
    """The Secrets and ConfigMaps that an environment refers to, each once."""
    uses = [_from_all(entry) for entry in env_from]
    uses += [use for variable in variables if (use := _from_key(variable)) is not None]
    return tuple(dict.fromkeys(use.source for use in uses))


def with_values(
    variables: tuple[EnvVar, ...], env_from: tuple[Any, ...], values: Values
) -> tuple[EnvVar, ...]:
    """The same environment with plain values instead of references; raises `UnsupportedSpec`."""
    found: list[EnvVar] = []
    for entry in env_from:
        found += _all_of(_from_all(entry), values)
    for variable in variables:
        use = _from_key(variable)
        found += [variable] if use is None else _one_of(variable.name, use, values)
    return tuple(found)


def _from_all(entry: Any) -> _Use:
    fields = entry if isinstance(entry, dict) else {}
    for field, kind in _ENV_FROM.items():
        if field in fields:
            use = _use(kind, fields[field], f"envFrom.{field}")
            return msgspec.structs.replace(use, prefix=str(fields.get("prefix") or ""))
    raise UnsupportedSpec("an entry of envFrom has neither secretRef nor configMapRef")


def _from_key(variable: EnvVar) -> _Use | None:
    for field, kind in _KEY_REFS.items():
        if variable.value_from is not None and field in variable.value_from:
            what = f"environment variable {variable.name}: {field}"
            use = _use(kind, variable.value_from[field], what)
            if not use.key:
                raise UnsupportedSpec(f"{what} has no key")
            return use
    return None


def _use(kind: Literal["Secret", "ConfigMap"], given: Any, what: str) -> _Use:
    try:
        read = msgspec.convert(given, _Reference)
    except msgspec.ValidationError as error:
        raise UnsupportedSpec(f"{what} is invalid: {error}") from None
    if not read.name:
        raise UnsupportedSpec(f"{what} has no name")
    return _Use(Source(kind, read.name), read.key, bool(read.optional))


def _all_of(use: _Use, values: Values) -> Iterator[EnvVar]:
    held = values.get(use.source)
    if held is None:
        if not use.optional:
            raise UnsupportedSpec(_absent(use.source, "envFrom"))
        return
    for key, value in held.items():
        if ENV_NAME.fullmatch(use.prefix + key):
            yield EnvVar(name=use.prefix + key, value=_literal(value))


def _one_of(name: str, use: _Use, values: Values) -> Iterator[EnvVar]:
    held = values.get(use.source)
    if held is not None and use.key in held:
        yield EnvVar(name=name, value=_literal(held[use.key]))
    elif not use.optional:
        user = f"environment variable {name}"
        if held is None:
            raise UnsupportedSpec(_absent(use.source, user))
        raise UnsupportedSpec(
            f"{user}: {use.source.kind} {use.source.name} has no key {use.key!r}: add it, or mark the reference as"
            " optional"
        )


def _absent(source: Source, user: str) -> str:
    return (
        f"{user}: {source.kind} {source.name} does not exist in the Pod's namespace: create it, or mark the reference"
        " as optional"
    )


def _literal(value: str) -> str:
    """The value as it has to be written where `$(NAME)` is replaced."""
    return value.replace("$", "$$")
