"""kubectl logs, exec, attach and port-forward: a real kubectl, a server of ours between, a stand-in for the node."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.embedded.kube_http import proxysupport
from tests.embedded.kube_http.fakekubelet import STDERR, STDOUT, Channels, Received
from tests.embedded.kube_http.proxysupport import TIMEOUT, ProxyHarness

Scenario = Callable[[ProxyHarness], Awaitable[None]]
Play = Callable[[Scenario], None]


@pytest.fixture
def play(tmp_path: Path, kubectl: Path) -> Play:
    def run(scenario: Scenario) -> None:
        proxysupport.play(tmp_path, scenario)

    return run


def test_a_log_is_printed_as_the_node_has_it(play: Play) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        harness.node.log = "eins\nzwei äöü\n".encode() + bytes(range(128, 256)) * 5000
        code, out, err = await harness.kubectl("logs", "mac-1")
        assert (code, out) == (0, harness.node.log), err
        [received] = harness.node.received
        assert (received.method, received.target) == ("GET", "/containerLogs/default/mac-1/runner")
        assert received.user == "the-api"
        assert "authorization" not in received.headers

    play(scenario)


def test_following_a_log_ends_at_the_node_too_when_the_reader_goes(play: Play) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        harness.node.endless = True
        process = await harness.start("logs", "-f", "--tail=3", "mac-1")
        assert process.stdout is not None
        async with asyncio.timeout(TIMEOUT):
            assert await process.stdout.readline() == b"tick\n"
        assert harness.nodes.open == 1
        process.kill()
        await process.communicate()
        async with asyncio.timeout(TIMEOUT):
            await harness.node.idle.wait()  # it was still writing
        [received] = harness.node.received
        assert received.target == "/containerLogs/default/mac-1/runner?follow=true&tailLines=3"

    play(scenario)


def test_a_followed_log_that_ends_at_the_node_ends_at_the_reader(play: Play) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        harness.node.log = b"the only line\n"
        code, out, _ = await harness.kubectl("logs", "--follow", "mac-1")
        assert (code, out) == (0, b"the only line\n")

    play(scenario)


def test_exec_passes_input_output_and_exit_code(play: Play) -> None:
    async def shout(_: Received, channels: Channels) -> None:
        expected = await channels.stdin()
        await channels.send(STDOUT, expected.upper())
        await channels.send(STDERR, b"warned\n")
        await channels.finish(7)

    async def scenario(harness: ProxyHarness) -> None:
        harness.node.serve = shout
        text = b"some words\n" * 20_000
        command = ("exec", "-i", "mac-1", "--", "tr", "a b&c", "", "ä")
        code, out, err = await harness.kubectl(*command, stdin=text)
        assert (code, out) == (7, text.upper()), err
        assert "warned" in err and "exit code 7" in err
        [received] = harness.node.received
        assert received.method == "GET" and received.upgrade.lower() == "websocket"
        path, _, query = received.target.partition("?")
        assert path == "/exec/default/mac-1/runner"
        assert query == (
            "command=tr&command=a%20b%26c&command=&command=%C3%A4&error=1&input=1&output=1"
        )

    play(scenario)


def test_exec_without_input_succeeds(play: Play) -> None:
    async def serve(_: Received, channels: Channels) -> None:
        await channels.send(STDOUT, b"x" * 3_000_000)
        await channels.finish()

    async def scenario(harness: ProxyHarness) -> None:
        harness.node.serve = serve
        code, out, err = await harness.kubectl("exec", "mac-1", "--", "date")
        assert (code, len(out)) == (0, 3_000_000), err

    play(scenario)


def test_attach_shows_what_is_written_there(play: Play) -> None:
    async def serve(_: Received, channels: Channels) -> None:
        await channels.send(STDOUT, b"still here\n")
        await channels.finish()

    async def scenario(harness: ProxyHarness) -> None:
        harness.node.serve = serve
        code, out, err = await harness.kubectl("attach", "mac-1", "-c", "runner")
        assert (code, out) == (0, b"still here\n"), err
        [received] = harness.node.received
        assert received.target == "/attach/default/mac-1/runner?error=1&output=1"

    play(scenario)


def test_a_disconnected_shell_ends_at_the_node(play: Play) -> None:
    async def wait(_: Received, channels: Channels) -> None:
        await channels.send(STDOUT, b"ready\n")
        await channels.stdin()

    async def scenario(harness: ProxyHarness) -> None:
        harness.node.serve = wait
        process = await harness.start("exec", "-i", "mac-1", "--", "sh")
        assert process.stdout is not None
        async with asyncio.timeout(TIMEOUT):
            assert await process.stdout.readline() == b"ready\n"
        assert (harness.node.open, harness.nodes.open) == (1, 1)
        process.kill()
        await process.communicate()
        async with asyncio.timeout(TIMEOUT):
            await harness.node.idle.wait()

    play(scenario)


def test_port_forward_reaches_the_node_as_a_tunnel(play: Play) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        process = await harness.start("port-forward", "pod/mac-1", ":80")
        assert process.stdout is not None
        async with asyncio.timeout(TIMEOUT):
            expected = await process.stdout.readline()
        assert expected.startswith(b"Forwarding from 127.0.0.1:"), expected
        received = harness.node.received[0]
        assert received.target == "/portForward/default/mac-1"
        assert received.headers["sec-websocket-protocol"] == "SPDY/3.1+portforward.k8s.io"
        process.kill()
        await process.communicate()

    play(scenario)


def test_refusals_have_readable_messages(play: Play) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        await harness.add_node("silent")
        await harness.add_node("away", port=1)
        await harness.add_pod("on-silent", node="silent")
        await harness.add_pod("on-away", node="away")
        await harness.add_pod("two", containers=("x", "y"))
        for expected, *command in (
            ("is not valid for pod mac-1", "logs", "mac-1", "-c", "nobody"),
            ("not found", "logs", "nobody"),
            ("its status has no kubelet port", "logs", "on-silent"),
            ("its status has no kubelet port", "exec", "on-silent", "--", "sh"),
            ("connection refused", "logs", "on-away"),
            ("error dialing backend", "exec", "on-away", "--", "sh"),
            ("must be greater than 0", "logs", "mac-1", "--limit-bytes=-1"),
        ):
            code, _, err = await harness.kubectl(*command)
            assert code == 1 and expected in err, (command, code, err)
        assert not harness.node.received

    play(scenario)


def test_a_viewer_cannot_exec(play: Play) -> None:
    async def scenario(harness: ProxyHarness) -> None:
        account = "/api/v1/namespaces/default/serviceaccounts"
        await harness.make(account, {"metadata": {"name": "looker"}})
        answer = await harness.send("POST", f"{account}/looker/token", {"spec": {}})
        token = answer.json()["status"]["token"]
        code, _, err = await harness.kubectl("logs", "mac-1", token=token)
        assert code == 1 and "Forbidden" in err
        rules = [
            {
                "verbs": ["get"],
                "apiGroups": [""],
                "resources": ["pods", "pods/log", "pods/exec", "pods/attach", "pods/portforward"],
            }
        ]
        group = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
        await harness.make(f"{group}/roles", {"metadata": {"name": "looks"}, "rules": rules})
        bound = {
            "metadata": {"name": "looks"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "looks"},
            "subjects": [{"kind": "ServiceAccount", "name": "looker", "namespace": "default"}],
        }
        await harness.make(f"{group}/rolebindings", bound)
        code, _, err = await harness.kubectl("logs", "mac-1", token=token)
        assert code == 0, err
        seen = len(harness.node.received)
        for command in (("exec", "mac-1", "--", "sh"), ("port-forward", "mac-1", ":80")):
            code, _, err = await harness.kubectl(*command, token=token)
            assert code == 1 and "orbidden" in err, err
        assert len(harness.node.received) == seen

    play(scenario)
