"""Tests the installed objects: complete, the same each time, and in the requested namespaces."""

import json
from typing import Any

import lawtree
import pytest
import yaml

from runyard.wire import install, manifests, names, rights

OURS = {names.CONTROLLER_NAMESPACE, names.RUNNERS_NAMESPACE}
EVERYTHING = (*install.COMPONENTS, *install.OPTIONAL)
GIVEN = {names.NODE_LEASE_NAMESPACE}  # every cluster has it


def key(obj: dict[str, Any]) -> tuple[str, str, str]:
    meta = obj["metadata"]
    return obj["kind"], meta.get("namespace", ""), meta["name"]


def test_nothing_of_deploy_is_left_out() -> None:
    files = [path for path in lawtree.tracked() if path.is_relative_to(lawtree.ROOT / "deploy")]
    shipped = [
        key(obj)
        for path in files
        if path.suffix == ".yaml"
        for obj in yaml.safe_load_all(path.read_text("utf-8"))
    ]
    printed = [key(obj) for obj in install.objects(EVERYTHING)]
    assert len(shipped) > 10
    assert sorted(set(shipped) - set(printed)) == []


def test_optional_roles_are_not_installed_unasked() -> None:
    usual = {key(obj) for obj in install.objects(hosts=["mini-1"])}
    optional = [
        key(obj)
        for part in (rights.INTERCHANGE_CONTROLLER, rights.INTERCHANGE_AGENT)
        for obj in (*rights.roles(part), *rights.bindings(part, "account"))
    ]
    assert len(optional) == 8 and not usual & {*optional}


@pytest.mark.parametrize("component", EVERYTHING)
def test_a_component_applied_alone_refers_to_nothing_that_is_missing(component: str) -> None:
    objects = install.objects([component], hosts=["mini-1"])
    there = {key(obj) for obj in objects}
    assert len(there) == len(objects)
    spaces = {name for kind, _, name in there if kind == "Namespace"} | GIVEN | {""}
    for obj in objects:
        assert obj["metadata"].get("namespace", "") in spaces
        if "roleRef" in obj:
            space = "" if obj["roleRef"]["kind"] == "ClusterRole" else obj["metadata"]["namespace"]
            assert (obj["roleRef"]["kind"], space, obj["roleRef"]["name"]) in there
            for subject in obj["subjects"]:
                assert (subject["kind"], subject["namespace"], subject["name"]) in there


def test_objects_come_before_those_that_refer_to_them() -> None:
    kinds = [obj["kind"] for obj in install.objects(hosts=["mini-1"])]
    order = list(dict.fromkeys(kinds))
    assert kinds == sorted(kinds, key=order.index)
    assert order.index("Namespace") < order.index("ServiceAccount") < order.index("RoleBinding")
    assert order.index("Role") < order.index("RoleBinding")


def test_other_namespaces_are_used_everywhere() -> None:
    objects = install.objects(hosts=["mini-1"], namespace="runners", controller_namespace="ci")
    spaces = {obj["metadata"].get("namespace", "") for obj in objects}
    assert spaces == {"", "runners", "ci", *GIVEN}
    text = json.dumps(objects)
    assert not [space for space in OURS if f'"{space}"' in text]
    assert "system:serviceaccount:tuist:" not in text
    assert text.count("system:serviceaccount:ci:tart-kubelet-") == 4


def test_composing_does_not_change_the_cached_manifests() -> None:
    before = json.dumps([manifests.admission(), rights.roles(rights.HOST)])
    first = install.objects(hosts=["a"], namespace="runners", controller_namespace="ci")
    assert first == install.objects(hosts=["a"], namespace="runners", controller_namespace="ci")
    assert json.dumps([manifests.admission(), rights.roles(rights.HOST)]) == before


def test_the_manifests_have_one_source_and_one_reader() -> None:
    assert (lawtree.ROOT / "src" / "runyard" / "deploy").resolve() == lawtree.ROOT / "deploy"
    elsewhere = [path for path in lawtree.tracked() if path.suffix in (".yaml", ".yml")]
    assert [p for p in elsewhere if p.is_relative_to(lawtree.ROOT / "src")] == []
    readers = [
        path.name
        for path in lawtree.python("src", "tests", "benches", "tools")
        if '.joinpath("deploy")' in path.read_text("utf-8") and path.name != "test_wire_install.py"
    ]
    assert readers == ["manifests.py"]
