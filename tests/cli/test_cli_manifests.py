"""`runyard manifests` prints what kubectl takes, the same each time, and refuses names that Kubernetes would refuse."""

from typing import Any

import pytest
import yaml

from runyard.cli.main import cli, run
from runyard.cli.manifests import _COMPONENTS, _OPTIONAL
from runyard.wire import install


def printed(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert run(cli, name="runyard", argv=["manifests", *argv]) == 0
    return capsys.readouterr().out


def names(text: str, kind: str) -> list[str]:
    objects: list[dict[str, Any]] = list(yaml.safe_load_all(text))
    return [obj["metadata"]["name"] for obj in objects if obj["kind"] == kind]


def test_it_prints_exactly_the_objects_of_the_installation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = printed(capsys, "--host", "mini-1")
    assert tuple(yaml.safe_load_all(text)) == install.objects(hosts=["mini-1"])
    assert printed(capsys, "--host", "mini-1") == text
    assert "&id" not in text and "*id" not in text, "no anchors: people read and edit this"


def test_a_component_is_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    assert (_COMPONENTS, _OPTIONAL) == (install.COMPONENTS, install.OPTIONAL)
    text = printed(capsys, "--component", "operator", "--component", "crd")
    assert names(text, "ServiceAccount") == ["tuist-runners-controller"]
    assert names(text, "CustomResourceDefinition") == ["runnerpools.tuist.dev"]
    assert names(text, "ValidatingAdmissionPolicy") == []


def test_optional_roles_are_printed_only_if_they_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "interchange" not in printed(capsys, "--host", "mini-1")
    text = printed(capsys, "--component", "interchange", "--host", "mini-1")
    controller, agent = "runyard-interchange-controller", "runyard-interchange-agent"
    assert names(text, "ClusterRole") == [controller, agent]
    assert names(text, "Role") == [controller, controller]
    accounts = ["tuist-runners-controller", "tart-kubelet-mini-1"]
    assert names(text, "ServiceAccount") == accounts
    assert names(text, "ClusterRoleBinding") == [f"{name}-interchange" for name in accounts]


def test_each_host_gets_its_account(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "--component", "agent", "--host", "mini-1", "--host", "mini-2.lan")
    assert names(text, "ServiceAccount") == ["tart-kubelet-mini-1", "tart-kubelet-mini-2.lan"]


def test_namespaces_are_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "--namespace", "runners", "--controller-namespace", "ci")
    assert names(text, "Namespace") == ["ci", "runners"]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        pytest.param(
            ["--namespace", "No!"],
            "--namespace: 'No!' is not a valid Kubernetes name",
            id="namespace",
        ),
        pytest.param(["--host", "a/b"], "--host: 'a/b' is not a valid Kubernetes name", id="host"),
        pytest.param(["--controller-namespace", ""], "--controller-namespace: ''", id="empty"),
        pytest.param(["--namespace", "tuist"], "are both 'tuist'", id="one namespace for both"),
        pytest.param(["--component", "crd", "--host", "a"], "--component agent", id="no agent"),
        pytest.param(["--component", "kubelet"], "Invalid value for '--component'", id="unknown"),
    ],
)
def test_a_bad_flag_is_one_line(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(cli, name="runyard", argv=["manifests", *argv]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and said in captured.err and captured.err.count("\n") == 1


def test_hosts_may_run_other_pods_and_read_named_secrets_where_it_is_allowed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = ("--pods-namespace", "results", "--secret", "results/database")
    text = printed(capsys, "--component", "agent", "--host", "mini-1", "--namespace", "ci", *flags)
    objects = [each for each in yaml.safe_load_all(text) if "results" in yaml.safe_dump(each)]
    roles = {each["metadata"]["name"]: each for each in objects if each["kind"] == "Role"}
    assert {each["metadata"]["namespace"] for each in roles.values()} == {"results"}
    assert roles["runyard-host-environment"]["rules"] == [
        {
            "apiGroups": [""],
            "resources": ["secrets"],
            "resourceNames": ["database"],
            "verbs": ["get"],
        }
    ]
    bound = {each["roleRef"]["name"]: each for each in objects if each["kind"] == "RoleBinding"}
    assert bound.keys() == roles.keys()
    subjects = [subject for each in bound.values() for subject in each["subjects"]]
    assert {(each["namespace"], each["name"]) for each in subjects} == {
        ("tuist", "tart-kubelet-mini-1")
    }


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--pods-namespace", "results"), "need --host"),
        (("--host", "a", "--pods-namespace", "tuist"), "accounts of the components"),
        (("--host", "a", "--secret", "database"), "NAMESPACE/NAME"),
        (("--host", "a", "--config-map", "results/A_B"), "not a valid Kubernetes name"),
    ],
)
def test_what_would_allow_hosts_too_much_or_nothing_is_refused(
    capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], words: str
) -> None:
    assert run(cli, name="runyard", argv=["manifests", *flags]) == 2
    assert words in capsys.readouterr().err
