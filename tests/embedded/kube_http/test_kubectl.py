"""The real kubectl against the embedded API over HTTPS: what an operator types must work and look as usual."""

import asyncio
import json

import pytest
import yaml
from tests.embedded.kube_http.kubectlsupport import ADMIN, PODS, SPACE, Play, Served, pod

from runyard.embedded.kube import kubeconfig


def headings(text: str) -> list[list[str]]:
    """The heading of each table that kubectl printed, and the number of its rows."""
    tables = [block.splitlines() for block in text.strip().split("\n\n")]
    return [
        [*lines[0].replace("LAST SEEN", "LAST").split(), str(len(lines) - 1)] for lines in tables
    ]


def test_get_shows_the_usual_columns(play: Play) -> None:
    async def scenario(served: Served) -> None:
        shown = await served.kubectl("get", "nodes,pods,runnerpools,events")
        *found, events = headings(shown)
        assert events[:-1] == ["LAST", "TYPE", "REASON", "OBJECT", "MESSAGE"]
        assert found == [
            ["NAME", "STATUS", "ROLES", "AGE", "VERSION", "1"],
            ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "2"],
            ["NAME", "REPLICAS", "OBSERVED", "DISPATCHLABEL", "AGE", "1"],
        ]
        lines = [" ".join(line.split()) for line in shown.splitlines()]
        for start in (
            "node/mini-1 Ready runner",
            "pod/mac-1 1/1 Running 0",
            "pod/mac-2 0/1 Pending 0",
            "runnerpool.tuist.dev/mac 2 1 mac",
        ):
            assert any(line.startswith(start) for line in lines), (start, shown)
        cloning = "Normal CreatingVM pod/mac-1 cloning the image vm:1"
        assert any(line.endswith(cloning) for line in lines)

    play(scenario)


def test_get_all_namespaces_wide_yaml_json_and_by_name(play: Play) -> None:
    async def scenario(served: Served) -> None:
        wide = await served.kubectl("get", "pods", "-A", "-o", "wide")
        assert wide.startswith("NAMESPACE") and "127.0.0.9   mini-1" in wide
        assert (await served.kubectl("get", "pod", "mac-1")).count("\n") == 2
        one = yaml.safe_load(await served.kubectl("get", "pod", "mac-1", "-o", "yaml"))
        assert one == served.core.find("pods", SPACE, "mac-1") | {"metadata": one["metadata"]}
        many = json.loads(await served.kubectl("get", "pods,rpool", "-o", "json"))
        assert [item["kind"] for item in many["items"]] == ["Pod", "Pod", "RunnerPool"]
        code, _, err = await served.run("get", "pod", "nobody")
        assert code == 1 and err == 'Error from server (NotFound): pods "nobody" not found\n'
        for kind in ("ns", "sa", "cm", "secrets", "leases", "namespaces,leases"):
            await served.kubectl("get", kind, "-A")
        shown = await served.kubectl("get", "pods", "-l", "a=b", "--show-labels", "-L", "a")
        assert shown.splitlines()[0].split()[-2:] == ["A", "LABELS"] and "a=b" in shown

    play(scenario)


def test_get_watch_prints_a_line_for_every_change(play: Play) -> None:
    async def scenario(served: Served) -> None:
        process = await served.start("get", "pods", "-w")
        assert process.stdout is not None
        lines = [(await process.stdout.readline()).decode().split() for _ in range(3)]
        assert [line[0] for line in lines] == ["NAME", "mac-1", "mac-2"]
        while (
            served.core.watcher_count("pods") == 0
        ):  # kubectl has printed the list, and now watches
            await asyncio.sleep(0)
        await served.write("POST", PODS, pod("mac-3"))
        while (line := (await process.stdout.readline()).decode().split())[0] != "mac-3":
            pass
        assert line[:3] == ["mac-3", "0/1", "Pending"]
        process.kill()
        await process.communicate()

    play(scenario)


def test_describe_shows_limits_events_and_pods(play: Play) -> None:
    async def scenario(served: Served) -> None:
        shown = await served.kubectl("describe", "pod", "mac-1")
        assert "Node:             mini-1/" in shown and "CreatingVM" in shown
        shown = await served.kubectl("describe", "node", "mini-1")
        assert "HolderIdentity:  mini-1" in shown
        assert "4 (50%)       4 (50%)     8Gi (50%)        8Gi (50%)" in shown
        assert "Observed Replicas:  1" in await served.kubectl("describe", "runnerpool", "mac")

    play(scenario)


def test_version_and_api_resources_are_served(play: Play) -> None:
    async def scenario(served: Served) -> None:
        version = json.loads(await served.kubectl("version", "-o", "json"))
        assert version["serverVersion"]["gitVersion"].endswith("+runyard")
        shown = await served.kubectl("api-resources")
        assert [line.split()[0] for line in shown.splitlines()[1:]] == [
            *("configmaps", "events", "namespaces", "nodes", "pods", "secrets", "serviceaccounts"),
            *("customresourcedefinitions", "selfsubjectreviews", "tokenreviews"),
            *("selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews"),
            *("certificatesigningrequests", "leases", "runtimeclasses"),
            *("clusterrolebindings", "clusterroles", "rolebindings", "roles", "runnerpools"),
        ]
        assert await served.kubectl("get", "--raw", "/readyz") == "ok"

    play(scenario)


def test_delete_waits_until_the_object_is_removed(play: Play) -> None:
    async def scenario(served: Served) -> None:
        assert "mac-2" in await served.kubectl("delete", "pod", "mac-2")
        assert served.core.find("pods", SPACE, "mac-2") is None
        process = await served.start("delete", "pod", "mac-1")
        while (
            not (served.core.find("pods", SPACE, "mac-1") or {})
            .get("metadata", {})
            .get("deletionTimestamp")
        ):
            await asyncio.sleep(0)
        assert "Terminating" in await served.kubectl("get", "pods")
        assert process.returncode is None
        await served.write("DELETE", f"{PODS}/mac-1", {"gracePeriodSeconds": 0})
        out, err = await process.communicate()
        assert process.returncode == 0 and b"mac-1" in out, err

    play(scenario)


def test_an_operators_small_changes_work(play: Play) -> None:
    async def scenario(served: Served) -> None:
        await served.kubectl("label", "pod", "mac-1", "x=y")
        await served.kubectl("annotate", "runnerpool", "mac", "x=y")
        patch = '{"spec":{"replicas":3}}'
        await served.kubectl("patch", "runnerpool", "mac", "--type=merge", "-p", patch)
        await served.kubectl("cordon", "mini-1")
        assert "Ready,SchedulingDisabled" in await served.kubectl("get", "nodes")
        await served.kubectl("uncordon", "mini-1")
        await served.kubectl("wait", "--for=condition=Ready", "node/mini-1", "--timeout=60s")
        pool = served.core.find("runnerpools", SPACE, "mac") or {}
        assert pool["spec"]["replicas"] == 3 and pool["metadata"]["annotations"] == {"x": "y"}

    play(scenario)


def test_a_wrong_token_gets_the_login_error(play: Play) -> None:
    async def scenario(served: Served) -> None:
        config = served.folder / "config"
        config.write_text(config.read_text().replace(ADMIN, "another-token-altogether"))
        code, _, err = await served.run("get", "pods")
        assert code == 1 and "You must be logged in to the server" in err

    play(scenario)


NEEDED = {
    "get": ["get", "nodes,pods,runnerpools,events"],
    "describe": ["describe", "node", "mini-1"],
    "delete": ["delete", "pod", "mac-2"],
}


@pytest.mark.parametrize("case", NEEDED)
def test_every_request_of_kubectl_is_expected(play: Play, case: str) -> None:
    """Checks the requests that each command makes; unserved ones must be on the list."""

    async def scenario(served: Served) -> None:
        await served.kubectl(*NEEDED[case])
        refused = [line for line in served.request_log if not line.endswith(" 200")]
        gone = f"GET {PODS}/mac-2 404"  # the end of a deletion
        unserved = (
            "GET /apis/resource.k8s.io/v1/resourceslices 404"  # kubectl shows the node without them
        )
        assert [line for line in refused if line not in (gone, unserved)] == []

    play(scenario)


def test_a_kubeconfig_is_yaml_with_its_secret_in_one_place() -> None:
    text = kubeconfig.render(
        "https://127.0.0.1:6443", token="yes", ca=b"PEM", namespace="n", name="r"
    )
    assert yaml.safe_load(text) == {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "r",
                "cluster": {
                    "server": "https://127.0.0.1:6443",
                    "certificate-authority-data": "UEVN",
                },
            }
        ],
        "users": [{"name": "r", "user": {"token": "yes"}}],
        "contexts": [{"name": "r", "context": {"cluster": "r", "user": "r", "namespace": "n"}}],
        "current-context": "r",
    }
    assert "certificate-authority-data" not in kubeconfig.render("http://x", token="t")
