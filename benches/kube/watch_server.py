"""Serves an empty list and then a watch with prepared events in a thread, as fast as the client reads."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from benches.kube.pods import stored

_PODS = 2_000  # Pods that change repeatedly
_LIST = b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}'


def lines(events: int) -> Iterator[bytes]:
    """Yield creations and then changes; each event has its own version."""
    for number in range(events):
        obj = stored(number % _PODS, version=number + 2)
        kind = "ADDED" if number < _PODS else "MODIFIED"
        yield msgspec.json.encode({"type": kind, "object": obj}) + b"\n"


@contextmanager
def serve_watch(body: bytes) -> Iterator[str]:
    """Serve one client; yields the address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_serve, args=(listener, body), daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def _serve(listener: socket.socket, body: bytes) -> None:
    link, _ = listener.accept()
    with link:
        _read_head(link)
        link.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(_LIST), _LIST))
        _read_head(link)
        link.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        try:
            for at in range(0, len(body), 4096):  # about one event in each chunk, as a server does
                part = body[at : at + 4096]
                link.sendall(b"%x\r\n%s\r\n" % (len(part), part))
            link.recv(1)  # the client has closed the connection
        except OSError:
            return


def _read_head(link: socket.socket) -> None:
    text = b""
    while b"\r\n\r\n" not in text:
        text += link.recv(65536)
