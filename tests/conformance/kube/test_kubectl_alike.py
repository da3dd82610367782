"""The same kubectl commands print the same on the embedded API and on a real control plane."""

import asyncio
import re
import sys
from pathlib import Path

import controlplane
import pytest
from tests.conformance.kube.commandline import Server, embedded, real
from tests.conformance.kube.kit import Json, node, pod
from tests.conftest import Absent

KUBECTL = Path(sys.executable).parent / "kubectl"
SPACE = "kubectl-alike"
NODE = "kubectl-alike-mini"

FILES = {
    "map.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {a: '1'}}",
    "map2.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {a: '2', b: '3'}}",
    "other.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: s}, data: {a: '1'}}",
    "other2.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: s}, data: {a: '2'}}",
    "unknown.yaml": "{apiVersion: tuist.dev/v1alpha1, kind: RunerPool, metadata: {name: w}, spec: {}}",
    "wrong.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: w}, dat: {a: '1'}}",
}

# Each line is one command; they build on each other.
COMMANDS = tuple(
    line
    for line in f"""
get pods
get pods -o wide
get pods -l tier=gold
get pods -l 'tier in (gold,tin),!zone'
get pods --field-selector=status.phase=Running
get pods -o name
get pod mac-1 -o jsonpath={{.status.phase}}
get pod mac-1 -o yaml
get pod none
get node {NODE}
get node {NODE} -o wide
get nonsense
describe configmap kube-none
create -f unknown.yaml
apply -f unknown.yaml
describe pod mac-2
create configmap c --from-literal=a=1
create configmap c --from-literal=a=1
get configmap c -o json
get configmaps
describe configmap c
create -f wrong.yaml
apply -f map.yaml
apply -f map2.yaml
apply -f map2.yaml
diff -f map.yaml
apply --server-side -f other.yaml
apply --server-side --field-manager=somebody -f other2.yaml
apply --server-side --field-manager=somebody --force-conflicts -f other2.yaml
apply --dry-run=server -f map.yaml
get configmap m -o yaml --show-managed-fields
patch configmap m --type=merge -p '{{"data":{{"b":null}}}}'
patch configmap m --type=json -p '[{{"op":"remove","path":"/data/zz"}}]'
patch configmap m --type=json -p '[{{"op":"add","path":"/data/c","value":"4"}}]'
patch pod mac-1 -p '{{"spec":{{"containers":[{{"name":"runner","image":"vm:2"}}]}}}}'
label pod mac-1 tier=tin
label pod mac-1 tier=tin --overwrite
label pod mac-1 tier-
annotate pod mac-1 note=hello
cordon {NODE}
get node {NODE}
uncordon {NODE}
wait --for=jsonpath={{.status.phase}}=Running pod/mac-1 --timeout=10s
wait --for=condition=Ready pod/mac-2 --timeout=1s
auth can-i delete pods
auth can-i delete pods --as=nobody
get pods --as=nobody
drain {NODE} --force --grace-period=0 --timeout=30s
wait --for=delete pod/mac-1 --timeout=10s
uncordon {NODE}
delete configmap m s
delete configmap m
delete configmap m --ignore-not-found
get configmaps -o name
api-resources --api-group=coordination.k8s.io --no-headers
api-resources --api-group=rbac.authorization.k8s.io --no-headers
""".splitlines()
    if line
)

_AGES = re.compile(r"\b(?:\d+[dhms])+\b")
_IDS = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIMES = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z| [+-]\d{4})"
    r"|\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}"
)
_VERSIONS = re.compile(r"(\"?resourceVersion\"?: )\"\d+\"")
_MOUNTS = re.compile(r"(kube-api-access-)\w{5}")
_TEMPORARY = re.compile(r"/tmp/\S+|\S*(?:LIVE|MERGED)-\d+\S*")


def plain(text: str) -> list[str]:
    """What was printed, without what must differ; columns are as wide as their words."""
    text = _MOUNTS.sub(r"\1suffix", text)
    for pattern, word in ((_IDS, "uid"), (_TIMES, "time"), (_TEMPORARY, "file"), (_AGES, "age")):
        text = pattern.sub(word, text)
    text = _VERSIONS.sub(r"\1version", text)
    return sorted(
        re.sub(r"\s{2,}", "  ", line.rstrip()) for line in text.splitlines() if line.strip()
    )


async def populate(server: Server) -> None:
    for name, text in FILES.items():
        (server.folder / name).write_text(text, encoding="utf-8")
    await server.api.create("/api/v1/namespaces", {"metadata": {"name": SPACE}})
    account = {"metadata": {"name": "default"}}
    await server.api.call("POST", server.api.path("serviceaccounts"), account)
    machine = node(NODE, labels={"node-role.kubernetes.io/runner": ""})
    machine["status"]["nodeInfo"] = {
        "kubeletVersion": "v0.1.0",
        "osImage": "macOS 15.6",
        "kernelVersion": "24.0",
        "architecture": "arm64",
    }
    await server.api.create("/api/v1/nodes", machine)
    for name, labels in (("mac-1", {"tier": "gold"}), ("mac-2", {"tier": "tin", "zone": "x"})):
        body = pod(name, meta={"labels": labels}, nodeName=NODE)
        await server.api.create(server.api.pods(), body)
    running: Json = {"phase": "Running", "podIP": "10.0.0.9"}
    await server.api.patch(server.api.pods("mac-1", "status"), {"status": running})


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_kubectl_prints_the_same(
    bare_plane: controlplane.ControlPlane, tmp_path: Path, absent: Absent
) -> None:
    if not KUBECTL.exists():
        absent("kubectl", "make .venv/ready installs it")

    async def main() -> list[str]:
        for name in ("embedded", "real"):
            (tmp_path / name).mkdir()
        wrong: list[str] = []
        async with (
            embedded(tmp_path / "embedded", space=SPACE) as ours,
            real(bare_plane, tmp_path / "real", space=SPACE) as theirs,
        ):
            await populate(theirs)
            await populate(ours)
            for line in COMMANDS:
                (code, out), (other_code, other) = await asyncio.gather(
                    theirs.run(KUBECTL, line), ours.run(KUBECTL, line)
                )
                if (code, plain(out)) != (other_code, plain(other)):
                    wrong.append(
                        f"$ kubectl {line}\n--- real ({code})\n{out}\n--- embedded ({other_code})\n{other}"
                    )
        return wrong

    wrong = asyncio.run(main())
    assert not wrong, "\n\n".join(wrong)
