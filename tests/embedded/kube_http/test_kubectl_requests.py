"""Every request of kubectl is on the list that the conformance scripts cover."""

import asyncio
import shlex
from pathlib import Path

import pytest
from tests.conformance.kube import usage
from tests.embedded.kube_http.kubectlsupport import Served, serve

MAP = "{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {a: '1'}}"
POOL = """
apiVersion: tuist.dev/v1alpha1
kind: RunnerPool
metadata: {name: two}
spec: {image: 'vm:1', fleetSelector: minis, dispatchLabel: two, runnerLabels: [two], replicas: 0}
"""
# Every command that is promised to work; those that end with a failure on purpose have a minus.
COMMANDS = """
get nodes,pods,runnerpools,events
get pods -o wide -A
get pods -l a=b,x!=y
get pods -l 'a in (b),c notin (d),a'
get pods --field-selector=spec.nodeName=mini-1,status.phase!=Failed
get pod mac-1 -o yaml
get pods -o json
get namespaces,serviceaccounts,secrets,configmaps,leases -A
get runtimeclasses,clusterroles,clusterrolebindings,customresourcedefinitions
get roles,rolebindings,certificatesigningrequests -A
describe pod mac-1
describe node mini-1
describe runnerpool mac
describe namespace tuist-runners
create configmap c --from-literal=a=1
create namespace extra
create serviceaccount guest
create token guest --duration=10m
create token default --bound-object-kind=Pod --bound-object-name=mac-1
create -f pool.yaml
apply -f map.yaml
apply -f map.yaml
apply -f pool.yaml
apply --server-side -f map.yaml --force-conflicts
apply --server-side -f pool.yaml --force-conflicts
apply --dry-run=server -f map.yaml
patch runnerpool mac --type=merge -p '{"spec":{"replicas":3}}'
patch runnerpool mac --type=json -p '[{"op":"replace","path":"/spec/replicas","value":2}]'
patch runnerpool mac --subresource=status --type=merge -p '{"status":{"observedReplicas":2}}'
patch pod mac-1 -p '{"metadata":{"annotations":{"z":"1"}}}'
patch configmap m --type=merge -p '{"data":{"a":"2"}}'
scale runnerpool mac --replicas=2
label pod mac-1 x=y
label node mini-1 x=y
label runnerpool mac x=y
annotate pod mac-1 x=y
annotate runnerpool mac x=y
cordon mini-1
uncordon mini-1
wait --for=condition=Ready node/mini-1 --timeout=60s
wait --for=jsonpath={.status.phase}=Running pod/mac-1 --timeout=60s
auth can-i delete pods
auth can-i list pods --as=nobody -
auth can-i --list
auth whoami
events
events --for=pod/mac-1
api-resources
version
logs mac-1 -
logs -f mac-1 -
exec mac-1 -- true -
attach mac-1 -
drain mini-1 --force --ignore-daemonsets --grace-period=0 --timeout=60s
uncordon mini-1
delete configmap m
delete runnerpool two
delete pods --all --wait=false
delete pod mac-2 --force --ignore-not-found
delete namespace extra
"""


async def watch_a_moment(served: Served) -> None:
    process = await served.start("get", "pods", "-w")
    assert process.stdout is not None
    while served.core.watcher_count("pods") == 0:
        await asyncio.sleep(0)
    process.kill()
    await process.communicate()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_kubectl_sends_exactly_the_listed_requests(tmp_path: Path, kubectl: Path) -> None:
    (tmp_path / "map.yaml").write_text(MAP, encoding="utf-8")
    (tmp_path / "pool.yaml").write_text(POOL, encoding="utf-8")

    async def scenario(served: Served) -> set[str]:
        await watch_a_moment(served)
        for line in COMMANDS.strip().splitlines():
            fails = line.endswith(" -")
            words = shlex.split(line.removesuffix(" -").replace(".yaml", "\0"))
            words = [word.replace("map\0", f"{tmp_path}/map.yaml") for word in words]
            words = [word.replace("pool\0", f"{tmp_path}/pool.yaml") for word in words]
            code, out, err = await served.run(*words)
            assert (code != 0) == fails, (line, out, err)
        return {word for request in served.requests for word in usage.words(request)}

    usage.compare("kubectl", serve(tmp_path, scenario))
