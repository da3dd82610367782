"""Tests `tart-kubelet` as existing hosts start it: a process, its flags, its own account, a Node, Pods as VMs."""

import asyncio
import signal
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import controlplane
import pytest
from tests.conformance.kube import clusters
from tests.conformance.kube.test_real_fleet import cluster_of
from tests.node.tart_host import IMAGE, NODE, SPACE, TartHost, tart_host

from runyard.kube.kinds import CONFIG_MAPS, NAMESPACES, PODS, SECRETS
from runyard.wire import names, rights

# Guests: one that works until its file says that it may end, one that ignores its shutdown.
WORKS = """#!/bin/sh
while ! [ -e "$HOME/finish" ]; do sleep 0.1; done
exit 0
"""
STUBBORN = """#!/bin/sh
trap '' TERM
while :; do sleep 1; done
"""
KEEPS_ITS_SETTINGS = """#!/bin/sh
. "$STANDIN_SHARES/env/tuist.env"
printf '%s\\n' "$MODE" "$DATABASE_URL" >"$HOME/settings.new"
mv "$HOME/settings.new" "$HOME/settings"
while ! [ -e "$HOME/finish" ]; do sleep 0.1; done
"""
Scenario = Callable[[TartHost], Awaitable[None]]


def play(scenario: Scenario, plane: controlplane.ControlPlane | None = None) -> None:
    async def main(folder: Path) -> None:
        async with cluster_of(plane, folder) as cluster, tart_host(cluster, folder) as host:
            await scenario(host)

    with tempfile.TemporaryDirectory(prefix="runyard-tart-") as name:
        asyncio.run(main(Path(name).resolve()))


async def serve_a_pod_through_a_crash(host: TartHost) -> None:
    """A Pod becomes one VM, the agent is killed meanwhile, and the next one reports the end."""
    image = host.tart.image(IMAGE, {"boot": WORKS})
    host.tart.create("packer-build", {"boot": WORKS})
    await host.start(
        "--provider-id=scw-applesilicon://zone/1", "-zap-log-level=1", "-max-pods", "3"
    )
    await host.until(host.node, what="the Node was not registered")
    node = await host.node()
    assert node is not None
    labels = node["metadata"]["labels"]
    assert {labels[names.NODE_OS], labels[names.NODE_RUNTIME]} == {"darwin", "tart"}
    assert labels["a"] == "b" and labels[names.NODE_FLEET] == "macs"
    assert node["spec"]["providerID"] == "scw-applesilicon://zone/1"
    assert [taint["key"] for taint in node["spec"]["taints"]].count(names.NODE_TAINT) == 1

    await host.add_pod("work", image=image)
    await host.until_phase("work", "Running")
    (vm,) = [vm for vm in host.vms if vm != "packer-build"]
    assert await host.kill() == -signal.SIGKILL
    (Path(host.tart.storage.local(vm).path) / "guest-disk" / "finish").write_text("")
    await host.start()
    await host.until_phase("work", "Succeeded")
    assert host.tart.runs(vm) == 1, "a VM that was started is never started again"
    pod = await host.pod("work")
    assert pod is not None
    (status,) = pod["status"]["containerStatuses"]
    assert status["imageID"] == image
    await host.kube.delete(PODS, "work", namespace=SPACE)
    await host.until_phase("work", "gone")
    assert host.vms == ["packer-build"], "VMs of others stay"
    _, metrics = await host.get(host.urls[1], "/metrics")
    assert "\ntart_kubelet_unowned_vms 1" in metrics


@pytest.mark.slow
def test_a_pod_becomes_one_vm_whatever_happens_to_the_agent() -> None:
    play(serve_a_pod_through_a_crash)


async def serve_a_pod_that_is_no_runner(host: TartHost) -> None:
    """A Pod like the processor's: in another namespace, with its settings from a Secret and a ConfigMap."""
    image = host.tart.image(IMAGE, {"boot": KEEPS_ITS_SETTINGS})
    await host.kube.create(NAMESPACES, {"metadata": {"name": "results"}})
    for kind, data in (
        (SECRETS, {"url": "cG9zdGdyZXM6Ly94"}),
        (CONFIG_MAPS, {"MODE": "processor"}),
    ):
        body = {"metadata": {"name": "database"}, "data": data}
        await host.kube.create(kind, body, namespace="results")
    await host.start()
    from_secret = {"secretKeyRef": {"name": "database", "key": "url"}}
    await host.add_pod(
        "work",
        image=image,
        space="results",
        env=[{"name": "DATABASE_URL", "valueFrom": from_secret}],
        envFrom=[{"configMapRef": {"name": "database"}}],
    )
    pods = ("--pods-namespace", "results")
    allow(host, *pods)

    async def says_what_is_missing() -> bool:
        return "--secret results/database" in str(await host.pod("work", space="results"))

    await host.until(says_what_is_missing, what="the Pod does not say which right is missing")
    allow(host, *pods, "--secret", "results/database", "--config-map", "results/database")
    await host.until_phase("work", "Running", space="results")
    (vm,) = host.vms
    kept = Path(host.tart.storage.local(vm).path) / "guest-disk" / "settings"
    assert sorted(kept.read_text().split()) == ["postgres://x", "processor"]
    await host.kube.delete(PODS, "work", namespace="results")

    async def gone() -> bool:
        return await host.phase("work", space="results") == "gone"

    await host.until(gone, what="the Pod was not deleted")
    assert "postgres://x" not in host.log.read_text()


def allow(host: TartHost, *flags: str) -> None:
    """Allow the host what it may do elsewhere, as an administrator does."""
    config = host.layout.root / "admin.kubeconfig"
    text = clusters.manifests("--component", "agent", "--host", NODE, *flags)
    clusters.kubectl(config, "apply", "-f", "-", stdin=text)


def refused(plane: controlplane.ControlPlane) -> list[str]:
    """The requests of this host that its shipped account may not send."""
    user = f"system:serviceaccount:{names.CONTROLLER_NAMESPACE}:{rights.host_account(NODE)}"
    asked = [each for each in plane.audit() if each.user == user]
    assert asked, f"no request of {user}"
    return sorted({f"{each.verb} {each.path}" for each in asked if each.code == 403})


@pytest.mark.slow
def test_the_same_on_a_real_api_server_with_the_admission_fence(
    audited_plane: controlplane.ControlPlane,
) -> None:
    play(serve_a_pod_through_a_crash, audited_plane)
    assert refused(audited_plane) == []


@pytest.mark.slow
def test_a_pod_of_another_namespace_gets_its_settings_once_the_host_may_read_them(
    audited_plane: controlplane.ControlPlane,
) -> None:
    play(serve_a_pod_that_is_no_runner, audited_plane)


@pytest.mark.slow
def test_a_vm_that_is_gone_already_does_not_keep_its_pod() -> None:
    async def scenario(host: TartHost) -> None:
        image = host.tart.image(IMAGE, {"boot": STUBBORN})
        await host.start()
        await host.add_pod("a", image=image, grace=0)
        await host.until_phase("a", "Running")
        await host.kill()
        (vm,) = host.vms
        host.tart.call("stop", vm, "--timeout", "0")
        assert host.tart.call("delete", vm).code == 0
        await host.kube.delete(PODS, "a", namespace=SPACE)
        await host.start()
        await host.until_phase("a", "gone")
        assert host.vms == []

    play(scenario)


def test_probes_are_open_and_metrics_are_for_the_allowed_networks() -> None:
    async def scenario(host: TartHost) -> None:
        await host.start("--scrape-allowed-cidr=10.0.0.0/8", "--node-ip=192.0.2.7")
        probes, metrics = host.urls
        assert (await host.get(probes, "/healthz"))[0] == 200
        assert (await host.get(probes, "/metrics"))[0] == 404
        assert (await host.get(metrics, "/metrics"))[0] == 403
        assert (await host.get(metrics, "/healthz"))[0] == 404
        await host.until(host.node, what="the Node was not registered")
        assert await host.kill(signal.SIGTERM) == 0
        await host.start("--health-probe-bind-address=0")
        (metrics,) = host.urls
        status, text = await host.get(metrics, "/metrics")
        assert status == 200 and "tart_kubelet_unowned_vms" in text

    play(scenario)


def test_the_host_stays_ready_for_its_probe_while_tart_does_not_answer() -> None:
    async def scenario(host: TartHost) -> None:
        await host.start()
        host.tart.set("hang-list")
        probes = host.urls[0]

        async def degraded() -> bool:
            status, text = await host.get(probes, "/readyz")
            assert status == 200
            return b'"works":false' in text.encode()

        await host.until(degraded, what="the probe does not say what is wrong")
        host.tart.unset("hang-list")

    play(scenario)


def test_the_token_of_the_host_is_in_no_argument_and_in_no_log() -> None:
    async def scenario(host: TartHost) -> None:
        image = host.tart.image(IMAGE, {"boot": WORKS})
        await host.start("--zap-devel")
        await host.add_pod("a", image=image, grace=0)
        await host.until_phase("a", "Running")
        token = (host.layout.root / "tokens" / NODE).read_text().strip()
        assert token not in host.log.read_text()
        assert not any(token in word for argv in host.tart.journal() for word in argv)

    play(scenario)
