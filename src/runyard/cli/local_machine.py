"""Finds the machine of `runyard up` in its data directory: the address of its server, and the token for it.

Invariant: unless the address is on the command line, the token is sent to it only while the machine runs there. The
port may belong to any program afterwards, also to a job that outlived the machine.
"""

import os
import shlex
from pathlib import Path

import click


class Unreachable(click.ClickException):
    """The server cannot be reached."""

    exit_code = 2


def machine_root(data: Path | None) -> Path:
    """The data directory: the given one, that of the environment, or the default."""
    from runyard.embedded.up.layout import default_root

    given = data or os.environ.get("RUNYARD_DATA")
    return (Path(given) if given else default_root(os.environ)).absolute()


def local_server(root: Path) -> str:
    """The address of the server of the machine that runs with this directory."""
    from runyard.embedded.up.layout import BadDirectory, Layout, read_json

    try:
        ports = read_json(Layout(root).ports)
    except BadDirectory as error:
        raise Unreachable(str(error)) from error
    if not isinstance(ports, dict) or not isinstance(ports.get("server"), int):
        start = f"runyard up --data {shlex.quote(str(root))}"
        raise Unreachable(
            f"'runyard up' never ran in {root}. Start it ({start}), or give --data DIR or --server URL"
        )
    require_running(root, or_else="give --server URL")
    return f"http://127.0.0.1:{ports['server']}"


def require_running(root: Path, *, or_else: str) -> None:
    """Raise `Unreachable`, with the command that starts it, unless a machine runs with this directory."""
    from runyard.embedded.lock import is_owned

    if not is_owned(root):
        start = f"runyard up --data {shlex.quote(str(root))}"
        raise Unreachable(f"'runyard up' does not run in {root}. Start it ({start}), or {or_else}")


def runs_at(root: Path, url: str) -> bool:
    """Whether the machine of this directory runs, and this is the address of its server."""
    try:
        return local_server(root) == url.rstrip("/")
    except Unreachable:
        return False


def local_token(root: Path) -> str:
    """The token in this directory; empty if there is none."""
    from runyard.embedded.up.layout import BadDirectory, Layout
    from runyard.embedded.up.token_files import read_token

    try:
        return read_token(Layout(root).dashboard_token)
    except BadDirectory as error:
        if isinstance(error.__cause__, (FileNotFoundError, NotADirectoryError)):
            return ""
        raise Unreachable(f"{error}. Give --token-file, or another --data") from error
