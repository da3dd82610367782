"""How commands speak to a server: over its REST, with the dashboard's token, never by SQL.

Where it is: `--server`, or RUNYARD_SERVER, or the machine that `runyard up` runs here. Exit codes of every command that
uses this: 0 done, 1 the server said no (one line with cause and fix), 2 it could not be asked.
"""

import asyncio
import getpass
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from runyard.cli.harmless import harmless
from runyard.cli.serverfiles import BadSetting, text_of, way_to
from runyard.embedded.up.layout import BadDirectory, Layout, default_root, read_json
from runyard.http.errors import TransportError
from runyard.http.messages import Pairs, Request, Response, Stream
from runyard.http.problems import Problem
from runyard.wire.people import ACTOR

T = TypeVar("T")
TIMEOUT = 30.0


class Refused(click.ClickException):
    """The server said no."""

    exit_code = 1


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server is, and what opens it."""

    url: str
    token: str = ""
    ca: Path | None = None

    def __repr__(self) -> str:
        return f"Server({self.url})"

    def ask(
        self, kind: type[T], method: str, path: str, *, query: Pairs = (), body: object = None
    ) -> T:
        """One request, and its answer as a value of that kind."""
        answer = asyncio.run(self._send(method, path, query=query, body=body))
        if answer.status >= 400:
            raise Refused(_words(answer))
        try:
            return msgspec.json.decode(answer.body, type=kind)
        except msgspec.MsgspecError:
            raise BadSetting(
                f"--server: {self.url} answers something that is not runyard's. Correct the address"
            ) from None

    async def _send(self, method: str, path: str, *, query: Pairs, body: object) -> Response:
        headers: Pairs = ((ACTOR, _myself()),)
        if self.token:
            headers = (*headers, ("authorization", f"Bearer {self.token}"))
        if body is not None:
            headers = (*headers, ("content-type", "application/json"))
        sent = b"" if body is None else msgspec.json.encode(body)
        request = Request(method=method, path=path, query=query, headers=headers, body=sent)
        way = way_to("--server", self.url, ca=self.ca, ca_flag="--server-ca-file")
        try:
            answer = await way.send(request, timeout=TIMEOUT)
        except TransportError as error:
            raise BadSetting(
                f"the server at {self.url} does not answer ({harmless(str(error))})."
                " Start it, or name another one with --server"
            ) from None
        finally:
            await way.close()
        if isinstance(answer, Stream):
            raise BadSetting(f"--server: {self.url} answers with a stream. Correct the address")
        return answer


def with_server(command: Callable[..., Any]) -> Callable[..., Any]:
    """The flags of a command that speaks to a server; it gets `server`."""

    def chosen(ctx: click.Context, _: click.Parameter, url: str) -> Server:
        token, ca = ctx.params.pop("token_file", None), ctx.params.pop("server_ca_file", None)
        return Server(
            url=(url or _here()).rstrip("/"),
            token=text_of("--token-file", token) if token else "",
            ca=ca,
        )

    options = (
        click.option(
            "--token-file",
            envvar="RUNYARD_TOKEN_FILE",
            type=click.Path(dir_okay=False, path_type=Path),
            is_eager=True,
            help="File with the dashboard's token; not needed on loopback.",
        ),
        click.option(
            "--server-ca-file",
            envvar="RUNYARD_SERVER_CA_FILE",
            type=click.Path(dir_okay=False, path_type=Path),
            is_eager=True,
            help="The only authority to believe for --server (PEM).",
        ),
        click.option(
            "--server",
            envvar="RUNYARD_SERVER",
            default="",
            callback=chosen,
            help="The server's address.  [default: that of 'runyard up' on this machine]",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _here() -> str:
    """The server of the machine that is up here."""
    try:
        urls = read_json(Layout(default_root(os.environ)).urls)
    except BadDirectory:  # a damaged file is as good as none here
        urls = None
    found = urls.get("server") if isinstance(urls, dict) else None
    if not isinstance(found, str):
        raise BadSetting(
            "--server is missing, and no machine is up here. Give the server's address, as in"
            " --server http://127.0.0.1:8080"
        )
    return found


def _myself() -> str:
    """Who asks, for the audit trail; the server cannot check it."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):
        name = str(os.getuid())
    told = f"{name}@{socket.gethostname()}"
    return "".join(letter for letter in told if " " <= letter <= "~")[:100]


def _words(answer: Response) -> str:
    try:
        said = msgspec.json.decode(answer.body, type=Problem)
    except msgspec.MsgspecError:
        return f"the server answers {answer.status}"
    words = said.error + (f": {said.reason}" if said.reason else "")
    return harmless(words + (f". {said.fix[0].upper()}{said.fix[1:]}" if said.fix else ""))
