"""What is passed to a node and what is not, tested byte for byte without kubectl."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.embedded.kube_http import proxysupport
from tests.embedded.kube_http.fakekubelet import node_context, serving_kubelet
from tests.embedded.kube_http.proxysupport import NODE, PODS, TIMEOUT, ProxyHarness

from runyard.clock import RealClock
from runyard.http.tls import make_authority

Scenario = Callable[[ProxyHarness], Awaitable[None]]
Play = Callable[..., None]

WEBSOCKET = {
    "upgrade": "websocket",
    "sec_websocket_key": "dGhlIHNhbXBsZSBub25jZQ==",
    "sec_websocket_version": "13",
    "sec_websocket_protocol": "SPDY/3.1+portforward.k8s.io",
}
SPDY = {"upgrade": "SPDY/3.1", "content_length": "0", "x_stream_protocol_version": "v4, v3"}


@pytest.fixture
def play(tmp_path: Path) -> Play:
    def run(scenario: Scenario, **limits: Any) -> None:
        proxysupport.play(tmp_path, scenario, **limits)

    return run


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        pytest.param("GET", WEBSOCKET, id="websocket"),
        pytest.param("POST", SPDY, id="spdy"),
    ],
)
def test_an_upgraded_connection_carries_every_byte_both_ways(
    play: Play, method: str, headers: dict[str, str]
) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        target = f"{PODS}/mac-1/portforward?ports=80&ports=443"
        client = await harness.dial(method, target, cookie="a=b", **headers)
        assert client.head.startswith("HTTP/1.1 101 ")
        assert f"upgrade: {headers['upgrade']}".lower() in client.head.lower()
        sent = bytes(range(256)) * 20_000  # more than any buffer on the way
        async with asyncio.timeout(TIMEOUT), asyncio.TaskGroup() as group:
            got = group.create_task(client.reader.readexactly(len(sent)))
            client.writer.write(sent)
            await client.writer.drain()
        assert got.result() == sent
        [requested] = harness.node.received
        assert requested.method == method
        assert requested.target == "/portForward/default/mac-1?port=80,443"
        assert "authorization" not in requested.headers and "cookie" not in requested.headers
        await client.close()

    play(scenario)


TOKEN = "base64url.bearer.authorization.k8s.io.c2VjcmV0"


@pytest.mark.parametrize(
    ("offered", "expected"),
    [
        pytest.param(f"{TOKEN}, v5.channel.k8s.io", "v5.channel.k8s.io", id="before"),
        pytest.param(f"v5.channel.k8s.io,{TOKEN},v4", "v5.channel.k8s.io, v4", id="between"),
        pytest.param(TOKEN.replace("base", "BASE") + " , a", "a", id="shouted"),
        pytest.param(TOKEN, None, id="alone"),
    ],
)
def test_a_token_among_the_protocols_is_not_passed_to_the_node(
    play: Play, offered: str, expected: str | None
) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        headers = WEBSOCKET | {"sec_websocket_protocol": offered}
        client = await harness.dial("GET", f"{PODS}/mac-1/exec?command=x", **headers)
        assert client.head.startswith("HTTP/1.1 101 ")
        [requested] = harness.node.received
        assert requested.headers.get("sec-websocket-protocol") == expected
        assert "c2VjcmV0" not in str(requested.headers)
        await client.close()

    play(scenario)


def test_a_node_that_ends_the_connection_ends_it_for_the_client(play: Play) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        client = await harness.dial("POST", f"{PODS}/mac-1/exec?command=x", **SPDY)
        client.writer.write(b"last words")
        async with asyncio.timeout(TIMEOUT):
            assert await client.reader.readexactly(10) == b"last words"
            harness.node.stop()
            assert await client.reader.read() == b""
        await client.close()

    play(scenario)


def test_a_refusal_instead_of_an_upgrade_is_the_nodes_own(play: Play) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        harness.node.refusal = (404, b"no such container here\n")
        client = await harness.dial("POST", f"{PODS}/mac-1/exec?command=x", **SPDY)
        assert client.head.startswith("HTTP/1.1 404 ")
        async with asyncio.timeout(TIMEOUT):
            assert await client.reader.readexactly(23) == b"no such container here\n"
        await client.close()

    play(scenario)


def test_one_call_too_many_gets_429_with_retry_after(play: Play) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        first = await harness.dial("POST", f"{PODS}/mac-1/exec?command=x", **SPDY)
        refused = await harness.send("GET", f"{PODS}/mac-1/log")
        assert refused.status == 429 and refused.header("retry-after") == "1"
        assert refused.json()["reason"] == "TooManyRequests"
        await first.close()
        async with asyncio.timeout(TIMEOUT):
            while harness.nodes.open:
                await asyncio.sleep(0)
        assert (await harness.send("GET", f"{PODS}/mac-1/log")).status == 200

    play(scenario, limit=1)


def test_a_node_that_does_not_answer_leaves_capacity_for_others(play: Play) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        await harness.add_node("other", port=harness.node.port)
        await harness.add_pod("mac-2", node="other")
        first = await harness.dial("POST", f"{PODS}/mac-1/exec?command=x", **SPDY)
        refused = await harness.send("GET", f"{PODS}/mac-1/log")
        assert refused.status == 429 and f"the Node {NODE}" in refused.json()["message"]
        other = await harness.send("GET", f"{PODS}/mac-2/log")
        assert other.status == 500 and "certificate" in other.json()["message"]  # it was called
        await first.close()
        async with asyncio.timeout(TIMEOUT):
            while harness.nodes.open:
                await asyncio.sleep(0)
        assert (await harness.send("GET", f"{PODS}/mac-1/log")).status == 200

    play(scenario, each=1)


def test_no_call_is_left_open_when_the_server_stops(play: Play) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        client = await harness.dial("POST", f"{PODS}/mac-1/exec?command=x", **SPDY)
        assert harness.nodes.open == 1
        await harness.listening.close()
        assert harness.nodes.open == 0
        await client.close()

    play(scenario)


def test_a_call_to_a_silent_node_has_a_deadline(play: Play) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        stopped = asyncio.Event()

        async def mute(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await stopped.wait()
            writer.close()

        server = await asyncio.start_server(mute, "127.0.0.1", 0)  # not even TLS
        await harness.add_node("mute", port=server.sockets[0].getsockname()[1])
        await harness.add_pod("on-mute", node="mute")
        async with asyncio.timeout(TIMEOUT):
            expected = (await harness.send("GET", f"{PODS}/on-mute/log")).json()
        assert expected["code"] == 500 and expected["message"].endswith(": i/o timeout")
        stopped.set()
        server.close()
        await server.wait_closed()

    play(scenario, connect=0.2)


NAMES = {
    "of another authority": (True, NODE, "failed to verify certificate"),
    "of another node": (False, "mini-2", "is of 'system:node:mini-2'"),
}


@pytest.mark.parametrize(("other_authority", "name", "why"), NAMES.values(), ids=NAMES)
def test_another_certificate_cannot_answer_for_a_node(
    play: Play, tmp_path: Path, other_authority: bool, name: str, why: str
) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        other = make_authority(now=RealClock().now()) if other_authority else harness.authority
        async with serving_kubelet(node_context(tmp_path / "other", other, node=name)) as impostor:
            await harness.add_node("victim", port=impostor.port)
            await harness.add_pod("secret", node="victim")
            expected = (await harness.send("GET", f"{PODS}/secret/log")).json()
            assert expected["code"] == 500 and why in expected["message"]
            assert not impostor.received

    play(scenario)


LOGS = {
    "nothing": ("", ""),
    "followed": ("?follow=true&tailLines=5", "?follow=true&tailLines=5"),
    "a word that is not no": ("?follow=maybe", "?follow=true"),
    "an empty yes": ("?follow=", "?follow=true"),
    "no": ("?follow=0&previous=False&timestamps=false", ""),
    "the first word counts": ("?tailLines=5&tailLines=7", "?tailLines=5"),
    "in the order of the names": (
        "?timestamps=1&sinceSeconds=3&previous=true&limitBytes=007",
        "?limitBytes=7&previous=true&sinceSeconds=3&timestamps=true",
    ),
    "whole seconds of UTC": (
        "?sinceTime=2024-01-01T01:00:00.123%2B01:00",
        "?sinceTime=2024-01-01T00:00:00Z",
    ),
    "the beginning of time": ("?sinceTime=", "?sinceTime=0001-01-01T00:00:00Z"),
    "with a sign": ("?tailLines=%2B5", "?tailLines=5"),
    "what nodes do not know": ("?container=runner&pretty=true&foo=bar", ""),
}


@pytest.mark.parametrize(("query", "expected"), LOGS.values(), ids=LOGS)
def test_options_are_translated_for_the_kubelet(play: Play, query: str, expected: str) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        answer = await harness.send("GET", f"{PODS}/mac-1/log{query}")
        assert answer.status == 200 and answer.header("content-type") == "text/plain"
        [received] = harness.node.received
        assert received.target == f"/containerLogs/default/mac-1/runner{expected}"

    play(scenario)


ANSWERS = {
    400: ("BadRequest", "said so"),
    404: ("NotFound", "the server could not find the requested resource ( pods/log mac-1)"),
    500: ("InternalError", "Internal error occurred: said so"),
    501: (
        "InternalError",
        'an error on the server ("said so") has prevented the request from succeeding ( pods/log mac-1)',
    ),
    302: (
        None,
        "the server responded with the status code 302 but did not return more information ( pods/log mac-1)",
    ),
}


@pytest.mark.parametrize(("code", "expected"), ANSWERS.items(), ids=[str(code) for code in ANSWERS])
def test_an_error_of_a_node_becomes_a_status(
    play: Play, code: int, expected: tuple[str | None, str]
) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        harness.node.refusal = (code, b"said so")
        status = (await harness.send("GET", f"{PODS}/mac-1/log")).json()
        assert (status["code"], status.get("reason"), status["message"]) == (code, *expected)

    play(scenario)
