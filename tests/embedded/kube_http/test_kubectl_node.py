"""kubectl logs, exec, attach and port-forward: a real kubectl, a server of ours between, a stand-in for the node."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.embedded.kube_http import proxysupport
from tests.embedded.kube_http.fakekubelet import STDERR, STDOUT, Channels, Received
from tests.embedded.kube_http.proxysupport import PATIENCE, Passing

Scenario = Callable[[Passing], Awaitable[None]]
Play = Callable[[Scenario], None]


@pytest.fixture
def play(tmp_path: Path, kubectl: Path) -> Play:
    def run(scenario: Scenario) -> None:
        proxysupport.play(tmp_path, scenario)

    return run


def test_a_log_is_printed_as_the_node_has_it(play: Play) -> None:
    async def scenario(world: Passing) -> None:
        world.node.log = "eins\nzwei äöü\n".encode() + bytes(range(128, 256)) * 5000
        code, out, err = await world.kubectl("logs", "mac-1")
        assert (code, out) == (0, world.node.log), err
        [asked] = world.node.received
        assert (asked.method, asked.target) == ("GET", "/containerLogs/default/mac-1/runner")
        assert asked.user == "the-api"
        assert "authorization" not in asked.headers

    play(scenario)


def test_following_a_log_ends_at_the_node_too_when_the_reader_goes(play: Play) -> None:
    async def scenario(world: Passing) -> None:
        world.node.endless = True
        process = await world.start("logs", "-f", "--tail=3", "mac-1")
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            assert await process.stdout.readline() == b"tick\n"
        assert world.nodes.open == 1
        process.kill()
        await process.communicate()
        async with asyncio.timeout(PATIENCE):
            await world.node.idle.wait()  # it was still writing
        [asked] = world.node.received
        assert asked.target == "/containerLogs/default/mac-1/runner?follow=true&tailLines=3"

    play(scenario)


def test_a_followed_log_that_ends_at_the_node_ends_at_the_reader(play: Play) -> None:
    async def scenario(world: Passing) -> None:
        world.node.log = b"the only line\n"
        code, out, _ = await world.kubectl("logs", "--follow", "mac-1")
        assert (code, out) == (0, b"the only line\n")

    play(scenario)


def test_exec_passes_input_output_and_exit_code(play: Play) -> None:
    async def shout(_: Received, channels: Channels) -> None:
        told = await channels.stdin()
        await channels.say(STDOUT, told.upper())
        await channels.say(STDERR, b"warned\n")
        await channels.finish(7)

    async def scenario(world: Passing) -> None:
        world.node.serve = shout
        text = b"some words\n" * 20_000
        command = ("exec", "-i", "mac-1", "--", "tr", "a b&c", "", "ä")
        code, out, err = await world.kubectl(*command, stdin=text)
        assert (code, out) == (7, text.upper()), err
        assert "warned" in err and "exit code 7" in err
        [asked] = world.node.received
        assert asked.method == "GET" and asked.upgrade.lower() == "websocket"
        path, _, query = asked.target.partition("?")
        assert path == "/exec/default/mac-1/runner"
        assert query == (
            "command=tr&command=a%20b%26c&command=&command=%C3%A4&error=1&input=1&output=1"
        )

    play(scenario)


def test_exec_without_input_succeeds(play: Play) -> None:
    async def serve(_: Received, channels: Channels) -> None:
        await channels.say(STDOUT, b"x" * 3_000_000)
        await channels.finish()

    async def scenario(world: Passing) -> None:
        world.node.serve = serve
        code, out, err = await world.kubectl("exec", "mac-1", "--", "date")
        assert (code, len(out)) == (0, 3_000_000), err

    play(scenario)


def test_attach_shows_what_is_written_there(play: Play) -> None:
    async def serve(_: Received, channels: Channels) -> None:
        await channels.say(STDOUT, b"still here\n")
        await channels.finish()

    async def scenario(world: Passing) -> None:
        world.node.serve = serve
        code, out, err = await world.kubectl("attach", "mac-1", "-c", "runner")
        assert (code, out) == (0, b"still here\n"), err
        [asked] = world.node.received
        assert asked.target == "/attach/default/mac-1/runner?error=1&output=1"

    play(scenario)


def test_a_disconnected_shell_ends_at_the_node(play: Play) -> None:
    async def wait(_: Received, channels: Channels) -> None:
        await channels.say(STDOUT, b"ready\n")
        await channels.stdin()

    async def scenario(world: Passing) -> None:
        world.node.serve = wait
        process = await world.start("exec", "-i", "mac-1", "--", "sh")
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            assert await process.stdout.readline() == b"ready\n"
        assert (world.node.open, world.nodes.open) == (1, 1)
        process.kill()
        await process.communicate()
        async with asyncio.timeout(PATIENCE):
            await world.node.idle.wait()

    play(scenario)


def test_port_forward_reaches_the_node_as_a_tunnel(play: Play) -> None:
    async def scenario(world: Passing) -> None:
        process = await world.start("port-forward", "pod/mac-1", ":80")
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            told = await process.stdout.readline()
        assert told.startswith(b"Forwarding from 127.0.0.1:"), told
        asked = world.node.received[0]
        assert asked.target == "/portForward/default/mac-1"
        assert asked.headers["sec-websocket-protocol"] == "SPDY/3.1+portforward.k8s.io"
        process.kill()
        await process.communicate()

    play(scenario)


def test_refusals_have_readable_messages(play: Play) -> None:
    async def scenario(world: Passing) -> None:
        await world.add_node("silent")
        await world.add_node("away", port=1)
        await world.add_pod("on-silent", node="silent")
        await world.add_pod("on-away", node="away")
        await world.add_pod("two", containers=("x", "y"))
        for told, *command in (
            ("is not valid for pod mac-1", "logs", "mac-1", "-c", "nobody"),
            ("not found", "logs", "nobody"),
            ("its status has no kubelet port", "logs", "on-silent"),
            ("its status has no kubelet port", "exec", "on-silent", "--", "sh"),
            ("connection refused", "logs", "on-away"),
            ("error dialing backend", "exec", "on-away", "--", "sh"),
            ("must be greater than 0", "logs", "mac-1", "--limit-bytes=-1"),
        ):
            code, _, err = await world.kubectl(*command)
            assert code == 1 and told in err, (command, code, err)
        assert not world.node.received

    play(scenario)


def test_a_viewer_cannot_exec(play: Play) -> None:
    async def scenario(world: Passing) -> None:
        account = "/api/v1/namespaces/default/serviceaccounts"
        await world.make(account, {"metadata": {"name": "looker"}})
        answer = await world.ask("POST", f"{account}/looker/token", {"spec": {}})
        token = answer.json()["status"]["token"]
        code, _, err = await world.kubectl("logs", "mac-1", token=token)
        assert code == 1 and "Forbidden" in err
        rules = [
            {
                "verbs": ["get"],
                "apiGroups": [""],
                "resources": ["pods", "pods/log", "pods/exec", "pods/attach", "pods/portforward"],
            }
        ]
        group = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
        await world.make(f"{group}/roles", {"metadata": {"name": "looks"}, "rules": rules})
        bound = {
            "metadata": {"name": "looks"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "looks"},
            "subjects": [{"kind": "ServiceAccount", "name": "looker", "namespace": "default"}],
        }
        await world.make(f"{group}/rolebindings", bound)
        code, _, err = await world.kubectl("logs", "mac-1", token=token)
        assert code == 0, err
        seen = len(world.node.received)
        for command in (("exec", "mac-1", "--", "sh"), ("port-forward", "mac-1", ":80")):
            code, _, err = await world.kubectl(*command, token=token)
            assert code == 1 and "orbidden" in err, err
        assert len(world.node.received) == seen

    play(scenario)
