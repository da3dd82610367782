"""Reads and checks files and addresses of `runyard server` before it starts.

Invariants:
- Every error is one line with the flag, the file, the cause and the fix. Exit code 2.
- No line contains content of a file.
"""

import base64
import binascii
import socket
import ssl
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from runyard.cli.options import BadSetting

if TYPE_CHECKING:  # each function loads what it needs: no command needs all of it
    from runyard.clock import Clock
    from runyard.http.client import HttpTransport

SEAL_BYTES = 32
_LIMIT = 1 << 20


def text_of(flag: str, path: Path) -> str:
    """The text of a file, without the trailing line break."""
    try:
        with path.open("rb") as file:
            content = file.read(_LIMIT + 1)
        text = content.decode().strip()
    except OSError as error:
        raise BadSetting(
            f"{flag}: {path} cannot be read ({error.strerror}). Check the path and its permissions"
        ) from None
    except UnicodeDecodeError:
        raise BadSetting(f"{flag}: {path} is not a text file. Give the right file") from None
    if not text or len(content) > _LIMIT:
        size = "empty" if not text else "too large"
        raise BadSetting(f"{flag}: {path} is {size}. Give the right file")
    return text


def one_of(flag: str, given: str, path: Path | None, *, why: str) -> str:
    """A setting given directly or by a file; exactly one of both."""
    if given and path is not None:
        raise BadSetting(f"{flag} and {flag}-file are both given. Keep one of them")
    if path is not None:
        return text_of(f"{flag}-file", path)
    if not given:
        raise BadSetting(f"{flag} is missing: {why}. Give {flag} or {flag}-file")
    return given


def database(flag: str, given: str, path: Path | None, *, why: str) -> str:
    """The URL of a database; an invalid one is not quoted."""
    from runyard.db.address import BadAddress, whole

    conninfo = one_of(flag, given, path, why=why)
    try:
        whole(conninfo)
    except BadAddress as error:
        raise BadSetting(f"{flag}: {error}") from None
    return conninfo


_HOW = "Make one with: head -c 32 /dev/urandom | base64 > FILE; use the same on every replica"


def seal_key(path: Path | None) -> bytes:
    """The key that encrypts stored JIT configurations."""
    if path is None:
        raise BadSetting(
            f"--seal-key-file is missing: it encrypts stored JIT configurations. {_HOW}"
        )
    return key_of("--seal-key-file", path)


def key_of(flag: str, path: Path) -> bytes:
    """The key in a file."""
    text = text_of(flag, path)
    try:
        key = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != SEAL_BYTES:
        raise BadSetting(f"{flag}: {path} does not contain {SEAL_BYTES} bytes in base64. {_HOW}")
    return key


def app_key(app_id: int, path: Path, *, clock: "Clock") -> str:
    """The GitHub App's private key, checked by signing with it."""
    from runyard.github.app import AppAuth

    text = text_of("--github-key-file", path)
    try:
        AppAuth(app_id=app_id, private_key=text, clock=clock)
    except (ValueError, TypeError):
        raise BadSetting(
            f"--github-key-file: {path} contains no RSA key in PEM without a pass phrase."
            " Download the App's private key again, or create a new one at GitHub"
        ) from None
    return text


def address(flag: str, value: str) -> tuple[str, int]:
    """HOST:PORT; the host may be in brackets."""
    host, colon, port = value.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise BadSetting(f"{flag}: {value!r} is not of the form HOST:PORT, as in 127.0.0.1:8080")
    return host, int(port)


def listening_socket(value: str) -> socket.socket:
    """The socket to serve on."""
    from runyard.http.sockets import bind

    host, port = address("--listen", value)
    try:
        return bind(host, port)
    except OSError as error:
        raise BadSetting(
            f"--listen: {value} cannot be bound ({error.strerror or error})."
            " Stop the program that uses it, or choose another address"
        ) from None


def http_url(flag: str, url: str) -> str:
    """An http(s) URL with a host and without credentials, without its last slash; `BadSetting` otherwise."""
    bad = BadSetting(f"{flag} is not a valid URL. Write it as https://HOST[/PATH]")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise bad from None
    if parts.scheme not in ("http", "https") or not host or port == 0:
        raise bad
    if parts.username is not None or parts.password is not None:
        raise BadSetting(f"{flag} contains a user name or a password. Remove it")
    return url.rstrip("/")


def authority(flag: str, path: Path) -> str:
    """The certificates in a file, of an authority that is to be trusted; `BadSetting` if there is none."""
    from runyard.http.tls import TlsError, client_context

    text = text_of(flag, path)
    try:
        client_context(text.encode())
    except TlsError:
        raise BadSetting(f"{flag}: {path} contains no certificate in PEM") from None
    return text


def transport_to(
    flag: str, url: str, *, ca: Path | None = None, ca_flag: str = "--github-ca-file"
) -> "HttpTransport":
    """A transport to a server; trusts only the given authority, if there is one."""
    from runyard.http.client import HttpTransport
    from runyard.http.tls import client_context

    parts = urlsplit(url)
    try:
        if parts.username is not None or parts.password is not None:
            raise BadSetting(f"{flag} contains a user name or a password. Remove it")
        tls = None if ca is None else client_context(authority(ca_flag, ca).encode())
        return HttpTransport(url, tls=tls)
    except ValueError:
        pass
    raise BadSetting(f"{flag} is not a valid URL. Write it as https://HOST[/PATH]")


def tls_context(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """The TLS context, if both files are given."""
    from runyard.http.tls import Files, TlsError, server_context

    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise BadSetting("--tls-cert-file and --tls-key-file belong together. Give both or none")
    try:
        return server_context(Files(certificate=certificate, key=key))
    except (OSError, ssl.SSLError, TlsError):
        raise BadSetting(
            f"--tls-cert-file, --tls-key-file: {certificate} and {key} cannot be used."
            " Both must be PEM and belong together, and the key must have no pass phrase"
        ) from None
