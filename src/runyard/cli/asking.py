"""How a command speaks to a dispatch server: over its REST API, as anybody else could.

    @click.command()
    @asks_a_server
    def show(asked: Asked) -> None:
        found = asked.read(Jobs, "GET", "/api/v1/jobs")

Without `--server` the machine of `runyard up` is asked, at its loopback. A token is read from a file,
never from an argument, which everybody on a machine can read.

Invariants: a refusal becomes one line with its reason and its fix, and exit code 1; a server that cannot be reached,
or a command line that makes no sense, exit code 2. No secret is printed; one that is sent in plain text is warned of.
"""

import asyncio
import functools
import getpass
import os
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click
import msgspec

from runyard.cli.harmless import harmless
from runyard.embedded.up.layout import BadDirectory, Layout, default_root, read_json
from runyard.http.addresses import is_loopback
from runyard.http.client import HttpTransport
from runyard.http.errors import TransportError
from runyard.http.messages import Request, Response
from runyard.http.problems import Problem
from runyard.wire.people import ACTOR

T = TypeVar("T")
SERVER, TOKEN_FILE, CA_FILE = "RUNYARD_SERVER", "RUNYARD_TOKEN_FILE", "RUNYARD_CA_FILE"
_WITHIN = 30.0


class Refused(click.ClickException):
    """The server said no, and why."""

    exit_code = 1

    def __init__(self, status: int, told: Problem) -> None:
        parts = (told.error, told.reason, told.fix)
        super().__init__(harmless(". ".join(part.rstrip(".") for part in parts if part)))
        self.status = status


class Unreachable(click.ClickException):
    """There is no server to ask, or it does not answer."""

    exit_code = 2


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A server, and who we are to it."""

    server: str
    token: str = ""
    ca_file: Path | None = None

    def read(
        self,
        kind: type[T],
        method: str,
        path: str,
        *,
        query: tuple[tuple[str, str], ...] = (),
        body: object = None,
    ) -> T:
        """Ask; the answer as a value of that kind."""
        told = self.send(method, path, query=query, body=body)
        try:
            return msgspec.json.decode(told, type=kind)
        except msgspec.MsgspecError:
            raise Unreachable(
                f"{self.server} answers something that is not runyard's. Is --server right?"
            ) from None

    def send(
        self,
        method: str,
        path: str,
        *,
        query: tuple[tuple[str, str], ...] = (),
        body: object = None,
    ) -> bytes:
        """Ask; returns the body of a good answer, and raises `Refused` or `Unreachable` otherwise."""
        headers = [("accept", "application/json"), (ACTOR, _myself())]
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

    async def _send(self, request: Request) -> Response:
        try:
            transport = HttpTransport(self.server, tls=self._tls(), pool=1)
        except (ValueError, OSError) as error:
            told = f"{error}. Write --server as http://HOST:PORT"
            raise Unreachable(harmless(told)) from error
        try:
            answer = await transport.send(request, timeout=_WITHIN)
        except TransportError as error:
            told = f"{self.server} does not answer: {error}. Is it up, and is --server right?"
            raise Unreachable(harmless(told)) from error
        finally:
            await transport.close()
        if not isinstance(answer, Response):
            raise Unreachable(f"{self.server} answered with a stream")
        return answer

    def _tls(self) -> ssl.SSLContext | None:
        if self.ca_file is None:
            return None
        try:
            return ssl.create_default_context(cafile=str(self.ca_file))
        except OSError as error:  # no PEM in it is one too
            why = error.strerror or "no certificate"
            told = f"--ca-file: {self.ca_file} cannot be used ({why}). Name the authority's certificate in PEM"
            raise Unreachable(harmless(told)) from None


def asks_a_server(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say whom to ask; it gets an `Asked` as `asked`."""

    @click.option(
        "--server",
        envvar=SERVER,
        show_envvar=True,
        help="The dispatch server's address.  [default: the machine of 'runyard up']",
    )
    @click.option(
        "--token-file",
        envvar=TOKEN_FILE,
        show_envvar=True,
        type=click.Path(dir_okay=False, path_type=Path),
        help="A file with the dashboard's token, if the server has one; that of 'runyard up' has none on loopback.",
    )
    @click.option(
        "--ca-file",
        envvar=CA_FILE,
        show_envvar=True,
        type=click.Path(dir_okay=False, path_type=Path),
        help="The certificate authority of the server, if it is one of its own.",
    )
    @functools.wraps(command)
    def asking(
        *args: Any, server: str | None, token_file: Path | None, ca_file: Path | None, **more: Any
    ) -> Any:
        asked = Asked(server=server or _here(), token=_token(token_file), ca_file=ca_file)
        if asked.token and _open_to_all(asked.server):
            told = f"runyard: the token goes to {asked.server} in plain text, for everybody on the way. Use https"
            click.echo(harmless(told), err=True)
        return command(*args, asked=asked, **more)

    return asking


def _open_to_all(server: str) -> bool:
    """Whether what is sent there can be read on the way."""
    try:
        parts = urlsplit(server)
        return parts.scheme == "http" and not is_loopback(parts.hostname or "")
    except ValueError:
        return False  # it is no address at all, which is told when it is used


def _here() -> str:
    root = default_root(os.environ)
    try:
        ports = read_json(Layout(root.absolute()).ports)
    except BadDirectory as error:
        raise Unreachable(str(error)) from error
    if not isinstance(ports, dict) or not isinstance(ports.get("server"), int):
        raise Unreachable(f"no machine was ever up in {root}; say which server with --server URL")
    return f"http://127.0.0.1:{ports['server']}"


def _myself() -> str:
    """Who asks, for the audit trail; the server cannot check it."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):
        name = str(os.getuid())
    told = f"{name}@{socket.gethostname()}"
    return "".join(letter for letter in told if " " <= letter <= "~")[:100]


def _token(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        text = path.read_text("utf-8").strip()
    except (OSError, UnicodeError) as error:
        raise click.UsageError(f"the token cannot be read: {error}") from error
    if not text or not text.isprintable():
        raise click.UsageError(f"{path} holds no token")
    return text


def _problem(answer: Response) -> Problem:
    try:
        return msgspec.json.decode(answer.body, type=Problem)
    except msgspec.MsgspecError:
        return Problem(error=f"the server answered {answer.status}")
