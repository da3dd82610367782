"""Refusals of log, exec and port-forward that the server answers without calling a node."""

import pytest
from tests.conformance.kube.kit import Api, Json, pod

NODES = "/api/v1/nodes"


def _node(name: str, *addresses: Json) -> Json:
    status = {"addresses": list(addresses), "daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}
    return {"metadata": {"name": name}, "status": status}


def _pod(name: str, *containers: str, node: str = "") -> Json:
    made = pod(name, containers=[{"name": each, "image": "vm:1"} for each in containers])
    made["spec"] |= {"nodeName": node} if node else {"schedulerName": "nobody"}
    return made


async def _begin(api: Api) -> str:
    """Creates a Node without a kubelet API, and a Pod on it."""
    name = api.own("away")
    await api.create(NODES, _node(name, {"type": "InternalIP", "address": "127.0.0.1"}))
    await api.create(api.pods(), _pod("p", "runner", node=name))
    return name


LOGS = {
    "fewer lines than none": ("tailLines", "-1", 422, "Invalid"),
    "no number": ("tailLines", "abc", 400, "BadRequest"),
    "an empty number": ("tailLines", "", 400, "BadRequest"),
    "too large a number": ("tailLines", "9" * 20, 400, "BadRequest"),
    "no bytes": ("limitBytes", "0", 422, "Invalid"),
    "no seconds": ("sinceSeconds", "0", 422, "Invalid"),
    "no moment": ("sinceTime", "nonsense", 400, "BadRequest"),
    "an unknown container": ("container", "zzz", 400, "BadRequest"),
    "one of two streams": ("stream", "Stdout", 422, "Invalid"),
}


@pytest.mark.since(1, 32)  # older servers have no such streams
@pytest.mark.parametrize(("key", "value", "code", "reason"), LOGS.values(), ids=LOGS)
async def test_invalid_options_of_a_log_are_refused(
    api: Api, key: str, value: str, code: int, reason: str
) -> None:
    await api.create(api.pods(), _pod("p", "runner"))
    assert await api.refused("GET", api.pods("p", "log"), **{key: value}) == (code, reason)


async def test_every_invalid_option_of_a_log_is_reported(api: Api) -> None:
    await api.create(api.pods(), _pod("p", "runner"))
    query = {"limitBytes": -1, "tailLines": -3}
    result = await api.why("GET", api.pods("p", "log"), **query)
    fields = [cause["field"] for cause in result["details"]["causes"]]
    assert fields == ["tailLines", "limitBytes"]
    assert result["message"].startswith(
        'PodLogOptions "p" is invalid: [tailLines: Invalid value: -3'
    )
    query = {"sinceSeconds": 5, "sinceTime": "2024-01-01T00:00:00Z"}
    result = await api.why("GET", api.pods("p", "log"), **query)
    assert result["details"]["causes"][0]["reason"] == "FieldValueForbidden"


async def test_an_unbound_pod_has_an_empty_log_and_no_exec(api: Api) -> None:
    await api.create(api.pods(), _pod("p", "runner"))
    answer = await api.call("GET", api.pods("p", "log"))
    assert (answer.status, answer.body) == (204, b"")
    for sub in ("exec", "attach", "portforward"):
        result = await api.why("POST", api.pods("p", sub))
        assert (result["code"], result["message"]) == (400, "pod p does not have a host assigned")


async def test_of_several_containers_one_must_be_named(api: Api) -> None:
    made = _pod("p", "x", "y")
    default = {"kubectl.kubernetes.io/default-container": "y"}  # only kubectl uses it
    made["metadata"]["annotations"] = default
    await api.create(api.pods(), made)
    result = await api.why("GET", api.pods("p", "log"))
    message = "a container name must be specified for pod p, choose one of: [x y]"
    assert (result["code"], result["message"]) == (400, message)
    assert (await api.why("POST", api.pods("p", "exec"), command="x"))["message"] == message
    assert (await api.call("GET", api.pods("p", "log"), container="y")).status == 204


async def test_a_missing_pod_has_no_log(api: Api) -> None:
    assert await api.refused("GET", api.pods("p", "log")) == (404, "NotFound")
    assert await api.refused("POST", api.pods("p", "exec"), command="x") == (404, "NotFound")
    assert await api.refused("PUT", api.pods("p", "exec")) == (405, "MethodNotAllowed")
    assert await api.refused("POST", api.pods("p", "log")) == (405, "MethodNotAllowed")


async def test_an_exec_needs_an_upgrade(api: Api) -> None:
    node = await _begin(api)
    try:
        for method in ("GET", "POST"):
            result = await api.why(method, api.pods("p", "exec"), command="x")
            assert (result["code"], result["message"]) == (400, "Upgrade request required")
        result = await api.why("POST", api.pods("p", "portforward"), ports="abc")
        assert (result["code"], result["reason"]) == (400, "BadRequest")
        assert "ParseUint" in result["message"]
    finally:
        await api.call("DELETE", f"{NODES}/{node}")


async def test_a_node_without_an_address_cannot_be_called(api: Api) -> None:
    name = api.own("nowhere")
    await api.create(NODES, _node(name))
    try:
        await api.create(api.pods(), _pod("p", "runner", node=name))
        result = await api.why("GET", api.pods("p", "log"))
        message = "no preferred addresses found; known addresses: []"
        assert (result["code"], result["message"]) == (500, message)
    finally:
        await api.call("DELETE", f"{NODES}/{name}")


PLACES = {
    "a port that is none": ("127.0.0.1", 70000, "dial tcp: address 70000: invalid port"),
    "the largest number": ("127.0.0.1", 2**31 - 1, "address 2147483647: invalid port"),
    "dots": ("..", 1, "dial tcp: lookup ..: no such host"),
    "too long a name": ("a" * 70, 1, f"dial tcp: lookup {'a' * 70}: no such host"),
    "far too long a name": ("a." * 140, 1, "no such host"),
    "half a name of another alphabet": ("xn--\u00e9", 1, "lookup xn--\u00e9: no such host"),
    "nothing in it": ("a\0b", 1, ""),
    "a blank": (" ", 1, ""),
    "another line": ("a\nb: c", 1, ""),
    "a path": ("a/b", 1, ""),
    "a user": ("a@127.0.0.1", 1, ""),
    "brackets": ("[::1]", 1, ""),
}


@pytest.mark.since(1, 31)  # older servers have other messages
@pytest.mark.parametrize(("address", "port", "message"), PLACES.values(), ids=PLACES)
async def test_an_invalid_address_of_a_node_is_reported(
    api: Api, address: str, port: int, message: str
) -> None:
    name = api.own("lost")
    made = _node(name, {"type": "InternalIP", "address": address})
    made["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"] = port
    await api.create(NODES, made)
    try:
        await api.create(api.pods(), _pod("p", "runner", node=name))
        result = await api.why("GET", api.pods("p", "log"))
        assert (result["code"], result.get("reason", "")) == (500, "")
        assert result["message"].endswith(message)
    finally:
        await api.call("DELETE", f"{NODES}/{name}")


async def test_a_node_that_refuses_connections_is_reported(api: Api) -> None:
    node = await _begin(api)
    try:
        result = await api.why("GET", api.pods("p", "log"))
        url = f"https://127.0.0.1:1/containerLogs/{api.space}/p/runner"
        message = f'Get "{url}": dial tcp 127.0.0.1:1: connect: connection refused'
        assert (result["code"], result["message"]) == (500, message)
    finally:
        await api.call("DELETE", f"{NODES}/{node}")
