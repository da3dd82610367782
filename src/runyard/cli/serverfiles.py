"""What `runyard server` reads from files and addresses, checked before anything is begun.

Invariants:
- Whatever is wrong is one line: which flag, which file, why, and what to do. Exit code 2.
- No line holds anything of a file's content.
"""

import base64
import binascii
import socket
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import click

from runyard.clock import Clock
from runyard.db.address import BadAddress, whole
from runyard.github.app import AppAuth
from runyard.http.client import HttpTransport
from runyard.http.sockets import bind
from runyard.http.tls import Files, TlsError, client_context, server_context

SEAL_BYTES = 32
_LIMIT = 1 << 20


class BadSetting(click.ClickException):
    """A flag, a variable or a file that cannot be used; nothing was begun."""

    exit_code = 2


def text_of(flag: str, path: Path) -> str:
    """The text in a file, without the line end that editors leave."""
    try:
        with path.open("rb") as file:
            content = file.read(_LIMIT + 1)
        text = content.decode().strip()
    except OSError as error:
        raise BadSetting(
            f"{flag}: {path} cannot be read ({error.strerror}). Check the path and its permissions"
        ) from None
    except UnicodeDecodeError:
        raise BadSetting(f"{flag}: {path} is not text. Name the right file") from None
    if not text or len(content) > _LIMIT:
        size = "empty" if not text else "too large"
        raise BadSetting(f"{flag}: {path} is {size}. Name the right file")
    return text


def one_of(flag: str, given: str, path: Path | None, *, why: str) -> str:
    """A setting that may come from a file instead; exactly one of both."""
    if given and path is not None:
        raise BadSetting(f"{flag} and {flag}-file are both given. Keep one of them")
    if path is not None:
        return text_of(f"{flag}-file", path)
    if not given:
        raise BadSetting(f"{flag} is missing: {why}. Give {flag} or {flag}-file")
    return given


def database(flag: str, given: str, path: Path | None, *, why: str) -> str:
    """How to reach a database; what cannot be used is not repeated."""
    conninfo = one_of(flag, given, path, why=why)
    try:
        whole(conninfo)
    except BadAddress as error:
        raise BadSetting(f"{flag}: {error}") from None
    return conninfo


_HOW = "Make one with: head -c 32 /dev/urandom | base64 > FILE; every replica has the same"


def seal_key(path: Path | None) -> bytes:
    """The key that JITs at rest are sealed with."""
    if path is None:
        raise BadSetting(f"--seal-key-file is missing: JITs at rest are sealed with it. {_HOW}")
    return key_of("--seal-key-file", path)


def key_of(flag: str, path: Path) -> bytes:
    """The key in a file."""
    text = text_of(flag, path)
    try:
        key = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != SEAL_BYTES:
        raise BadSetting(f"{flag}: {path} does not hold {SEAL_BYTES} bytes in base64. {_HOW}")
    return key


def app_key(app_id: int, path: Path, *, clock: Clock) -> str:
    """The GitHub App's private key, proven to be one."""
    text = text_of("--github-key-file", path)
    try:
        AppAuth(app_id=app_id, private_key=text, clock=clock)
    except (ValueError, TypeError):
        raise BadSetting(
            f"--github-key-file: {path} holds no RSA key in PEM without a pass phrase."
            " Download the App's private key again, or make a new one at GitHub"
        ) from None
    return text


def address(flag: str, value: str) -> tuple[str, int]:
    """HOST:PORT; the host may be in brackets."""
    host, colon, port = value.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise BadSetting(f"{flag}: {value!r} is not of the form HOST:PORT, as in 127.0.0.1:8080")
    return host, int(port)


def bound(value: str) -> socket.socket:
    """The socket to serve on."""
    host, port = address("--listen", value)
    try:
        return bind(host, port)
    except OSError as error:
        raise BadSetting(
            f"--listen: {value} cannot be served on ({error.strerror or error})."
            " End what uses it, or choose another address"
        ) from None


def way_to(
    flag: str, url: str, *, ca: Path | None = None, ca_flag: str = "--github-ca-file"
) -> HttpTransport:
    """A way to a server, believing one authority if that is given."""
    parts = urlsplit(url)
    try:
        if parts.username is not None or parts.password is not None:
            raise BadSetting(f"{flag} holds a user name or a password. Write it without")
        tls = None if ca is None else client_context(text_of(ca_flag, ca).encode())
        return HttpTransport(url, tls=tls)
    except ValueError:
        pass
    except (ssl.SSLError, TlsError):
        raise BadSetting(f"{ca_flag}: {ca} holds no certificate in PEM") from None
    raise BadSetting(f"{flag} is not the address of a server. Write it as https://HOST[/PATH]")


def secrecy(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """TLS on the socket, if both files are given."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise BadSetting("--tls-cert-file and --tls-key-file belong together. Give both or none")
    try:
        return server_context(Files(certificate=certificate, key=key))
    except (OSError, ssl.SSLError, TlsError):
        raise BadSetting(
            f"--tls-cert-file, --tls-key-file: {certificate} and {key} cannot be used."
            " Both are PEM, they belong together, and the key has no pass phrase"
        ) from None
