"""Sockets that notice a peer which vanished without a word.

A watch or a long poll may be silent for minutes, and a machine that lost its power sends no goodbye. TCP
keep-alive asks after it: 30 s of silence, then three questions 10 s apart, then the connection is gone. Who reads
nothing from a connection is not told; `is_open` is for them.
"""

import socket
import sys

_SILENCE = 30
_BETWEEN = 10
_QUESTIONS = 3

# The same number has two names: the silence before the first question.
_FIRST = "TCP_KEEPALIVE" if sys.platform == "darwin" else "TCP_KEEPIDLE"

# Where the system tells the state of a connection, in the first byte, and which one of them is "open".
_STATE, _OPEN = (0x106, 4) if sys.platform == "darwin" else (11, 1)

Address = tuple[int, int, int, str, tuple[object, ...]]  # as `getaddrinfo` tells it


def notice_vanished_peers(sock: socket.socket) -> None:
    """Turn keep-alive on; accepted sockets inherit it from the listening one."""
    if sock.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        (_FIRST, _SILENCE),
        ("TCP_KEEPINTVL", _BETWEEN),
        ("TCP_KEEPCNT", _QUESTIONS),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def is_open(sock: socket.socket) -> bool:
    """Whether neither side has ended the connection; nobody needs to be reading to learn of it."""
    try:
        return sock.getsockopt(socket.IPPROTO_TCP, _STATE, 1)[0] == _OPEN
    except OSError:  # no connection of that kind, or none any more
        return sock.fileno() != -1


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens at `host`, an address or a name; port 0 is any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=512)


def dial(address: Address) -> socket.socket:
    """A socket for a connection to `address`, not yet connected."""
    family, kind, protocol, *_ = address
    sock = socket.socket(family, kind, protocol)
    notice_vanished_peers(sock)
    sock.setblocking(False)
    return sock
