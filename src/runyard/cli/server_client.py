"""Calls a dispatch server over its public REST API, for commands.

    @click.command()
    @with_server_client
    def show(client: ServerClient) -> None:
        found = client.read(Jobs, "GET", "/api/v1/jobs")

Without `--server` it calls the server of `runyard up` on this machine, on loopback. A token is read from a file,
never from an argument, which everybody on a machine can read. On loopback the file is by default that of the data
directory.

Invariants: a refusal becomes one line with its reason and its fix, and exit code 1; a server that cannot be reached,
or a command line that makes no sense, exit code 2. No secret is printed; sending a token unencrypted prints a warning.
"""

import functools
import getpass
import os
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import click
import msgspec

from runyard.cli.local_machine import (
    Unreachable,
    local_server,
    local_token,
    machine_root,
    runs_at,
)
from runyard.cli.options import DATA, Option, is_typed, with_options
from runyard.text import harmless
from runyard.wire.rest import ACTOR

if TYPE_CHECKING:  # loaded when a request is sent, not for --help
    from runyard.http.messages import Request, Response
    from runyard.http.problems import Problem

T = TypeVar("T")
SERVER, TOKEN_FILE, CA_FILE = "RUNYARD_SERVER", "RUNYARD_TOKEN_FILE", "RUNYARD_CA_FILE"
_WITHIN = 30.0
_OPTIONS: tuple[Option, ...] = (
    click.option(
        "--server",
        envvar=SERVER,
        show_envvar=True,
        help="URL of the dispatch server.  [default: that of 'runyard up' on this machine]",
    ),
    DATA,
    click.option(
        "--token-file",
        envvar=TOKEN_FILE,
        show_envvar=True,
        type=click.Path(dir_okay=False, path_type=Path),
        help="File with the dashboard's token.  [default for 'runyard up', and for a --server on loopback:"
        " dashboard.token of --data]",
    ),
    click.option(
        "--ca-file",
        envvar=CA_FILE,
        show_envvar=True,
        type=click.Path(dir_okay=False, path_type=Path),
        help="Certificate authority of the server (PEM), if it is a private one.",
    ),
)


class Refused(click.ClickException):
    """The server refused the request; the message has its reason and fix."""

    exit_code = 1

    def __init__(self, status: int, problem: "Problem") -> None:
        parts = (problem.error, problem.reason, problem.fix)
        super().__init__(harmless(". ".join(part.rstrip(".") for part in parts if part)))
        self.status = status


class ServerClient(msgspec.Struct, frozen=True, kw_only=True):
    """A server, and the token and name that we send to it."""

    server: str
    token: str = ""
    ca_file: Path | None = None
    within: float = _WITHIN  # seconds until a response is no longer waited for

    def read(
        self,
        kind: type[T],
        method: str,
        path: str,
        *,
        query: tuple[tuple[str, str], ...] = (),
        body: object = None,
    ) -> T:
        """Send a request; returns the response as a value of that type."""
        body_bytes = self.send(method, path, query=query, body=body)
        try:
            return msgspec.json.decode(body_bytes, type=kind)
        except msgspec.MsgspecError:
            raise Unreachable(
                f"the response of {self.server} is not from runyard. Check --server"
            ) from None

    def send(
        self,
        method: str,
        path: str,
        *,
        query: tuple[tuple[str, str], ...] = (),
        body: object = None,
    ) -> bytes:
        """Send a request; returns the body of a successful response, raises `Refused` or `Unreachable` otherwise."""
        import asyncio

        from runyard.http.messages import Request

        headers = [("accept", "application/json"), (ACTOR, _user_name())]
        if self.token:
            headers.append(("authorization", f"Bearer {self.token}"))
        raw = b""
        if body is not None:
            headers.append(("content-type", "application/json"))
            raw = msgspec.json.encode(body)
        request = Request(method=method, path=path, query=query, headers=tuple(headers), body=raw)
        answer = asyncio.run(self._send(request))
        if answer.status >= 300:
            raise Refused(answer.status, _problem(answer))
        return answer.body

    async def _send(self, request: "Request") -> "Response":
        from runyard.http.client import HttpTransport
        from runyard.http.errors import TransportError
        from runyard.http.messages import Response

        try:
            transport = HttpTransport(self.server, tls=self.tls_context(), pool=1)
        except (ValueError, OSError) as error:
            message = f"{error}. Write --server as http://HOST:PORT"
            raise Unreachable(harmless(message)) from error
        try:
            answer = await transport.send(request, timeout=self.within)
        except TransportError as error:
            message = (
                f"{self.server} does not respond: {error}. Check that it runs, and check --server"
            )
            raise Unreachable(harmless(message)) from error
        finally:
            await transport.close()
        if not isinstance(answer, Response):
            raise Unreachable(f"{self.server} responded with a stream. Check --server")
        return answer

    def tls_context(self) -> ssl.SSLContext | None:
        """The context that trusts `ca_file`; None for the system's authorities."""
        if self.ca_file is None:
            return None
        try:
            return ssl.create_default_context(cafile=str(self.ca_file))
        except OSError as error:  # also if the file contains no PEM
            why = error.strerror or "no certificate"
            message = f"--ca-file: {self.ca_file} cannot be used ({why}). Use the authority's certificate in PEM"
            raise Unreachable(harmless(message)) from None


def server_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that `find_server` takes: `server`, `data`, `token_file` and `ca_file`."""
    return with_options(_OPTIONS)(command)


def with_server_client(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of the server to a command; it gets a `ServerClient` as `client`."""

    @server_options
    @functools.wraps(command)
    def with_client(
        *args: Any,
        server: str | None,
        data: Path | None,
        token_file: Path | None,
        ca_file: Path | None,
        **more: Any,
    ) -> Any:
        client = find_server(server, data=data, token_file=token_file, ca_file=ca_file)
        return command(*args, client=client, **more)

    return with_client


def find_server(
    server: str | None, *, data: Path | None, token_file: Path | None, ca_file: Path | None
) -> ServerClient:
    """The server of these options, or `Unreachable`; called in a command that has them."""
    root = machine_root(data)
    if server and is_typed("data") and not is_typed("server"):
        server = None  # the machine on the command line, not that of the environment
    url = server or local_server(root)
    token = _token(token_file)
    if token_file is None and _is_local(url) and (is_typed("server") or runs_at(root, url)):
        token = local_token(root)
    client = ServerClient(server=url, token=token, ca_file=ca_file)
    if client.token and _is_unencrypted(client.server):
        message = f"runyard: the token is sent to {client.server} unencrypted. Use https"
        click.echo(harmless(message), err=True)
    return client


def _is_unencrypted(server: str) -> bool:
    """Whether a request to this server is sent unencrypted over a network."""
    return server.lower().startswith("http:") and not _is_local(server)


def _is_local(server: str) -> bool:
    """Whether this is a server on loopback."""
    from runyard.http.addresses import is_loopback

    try:
        return is_loopback(urlsplit(server).hostname or "")
    except ValueError:
        return False  # not a URL at all; the request reports that


def _user_name() -> str:
    """The user's name for the audit trail; the server cannot verify it."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):
        name = str(os.getuid())
    user = f"{name}@{socket.gethostname()}"
    return "".join(letter for letter in user if " " <= letter <= "~")[:100]


def _token(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        text = path.read_text("utf-8").strip()
    except (OSError, UnicodeError) as error:
        raise click.UsageError(f"the token cannot be read: {error}") from error
    if not text or not text.isprintable():
        raise click.UsageError(f"{path} contains no token")
    return text


def _problem(answer: "Response") -> "Problem":
    from runyard.http.problems import Problem

    try:
        return msgspec.json.decode(answer.body, type=Problem)
    except msgspec.MsgspecError:
        return Problem(error=f"the server responded with {answer.status}")
