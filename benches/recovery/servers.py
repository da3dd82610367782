"""Starts, kills and restarts real server processes, with the effect to die at; finds one that is up."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
from benches.recovery import points as p

from runyard.http.client import HttpTransport
from runyard.http.errors import NotSent, TransportError
from runyard.http.messages import Request, Response, Stream

ROOT = Path(__file__).parents[2]
_STARTS_WITHIN = 180.0
_LOOK = 0.02


class Server:
    """One replica: its socket, its command, and its current process."""

    def __init__(
        self, name: str, folder: Path, flags: tuple[str, ...], *, deadlines: dict[str, float]
    ) -> None:
        self.name = name
        self.port = _free_port()
        self.log = folder / f"{name}.log"
        self.journal = folder / f"{name}.points"
        self.journal.touch()
        self._order = folder / f"{name}.order"
        self._order.touch()
        self._flags = flags
        self._deadlines = deadlines
        self._process: subprocess.Popen[bytes] | None = None
        self.transport = HttpTransport(f"http://127.0.0.1:{self.port}", pool=2000)

    def start(self) -> None:
        """Start the process; an earlier order applies from its first effect."""
        self._let_go()
        command = [sys.executable, "-m", "benches.recovery.killable_server", "server", *self._flags]
        command += ["--name", self.name, "--listen", f"127.0.0.1:{self.port}"]
        command += ["--github-intake", "webhook"]
        env = os.environ | {
            "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))),
            "RUNYARD_DATA": str(self.log.with_suffix(".data")),
            p.JOURNAL: str(self.journal),
            p.ORDER: str(self._order),
            p.DEADLINES: msgspec.json.encode(self._deadlines).decode(),
        }
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, env=env, stdin=subprocess.PIPE, stdout=log, stderr=log
            )

    async def ready(self) -> None:
        """Wait until it answers; its log is in the error if it never does."""
        try:
            async with asyncio.timeout(_STARTS_WITHIN):
                while self.alive:
                    try:
                        answer = await self.transport.send(
                            Request(method="GET", path="/healthz"), timeout=5.0
                        )
                    except TransportError:
                        await asyncio.sleep(_LOOK)
                        continue
                    if answer.status < 500:
                        return
        except TimeoutError:
            pass
        raise RuntimeError(f"{self.name} did not start:\n{self.tail()}")

    def tail(self, lines: int = 30) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def order(self, point: p.Point | None) -> None:
        """Order the process to be killed at that point."""
        fresh = self._order.with_suffix(".fresh")
        fresh.write_bytes(b"" if point is None else msgspec.json.encode(point))
        fresh.replace(self._order)

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def dead(self) -> int:
        """Wait until the process has ended; returns its exit status."""
        while self.alive:  # noqa: ASYNC110 nobody rings when a process ends
            await asyncio.sleep(_LOOK / 4)
        assert self._process is not None
        return self._process.returncode

    def effects(self) -> list[str]:
        """Return every effect of all processes so far."""
        return self.journal.read_text().splitlines()

    async def end(self) -> None:
        """End the process with SIGTERM."""
        if self.alive:
            self.signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(15.0):
                    await self.dead()
            except TimeoutError:
                self.signal(signal.SIGKILL)
                await self.dead()
        self._let_go()
        await self.transport.close()

    def _let_go(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()


class LoadBalancer:
    """A transport to any replica that listens. A refused connection is retried; a request is never sent twice."""

    def __init__(self, servers: list[Server], *, patience: float, first: int = 0) -> None:
        self._servers = servers
        self._patience = patience
        self._next = first

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience
        while True:
            for _ in self._servers:
                self._next = (self._next + 1) % len(self._servers)
                try:
                    return await self._servers[self._next].transport.send(request, timeout=timeout)
                except NotSent as error:
                    refused = error
            if loop.time() > until:
                raise refused
            await asyncio.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
