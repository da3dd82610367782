"""Tests environments that refer to Secrets and ConfigMaps."""

import json
from typing import Any

import pytest

from runyard.node.plans.sources import Source, Values, sources_of, with_values
from runyard.node.plans.spec import EnvVar, UnsupportedSpec, resolve_env

SECRET, MAP = Source("Secret", "database"), Source("ConfigMap", "settings")
HELD: Values = {SECRET: {"url": "postgres://u:p$(A)$$@h", "pin": "1"}, MAP: {"A": "a", "b.c": "x"}}


def key_ref(kind: str, name: str, key: str, **more: Any) -> dict[str, Any]:
    return {kind: {"name": name, "key": key, **more}}


def resolved(
    variables: tuple[EnvVar, ...], env_from: tuple[Any, ...] = (), held: Values = HELD
) -> dict[str, str]:
    return dict(resolve_env(with_values(variables, env_from, held), {}))


def test_what_is_written_later_wins_and_env_comes_after_env_from() -> None:
    env_from = (
        {"configMapRef": {"name": "settings"}},
        {"secretRef": {"name": "database"}, "prefix": "DB_"},
    )
    variables = (
        EnvVar(name="A", value="mine"),
        EnvVar(name="URL", value_from=key_ref("secretKeyRef", "database", "url")),
    )
    assert resolved(variables, env_from) == {
        "A": "mine",
        "DB_url": "postgres://u:p$(A)$$@h",
        "DB_pin": "1",
        "URL": "postgres://u:p$(A)$$@h",
    }
    assert sources_of(variables, env_from) == (MAP, SECRET)


def test_a_variable_refers_to_those_before_it() -> None:
    variables = (
        EnvVar(name="HOST", value="h"),
        EnvVar(name="URL", value="http://$(HOST):$(PORT)/$$(HOST) $HOST $"),
        EnvVar(name="PORT", value="1"),
    )
    assert resolved(variables)["URL"] == "http://h:$(PORT)/$(HOST) $HOST $"


def test_what_is_optional_may_be_absent() -> None:
    optional = {"optional": True}
    variables = (
        EnvVar(name="X", value_from=key_ref("secretKeyRef", "none", "k", **optional)),
        EnvVar(name="Y", value_from=key_ref("configMapKeyRef", "settings", "none", **optional)),
    )
    env_from = ({"secretRef": {"name": "none", **optional}},)
    assert resolved(variables, env_from, {**HELD, Source("Secret", "none"): None}) == {}


REFUSED: dict[str, tuple[EnvVar, str]] = {
    "no such object": (
        EnvVar(name="X", value_from=key_ref("secretKeyRef", "none", "k")),
        "X: Secret none does not exist",
    ),
    "no such key": (
        EnvVar(name="X", value_from=key_ref("secretKeyRef", "database", "k")),
        "X: Secret database has no key 'k'",
    ),
    "no key": (EnvVar(name="X", value_from={"secretKeyRef": {"name": "database"}}), "X.*no key"),
    "no name": (EnvVar(name="X", value_from={"configMapKeyRef": {"key": "a"}}), "X.*no name"),
    "wrong types": (EnvVar(name="X", value_from={"secretKeyRef": {"name": 3}}), "X.*invalid"),
}


@pytest.mark.parametrize(("variable", "words"), REFUSED.values(), ids=list(REFUSED))
def test_a_reference_that_leads_nowhere_is_named_and_no_value_is(
    variable: EnvVar, words: str
) -> None:
    with pytest.raises(UnsupportedSpec, match=words) as raised:
        resolved((variable,))
    assert "postgres://" not in json.dumps(str(raised.value))


@pytest.mark.parametrize("entry", [{}, {"fieldRef": {}}, 3, {"secretRef": {}}])
def test_an_entry_of_env_from_that_cannot_be_read_is_refused(entry: Any) -> None:
    with pytest.raises(UnsupportedSpec, match="envFrom"):
        resolved((), (entry,))
