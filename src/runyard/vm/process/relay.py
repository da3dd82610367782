"""Passes single HTTP requests from a guest with a network of its own to fixed servers, and nothing else.

A guest cannot reach this machine's servers. What its poller and its runner need is a Unix socket each, mounted into
the sandbox; behind it a process of the VM passes on the requests that are listed for that socket.

Invariants:
- The server is fixed; method and path must be listed exactly. The request is written anew from what was checked, with
  the headers in `_HEADERS` and a body of a known length, and the connection carries no second one.
- Credentials are the guest's own: nothing is added, stored or logged.
- A guest that gives up its request ends it at the server, too: the server must not hand a job to a poller that is gone.

Imported by the shim, so it imports nothing but the standard library.
"""

import contextlib
import os
import re
import select
import socket
import threading
from collections.abc import Callable
from typing import Any

_HEADERS = ("authorization", "content-type", "prefer", "user-agent", "accept")
_LINE = re.compile(
    rb"(?P<method>[A-Z]{1,10}) (?P<path>/[!-\"$->@-~]*)(?:\?(?P<query>[!-\"$-~]*))? HTTP/1\.[01]"
)
_LARGEST_HEAD, _LARGEST_BODY = 16 << 10, 4 << 20
_PIECE = 65536
_TIMEOUT = 30.0  # for a guest's request to arrive
_ANSWER_TIMEOUT = 120.0  # for the server's response; the longest poll is shorter
_AT_ONCE = 16  # connections of one socket
_BUNDLES = (  # of certificates that the system trusts: Debian and others, Fedora and others
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
)
_REASONS = {
    400: "Bad Request",
    403: "Forbidden",
    413: "Content Too Large",
    502: "Bad Gateway",
}


class Refused(Exception):
    """A request that is not passed on, with the status of the response."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def checked(head: bytes, relay: dict[str, Any]) -> tuple[bytes, int]:
    """The head to send to the server and the length of the body; raises `Refused`."""
    first, _, rest = head.partition(b"\r\n")
    line = _LINE.fullmatch(first)
    if line is None:
        raise Refused(400)
    method, path = line["method"].decode(), line["path"].decode()
    if [method, path] not in relay["allow"]:
        raise Refused(403)
    headers = _headers(rest)
    length = headers.get("content-length", "0")
    if "transfer-encoding" in headers or not length.isascii() or not length.isdigit():
        raise Refused(400)
    if len(length) > 9 or int(length) > _LARGEST_BODY:
        raise Refused(413)
    query = "" if line["query"] is None else f"?{line['query'].decode()}"
    lines = [f"{method} {path}{query} HTTP/1.1", f"Host: {relay['authority']}"]
    lines += [f"{name}: {headers[name]}" for name in _HEADERS if name in headers]
    lines += [f"Content-Length: {int(length)}", "Connection: close", "", ""]
    return "\r\n".join(lines).encode("latin-1"), int(length)


def _headers(text: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in text.decode("latin-1").split("\r\n"):
        name, colon, value = line.partition(":")
        name = name.lower()
        if not colon or not name.isascii() or name.strip() != name or name in found:
            raise Refused(400)
        if any(ord(letter) < 32 for letter in value.replace("\t", " ")):
            raise Refused(400)
        found[name] = value.strip()
    return found


def pass_on(client: socket.socket, relay: dict[str, Any]) -> None:
    """Reads one request, sends it to the server, and copies the response until one side ends."""
    client.settimeout(_TIMEOUT)
    try:
        head, body = _read_head(client)
        request, length = checked(head, relay)
        if len(body) > length:
            raise Refused(400)
        while len(body) < length:
            piece = client.recv(min(_PIECE, length - len(body)))
            if not piece:
                return
            body += piece
        server = connect(relay)
    except Refused as refused:
        _respond(client, refused.status)
        return
    except OSError:
        _respond(client, 502)
        return
    with server, contextlib.suppress(OSError):  # from here on, an error ends the connection
        server.sendall(request + body)
        _copy(server, client)


def _read_head(client: socket.socket) -> tuple[bytes, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = client.recv(_PIECE)
        if not piece or len(data) > _LARGEST_HEAD:
            raise Refused(400)
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    return head, body


def connect(relay: dict[str, Any]) -> socket.socket:
    """A connection to the server, over TLS if its URL says so."""
    server = socket.create_connection((relay["host"], relay["port"]), timeout=_TIMEOUT)
    if not relay["tls"]:
        return server
    context = relay.get("context") or trusting()
    try:
        secured: socket.socket = context.wrap_socket(server, server_hostname=relay["host"])
    except BaseException:
        server.close()
        raise
    return secured


def trusting() -> Any:
    """The TLS context that verifies a server's name and certificate as programs of this machine do."""
    import ssl  # noqa: PLC0415 large, and needed for TLS only

    context = ssl.create_default_context()
    if ssl.get_default_verify_paths().cafile is None:  # a Python from elsewhere looks elsewhere
        for path in filter(os.path.exists, _BUNDLES):
            context.load_verify_locations(path)
            break
    return context


def _copy(server: socket.socket, client: socket.socket) -> None:
    """Copies the response; returns early when the guest has closed its connection or sends more."""
    held = getattr(
        server, "pending", int
    )  # bytes that TLS has read already; `select` does not see them
    while True:
        ready = select.select([server, client], [], [], 0 if held() else _ANSWER_TIMEOUT)[0]
        if client in ready or not (ready or held()):
            return
        piece = server.recv(_PIECE)
        if not piece:
            return
        client.sendall(piece)


def _respond(client: socket.socket, status: int) -> None:
    text = f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with contextlib.suppress(OSError):
        client.sendall(text.encode())


def listen(relay: dict[str, Any]) -> socket.socket:
    """The Unix socket of one relay, for its user alone. The directory is opened first, because its path may be long."""
    folder = os.open(relay["folder"], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        path = f"/proc/self/fd/{folder}/{relay['name']}"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108 pathlib is slow to import
        found = socket.socket(socket.AF_UNIX)
        found.bind(path)
        os.chmod(path, 0o600)  # noqa: PTH101 as above
        if relay["user"] >= 0:
            os.chown(path, relay["user"], relay["user"])
        found.listen(_AT_ONCE)
    finally:
        os.close(folder)
    return found


def serve(
    relays: list[tuple[socket.socket, dict[str, Any]]],
    alive: int,
    user: int,
    secured: Callable[[], None],
) -> None:
    """Serves the sockets as this user (-1: as ours) until the other end of `alive` is closed."""
    for _, relay in relays:
        if relay["tls"]:
            relay["context"] = trusting()  # while we may still read its files
    "x".encode("idna")  # names are encoded with it; the same
    if user >= 0:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    secured()
    for listener, relay in relays:
        threading.Thread(target=_accept, args=(listener, relay), daemon=True).start()
    while os.read(alive, 1):
        pass


def _accept(listener: socket.socket, relay: dict[str, Any]) -> None:
    free = threading.BoundedSemaphore(_AT_ONCE)

    def handle(client: socket.socket) -> None:
        try:
            with client:
                pass_on(client, relay)
        finally:
            free.release()

    while True:
        free.acquire()
        client, _ = listener.accept()
        try:
            threading.Thread(target=handle, args=(client,), daemon=True).start()
        except RuntimeError:  # the VM's limit of processes is reached: the guest asks again
            client.close()
            free.release()
