"""A controller in Go on the embedded API: election, caches, patches and status, all of it in protobuf."""

from pathlib import Path
from typing import Any

import pytest
from tests.embedded.kube_go.gosupport import start
from tests.embedded.kube_http.kubectlsupport import SPACE, Served, serve

from runyard.embedded.kube.protobuf.decoding import PROTOBUF

pytestmark = pytest.mark.slow

JSON = "application/json"
ANNOTATION = "tests.runyard.dev/seen"
PATCHES = ("application/strategic-merge-patch+json", "application/merge-patch+json")


def unlike_kubernetes(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The answers that are in JSON although the client asked for protobuf first, apart from custom resources."""
    asked = [item for item in events if item["accept"].startswith(PROTOBUF)]
    return [item for item in asked if not item["received"].startswith(PROTOBUF)]


def test_a_controller_in_go_leads_lists_watches_patches_and_writes_status(
    kube_client: Path, tmp_path: Path
) -> None:
    async def scenario(served: Served) -> None:
        running = await start(kube_client, "controller", kubeconfig=tmp_path / "config")
        try:
            await running.until("leading")
            await running.until("done")
            found = {item["name"] for item in running.named("reconciled")}
            while found < {"mac-1", "mac-2"}:
                found.add((await running.until("reconciled"))["name"])
        finally:
            await running.end()
        check_objects(served)
        check_requests(running.named("request"))
        listed = running.named("listed")
        assert listed[0]["metadata"] == 1 and listed[1]["items"] == 1 and listed[1]["continue"]

    serve(tmp_path, scenario)


def check_objects(served: Served) -> None:
    for name in ("mac-1", "mac-2"):
        pod = served.core.find("pods", SPACE, name)
        assert pod is not None and pod["metadata"]["annotations"][ANNOTATION] == "yes"
        assert pod["status"]["phase"] == "Running"
    pool = served.core.find("runnerpools", SPACE, "mac")
    assert pool is not None and pool["status"]["observedReplicas"] == 3
    assert not [
        item for item in served.core.objects("configmaps") if "go" in item["metadata"]["name"]
    ]
    lease = served.core.find("leases", "tuist", "runners-controller.tuist.dev")
    assert lease is not None and not lease["spec"].get("holderIdentity"), (
        "it is given up at the end"
    )


def check_requests(requests: list[dict[str, Any]]) -> None:
    assert not unlike_kubernetes(requests)
    sent = {item["sent"] for item in requests}
    assert PROTOBUF in sent and set(PATCHES) <= sent
    streams = [item for item in requests if "watch=true" in item["query"]]
    assert streams and {item["received"] for item in streams} == {f"{PROTOBUF};stream=watch"}
    refused = {item["status"]: item["received"] for item in requests if item["status"] >= 400}
    assert refused.keys() == {404, 409} and {*refused.values()} == {PROTOBUF}
    custom = [
        item for item in requests if "/tuist.dev/" in item["path"] and JSON in item["received"]
    ]
    assert custom, "custom resources are JSON"
