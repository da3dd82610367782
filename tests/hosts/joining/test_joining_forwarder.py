"""A runner that waits for a job keeps the URL it was started with, so a later agent has to serve there, too."""

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.hosts.joining.joinsupport import Recorder, Served

from runyard.hosts.joining.forwarder import forwarding
from runyard.hosts.joining.membership import Joined, MembershipFiles
from runyard.http.messages import Request, Response, json_response
from runyard.http.tls import public_key_hash
from runyard.vm.shim.control import program_argv
from runyard.vm.shim.exits import TOKEN
from runyard.wire.joining import Credential
from runyard.wire.paths import DISPATCH

AGENT = """
import asyncio, sys
from pathlib import Path
from runyard.hosts.joining.forwarder import forwarding
from runyard.hosts.joining.forwarder import forwarding
from runyard.hosts.joining.membership import MembershipFiles
from runyard.telemetry.log import configure

async def main():
    configure()
    async with forwarding(MembershipFiles(Path(sys.argv[1]))) as url:
        print(url, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    main = Served(tmp_path / "main", practice="")
    yield main
    main.close()


def joined(data: Path, served: Served, *, practice: str = "") -> Path:
    """The files of a host that joined that machine."""
    authority = served.main.authority.certificate
    given = Credential(name="mini-2", token="t", expires=2e9, practice_url=practice)
    files = MembershipFiles(data)
    pin = public_key_hash(authority)
    membership = Joined(url=served.url, authority=authority.decode(), pin=pin, credential=given)
    files.write(membership, labels="", driver="tart")
    return data


class Agent:
    """The part of a joined agent that serves polls, as a process."""

    def __init__(self, data: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", AGENT, str(data)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout is not None
        self.log = ""
        for line in self.process.stdout:
            if line.startswith("http"):
                self.url = line.strip()
                break
            self.log += line
        else:
            self.kill()
            pytest.fail(self.log)

    def kill(self) -> None:
        """Kill it as kill -9 does."""
        self.process.kill()
        self.process.communicate()


@contextlib.contextmanager
def agent(data: Path) -> Iterator[Agent]:
    running = Agent(data)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.kill()


def waiting_vm(folder: Path, url: str) -> "subprocess.Popen[str]":
    """What polls for a VM in place of its guest: it outlives the agent."""
    folder.mkdir()
    (folder / TOKEN).write_text("token-of-the-pod")
    order = {"polling": {"url": url + DISPATCH, "ca": "", "pause": 0.05, "timeout": 20.0}}
    (folder / "order.json").write_text(json.dumps(order))
    return subprocess.Popen(
        program_argv("runyard.vm.shim.poller", str(folder)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_a_vm_that_waits_gets_its_job_after_the_agent_was_killed_and_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    arrived = False

    async def answer(_: Recorder, __: Request) -> Response:
        return (
            json_response(200, {"encoded_jit_config": "and0"}) if arrived else Response(status=204)
        )

    monkeypatch.setattr(Recorder, "handle", answer)
    data = joined(tmp_path / "host", request.getfixturevalue("served"))
    with agent(data) as first:
        vm = waiting_vm(tmp_path / "vm", first.url)
        assert vm.stdout is not None and vm.stderr is not None
        assert [vm.stdout.readline() for _ in range(2)] == ["\n", "\n"], "it polls"
        first.kill()
        assert "the poll failed with 000" in vm.stderr.readline()
    arrived = True
    with agent(data):
        lines = [line for line in vm.stdout if line != "\n"]  # until it ends by itself
        vm.communicate()
    assert [json.loads(line) for line in lines] == [{"jit": "and0", "env": {}}]
    assert vm.returncode == 0


@pytest.mark.slow
def test_a_port_that_another_program_has_taken_is_an_error_in_the_log(
    tmp_path: Path, served: Served
) -> None:
    data = joined(tmp_path / "host", served)
    with agent(data) as first:
        first.kill()
    port = int(first.url.rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)), agent(data) as second:
        assert second.url != first.url
    assert "another program has taken the port" in second.log and str(port) in second.log
    with agent(data) as third:
        assert third.url == second.url, "the runners of the second agent keep their URL"
        assert third.log == ""


def test_a_damaged_file_is_replaced(tmp_path: Path, served: Served) -> None:
    files = MembershipFiles(joined(tmp_path / "host", served))
    path = files.folder / "forwarder-port"

    async def port() -> str:
        async with forwarding(files) as url:
            return url.rpartition(":")[2]

    for stored in (b"", b"0 0", b"99999 0", b"a port", b"\xff"):
        path.write_bytes(stored)
        assert asyncio.run(port()) == path.read_text().split()[0]


@pytest.mark.slow
def test_runners_of_a_new_main_machine_find_its_practice_github(
    tmp_path: Path, served: Served
) -> None:
    data = joined(tmp_path / "host", served)
    with agent(data) as before, socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert not before.url.endswith(f":{port}")
    joined(data, served, practice=f"http://127.0.0.1:{port}")
    with agent(data) as after:
        assert after.url == f"http://127.0.0.1:{port}"
