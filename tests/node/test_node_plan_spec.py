"""Tests a Pod's environment and size: supported, or refused with the field's name."""

import pytest

from runyard.node.plans.spec import EnvVar, UnsupportedSpec, cpu_milli, memory_mb, resolve_env

FIELDS = {"metadata.name": "p", "metadata.uid": "u", "spec.nodeName": "n"}


def field(path: object) -> dict[str, object]:
    return {"fieldRef": {"fieldPath": path}}


def test_values_and_fields_are_resolved_in_order_and_the_last_wins() -> None:
    variables = (
        EnvVar(name="A", value="1"),
        EnvVar(name="UID", value_from=field("metadata.uid")),
        EnvVar(name="A", value="2\nlines"),
        EnvVar(name="EMPTY"),
    )
    assert resolve_env(variables, FIELDS) == (("A", "2\nlines"), ("UID", "u"), ("EMPTY", ""))


REFUSED = {
    "secret": (EnvVar(name="X", value_from={"secretKeyRef": {"name": "s"}}), "X.*secretKeyRef"),
    "resource": (EnvVar(name="X", value_from={"resourceFieldRef": {}}), "X.*resourceFieldRef"),
    "unknown field": (EnvVar(name="X", value_from=field("status.podIP")), "X.*status.podIP"),
    "field of a wrong type": (EnvVar(name="X", value_from=field(["a"])), "X"),
    "empty field": (EnvVar(name="X", value_from={"fieldRef": {}}), "X"),
    "fieldRef of a wrong type": (EnvVar(name="X", value_from={"fieldRef": 3}), "X"),
    "nothing": (EnvVar(name="X", value_from={}), "X.*nothing"),
    "newline in a name": (EnvVar(name="X\nY=1"), "name"),
    "no name": (EnvVar(value="1"), "name"),
    "a dot, which the guest's shell cannot export": (EnvVar(name="a.b"), "a.b.*underscores"),
    "a dash, which the guest's shell cannot export": (EnvVar(name="a-b"), "a-b.*underscores"),
}


@pytest.mark.parametrize(("variable", "words"), REFUSED.values(), ids=list(REFUSED))
def test_an_unsupported_variable_is_named_in_the_error(variable: EnvVar, words: str) -> None:
    with pytest.raises(UnsupportedSpec, match=words):
        resolve_env((variable,), FIELDS)


CPUS = {"8": 8000, "4500m": 4500, "0.5": 500, "1m": 1}
MEMORIES = {
    "14336Mi": 14336,
    "16Gi": 16384,
    "1G": 953,
    "1073741824": 1024,
    "1": 1,
    "4e9": 3814,
    "8E+9": 7629,
    "128974848000m": 123,
    "1.Gi": 1024,
    "+.5Gi": 512,
    "1Pi": 1 << 30,
}


@pytest.mark.parametrize(("text", "milli"), CPUS.items(), ids=list(CPUS))
def test_cpu_quantities_become_thousandths_of_a_processor(text: str, milli: int) -> None:
    assert cpu_milli({"cpu": text}, 1) == milli


@pytest.mark.parametrize(("text", "mebibytes"), MEMORIES.items(), ids=list(MEMORIES))
def test_memory_quantities_become_mebibytes(text: str, mebibytes: int) -> None:
    assert memory_mb({"memory": text}, 9) == mebibytes


@pytest.mark.parametrize(
    "text", ["", "lots", "-1", "8 ", "1e400", "9" * 400, "4Zi", "4K", "1e30", "Gi", "."]
)
def test_an_invalid_quantity_is_refused(text: str) -> None:
    with pytest.raises(UnsupportedSpec, match="quantity"):
        memory_mb({"memory": text}, 1)


def test_a_pod_without_requests_gets_the_default_size() -> None:
    assert (cpu_milli({}, 4000), memory_mb({}, 8192)) == (4000, 8192)
