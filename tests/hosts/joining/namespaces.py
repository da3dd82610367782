"""A main machine and hosts in network namespaces of their own, joined by a bridge; each link can be cut.

    main ── bridge 10.99.N.1 ── host 1 at 10.99.N.11
                             └─ host 2 at 10.99.N.12 …

A second program beside each host passes connections to the practice GitHub over a Unix socket, as a host's own way to
github.com would: a host that lost the main machine has not lost GitHub.
"""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.conftest import Absent
from tests.embedded.up.upsupport import Up, environment, processes_of

NET = f"10.99.{os.getpid() % 250}"
MAIN = f"{NET}.1"
# Passes connections on: from a port or a socket to another one.
PIPE = """
import asyncio, sys
async def copy(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
async def main(listen, to):
    async def passed(reader, writer):
        other = (await asyncio.open_unix_connection(to) if to.startswith("/")
                 else await asyncio.open_connection("127.0.0.1", int(to)))
        await asyncio.gather(copy(reader, other[1]), copy(other[0], writer))
    server = (await asyncio.start_unix_server(passed, listen) if listen.startswith("/")
              else await asyncio.start_server(passed, "127.0.0.1", int(listen)))
    print("ready", flush=True)
    await server.serve_forever()
asyncio.run(main(*sys.argv[1:]))
"""


def ip(inside: tuple[str, ...], *arguments: str) -> None:
    done = subprocess.run([*inside, "ip", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {shlex.join(arguments)}: {done.stderr}"


class Space:
    """A network namespace, which lasts as long as a process in it: it has no name that others could remove."""

    def __init__(self) -> None:
        self._holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo ready; exec sleep infinity"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.pid = self._holder.pid
        self.enter = ("nsenter", f"--net=/proc/{self.pid}/ns/net")
        assert self._holder.stdout is not None
        ready = self._holder.stdout.readline()
        if not ready:
            self.close()
            raise OSError("unshare --net was refused")

    def close(self) -> None:
        self._holder.kill()
        self._holder.communicate()


class Network:
    """The namespaces of one test."""

    def __init__(self, hosts: int) -> None:
        self._spaces: list[Space] = []
        self.main = self._space()
        self.hosts = tuple(self._space() for _ in range(hosts))

    def _space(self) -> Space:
        try:
            made = Space()
        except OSError:
            self.remove()
            raise
        self._spaces.append(made)
        return made

    def build(self) -> None:
        main = self.main.enter
        ip(main, "link", "set", "lo", "up")
        ip(main, "link", "add", "name", "bridge0", "type", "bridge")
        ip(main, "addr", "add", f"{MAIN}/24", "dev", "bridge0")
        ip(main, "link", "set", "bridge0", "up")
        for number, host in enumerate(self.hosts):
            port, other = f"p{number}", str(host.pid)
            link = ("link", "add", port, "type", "veth", "peer", "name", "up0", "netns", other)
            ip(main, *link)
            ip(main, "link", "set", port, "master", "bridge0", "up")
            ip(host.enter, "link", "set", "lo", "up")
            ip(host.enter, "addr", "add", f"{NET}.{11 + number}/24", "dev", "up0")
            ip(host.enter, "link", "set", "up0", "up")
            ip(host.enter, "route", "add", "default", "via", MAIN)

    def cut(self, number: int, *, back: bool = False) -> None:
        """Cuts the link of a host, or brings it back."""
        ip(self.main.enter, "link", "set", f"p{number}", "up" if back else "down")

    def remove(self) -> None:
        for each in self._spaces:
            each.close()


@contextlib.contextmanager
def network(hosts: int, absent: Absent) -> Iterator[Network]:
    """Builds the namespaces; they need root, `ip`, `unshare` and `nsenter`."""
    how = "root, iproute2 and util-linux"
    try:
        made = Network(hosts)
    except OSError as error:
        absent("network namespaces", f"{how}: {error}")
    try:
        try:
            made.build()
        except (OSError, AssertionError) as error:
            absent("network namespaces", f"{how}: {error}")
        yield made
    finally:
        made.remove()


class Machine:
    """One machine in a namespace, with the commands of runyard."""

    def __init__(self, space: Space, data: Path) -> None:
        self.space = space
        self.data = data
        self._started: list[subprocess.Popen[str]] = []
        self._log = (data.parent / f"{data.name}.log").open("w")

    @property
    def log(self) -> str:
        return Path(self._log.name).read_text()

    def _argv(self, *command: str) -> list[str]:
        return [*self.space.enter, sys.executable, *command]

    def run(self, *arguments: str, stdin: str = "") -> tuple[int, str, str]:
        """Runs a command of runyard to its end."""
        done = subprocess.run(
            self._argv("-m", "runyard.cli.main", *arguments),
            input=stdin,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def read(self, *arguments: str) -> Any:
        """The JSON that a command prints."""
        code, out, errors = self.run(*arguments, "--json")
        assert code == 0, errors
        return json.loads(out)

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Starts a program that stays."""
        process = subprocess.Popen(
            self._argv(*command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment(),
            start_new_session=True,
            text=True,
        )
        self._started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline(), self.log
        return process

    def agent(self, *more: str) -> subprocess.Popen[str]:
        return self.start(
            *("-m", "runyard.cli.main", "agent", "--joined", "--data", str(self.data)),
            *("--listen", "127.0.0.1:0"),
            *more,
        )

    def pipe(self, listen: str, to: str) -> None:
        self.start("-c", PIPE, listen, to)

    def close(self) -> None:
        for process in self._started:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        self._log.close()
        for each in processes_of(self.data):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGKILL)


def up_in(space: Space, data: Path, *arguments: str) -> Up:
    """`runyard up` in a namespace."""
    return Up(data, *arguments, prefix=space.enter)
