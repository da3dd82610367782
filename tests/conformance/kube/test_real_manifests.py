"""`runyard manifests | kubectl apply -f -` prepares a real API server; applying it again changes nothing."""

from pathlib import Path

import controlplane
import pytest
from tests.conformance.kube.clusters import KUBECTL, kubectl, manifests
from tests.conftest import Absent

from runyard.wire import install

SERVER = "system:serviceaccount:tuist:tuist-runners-server"
OPERATOR = "system:serviceaccount:tuist:tuist-runners-controller"
HOST = "system:serviceaccount:tuist:tart-kubelet-mini-1"

# Who, where, may or may not, what.
RIGHTS = (
    (SERVER, "tuist-runners", "yes", "list serviceaccounts"),
    (SERVER, "tuist-runners", "yes", "delete pods"),
    (SERVER, "tuist-runners", "no", "create pods"),
    (SERVER, "tuist", "no", "get secrets"),
    (OPERATOR, "tuist", "yes", "update leases.coordination.k8s.io"),
    (OPERATOR, "tuist-runners", "no", "update leases.coordination.k8s.io"),
    (OPERATOR, "tuist-runners", "yes", "patch runnerpools.tuist.dev/status"),
    (OPERATOR, "", "yes", "watch runtimeclasses.node.k8s.io"),
    (HOST, "", "yes", "patch nodes/status"),
    (HOST, "tuist-runners", "yes", "create serviceaccounts/token"),
    (HOST, "tuist", "no", "create serviceaccounts/token"),
)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_applying_the_manifests_again_changes_nothing(
    bare_plane: controlplane.ControlPlane, tmp_path: Path, absent: Absent
) -> None:
    if not KUBECTL.exists():
        absent("kubectl", "make .venv/ready installs it")
    config = bare_plane.write_kubeconfig(tmp_path / "admin.kubeconfig")
    text = manifests("--host", "mini-1")
    applied = kubectl(config, "apply", "-f", "-", stdin=text).splitlines()
    assert len(applied) == len(install.objects(hosts=["mini-1"]))
    assert [line for line in applied if not line.endswith(" created")] == []
    again = kubectl(config, "apply", "-f", "-", stdin=text).splitlines()
    assert [line for line in again if not line.endswith(" unchanged")] == []
    assert kubectl(config, "diff", "-f", "-", stdin=text) == ""
    kubectl(config, "wait", "--for=condition=established", "crd/runnerpools.tuist.dev")
    assert kubectl(config, "get", "rpool", "-n", "tuist-runners") == ""
    assert [_may(config, *right) for right in RIGHTS] == [right[2] for right in RIGHTS]

    elsewhere = manifests("--namespace", "runners", "--controller-namespace", "ci", "--host", "a")
    kubectl(config, "apply", "-f", "-", stdin=elsewhere)
    other = "system:serviceaccount:ci:tart-kubelet-a"
    assert _may(config, other, "runners", "yes", "create serviceaccounts/token") == "yes"


def _may(config: Path, user: str, namespace: str, expected: str, what: str) -> str:
    verb, resource = what.split()
    resource, _, subresource = resource.partition("/")
    argv = ["auth", "can-i", verb, resource, f"--as={user}", f"--subresource={subresource}"]
    argv += [f"--namespace={namespace}"] if namespace else []
    return kubectl(config, *argv, ends={"yes": 0, "no": 1}[expected]).split()[0]
