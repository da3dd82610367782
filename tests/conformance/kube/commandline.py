"""The two servers for command-line tools: each with a directory that holds a kubeconfig."""

import asyncio
import contextlib
import os
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import controlplane
from tests.conformance.kube import backends
from tests.conformance.kube.kit import Api

from runyard.clock import RealClock
from runyard.embedded.kube import kubeconfig
from runyard.http.client import HttpTransport
from runyard.http.server import listen
from runyard.http.tls import (
    client_context,
    issue_server,
    make_authority,
    server_context,
    write_pair,
)


class Server:
    """One server, and a directory with a kubeconfig for it."""

    def __init__(self, folder: Path, api: Api) -> None:
        self.folder = folder
        self.api = api

    async def run(self, program: Path, line: str) -> tuple[int, str]:
        """Runs a command with that kubeconfig in its environment; returns its output."""
        command = f"{shlex.quote(str(program))} --namespace={self.api.space} {line}"
        process = await asyncio.create_subprocess_shell(
            command,
            cwd=self.folder,
            env={"HOME": ".", "KUBECONFIG": "config", "PATH": os.environ["PATH"]},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode()


@contextlib.asynccontextmanager
async def embedded(folder: Path, *, space: str) -> AsyncIterator[Server]:
    core = backends.make_core()
    now = RealClock().now()
    authority = make_authority(now=now)
    files = write_pair(folder, "server", issue_server(authority, ["127.0.0.1"], now=now))
    listening = await listen(core.handle, tls=server_context(files))
    transport = HttpTransport(listening.url, tls=client_context(authority.certificate))
    text = kubeconfig.render(listening.url, token=backends.ADMIN, ca=authority.certificate)
    (folder / "config").touch(mode=0o600)
    (folder / "config").write_text(text, encoding="utf-8")
    try:
        yield Server(
            folder, Api(transport, space=space, token=backends.ADMIN, version=backends.NEWEST)
        )
    finally:
        await transport.close()
        await listening.close()
    assert not core.failures


@contextlib.asynccontextmanager
async def real(
    plane: controlplane.ControlPlane, folder: Path, *, space: str
) -> AsyncIterator[Server]:
    plane.write_kubeconfig(folder / "config")
    transport = HttpTransport(plane.url, tls=plane.tls())
    api = Api(transport, space=space, token=controlplane.ADMIN, version=plane.version)
    try:
        yield Server(folder, api)
    finally:
        await transport.close()
