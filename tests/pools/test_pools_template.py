"""Tests the manifests that the scheduler, the agent and the guest rely on."""

import msgspec
import pytest
from tests.pools.pool_builders import NEW, make_pool

from runyard.pools.plans import template
from runyard.pools.settings import Settings

SETTINGS = Settings(dispatch_url="https://ci.test/dispatch", dispatch_internal_url="http://in.test")
MAC = make_pool(idle_timeout_seconds=300)
LINUX = make_pool(os="linux", runtime_class="kata-qemu", runtime_revision="r1")


def _field(item):
    return item["valueFrom"]["fieldRef"]["fieldPath"]


def env(container):
    return {
        item["name"]: item["value"] if "value" in item else _field(item)
        for item in container["env"]
    }


@pytest.mark.parametrize("pool", [MAC, LINUX], ids=["darwin", "linux"])
def test_pod_and_account_share_their_name_and_belong_to_the_pool(pool):
    pod = template.pod(pool, "mac-runner-1", SETTINGS)
    account = template.service_account(pool, "mac-runner-1")
    assert pod["metadata"]["name"] == account["metadata"]["name"] == "mac-runner-1"
    assert pod["spec"]["serviceAccountName"] == "mac-runner-1"
    assert account["automountServiceAccountToken"] is False
    for manifest in (pod, account):
        (owner,) = manifest["metadata"]["ownerReferences"]
        assert (owner["apiVersion"], owner["kind"]) == ("tuist.dev/v1alpha1", "RunnerPool")
        assert (owner["uid"], owner["controller"]) == ("pool-uid", True)
        assert manifest["metadata"]["labels"]["tuist.dev/runner-pool"] == "mac"
    assert pod["metadata"]["labels"]["tuist.dev/runner"] == "true"
    assert "tuist.dev/runner" not in account["metadata"]["labels"]
    assert pod["spec"]["restartPolicy"] == "Never"


def test_a_macos_pod_selects_a_tart_host_and_prefers_one_with_its_image():
    spec = template.pod(MAC, "r", SETTINGS)["spec"]
    assert spec["nodeSelector"] == {
        "kubernetes.io/os": "darwin",
        "tuist.dev/runtime": "tart",
        "tuist.dev/fleet": "minis",
    }
    assert spec["tolerations"] == [
        {"key": "tuist.dev/macos", "operator": "Exists", "effect": "NoSchedule"}
    ]
    (preferred,) = spec["affinity"]["nodeAffinity"][
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    (rule,) = preferred["preference"]["matchExpressions"]
    assert preferred["weight"] == 100
    assert rule["key"].startswith("tuist.dev/golden-") and rule["operator"] == "Exists"
    assert spec["automountServiceAccountToken"] is True
    (runner,) = spec["containers"]
    assert (runner["name"], runner["image"]) == ("runner", NEW)
    assert runner["resources"]["requests"] == {"cpu": "8000m", "memory": "14336Mi"}
    assert runner["resources"]["limits"] == runner["resources"]["requests"]
    assert env(runner) == {
        "ACTIONS_RUNNER_PRINT_LOG_TO_STDOUT": "1",
        "TUIST_RUNNER_IDLE_TIMEOUT_SECONDS": "300",
        "TUIST_RUNNER_DISPATCH_URL": "https://ci.test/dispatch",
        "TUIST_RUNNER_POOL": "mac",
        "TUIST_RUNNER_POD_NAME": "metadata.name",
        "TUIST_RUNNER_POD_UID": "metadata.uid",
    }


def test_the_cluster_dns_reaches_the_guest_only_when_it_is_known():
    settings = Settings(cluster_dns_ip="10.0.0.10")
    (runner,) = template.pod(MAC, "r", settings)["spec"]["containers"]
    assert env(runner)["TUIST_CLUSTER_DNS_IP"] == "10.0.0.10"
    assert env(runner)["TUIST_CLUSTER_DOMAIN"] == "cluster.local"


def test_on_linux_the_container_that_runs_jobs_never_sees_the_token():
    pod = template.pod(LINUX, "r", SETTINGS)
    spec = pod["spec"]
    assert pod["metadata"]["annotations"] == {"tuist.dev/runtime-class-revision": "r1"}
    assert spec["runtimeClassName"] == "kata-qemu"
    assert spec["automountServiceAccountToken"] is False
    (poller,), (runner,) = spec["initContainers"], spec["containers"]
    assert (poller["name"], runner["name"]) == ("poller", "runner")
    assert "tuist-runner-token" in [mount["name"] for mount in poller["volumeMounts"]]
    assert "tuist-runner-token" not in [mount["name"] for mount in runner["volumeMounts"]]
    assert env(poller)["TUIST_RUNNER_DISPATCH_URL"] == "http://in.test"
    assert "TUIST_RUNNER_DISPATCH_URL" not in env(runner)
    assert spec["nodeSelector"]["node.cluster.x-k8s.io/pool"] == "minis"
    (taint,) = spec["tolerations"]
    assert (taint["key"], taint["value"]) == ("tuist.dev/runner-tier", "bare-metal")
    token = spec["volumes"][1]["projected"]["sources"][0]["serviceAccountToken"]
    assert (token["audience"], token["expirationSeconds"]) == ("tuist-runners-dispatch", 3600)


@pytest.mark.parametrize("base", [MAC, LINUX], ids=["darwin", "linux"])
def test_the_pools_choice_of_who_polls_and_where_reaches_its_pods(base):
    pool = msgspec.structs.replace(
        base, poller="guest", dispatch_url="https://guests.test/dispatch"
    )
    pod = template.pod(pool, "r", SETTINGS)
    annotations = pod["metadata"]["annotations"]
    assert annotations["runyard.dev/poller"] == "guest"
    assert annotations["runyard.dev/dispatch-url"] == "https://guests.test/dispatch"
    containers = [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]
    urls = {env(each).get("TUIST_RUNNER_DISPATCH_URL") for each in containers}
    assert urls - {None} == {"https://guests.test/dispatch"}


def test_a_pool_that_chooses_nothing_gets_no_annotations_about_polling():
    assert "annotations" not in template.pod(MAC, "r", SETTINGS)["metadata"]
