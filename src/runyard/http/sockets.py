"""Configures sockets to detect a vanished peer, and to send nothing after their caller gave up.

A watch or a long poll may be silent for minutes, and a machine that lost power does not close its connections. TCP
keep-alive detects it: after 30 s of silence three probes, 10 s apart, then the connection fails. Code that has no
pending read does not notice; it calls `is_open`.

The kernel sends written bytes whenever the peer can take them: minutes after a partition began, after the process
closed the socket, and while it is stopped. `limit_sending` ends that with the request's own timeout.

The kernel takes up to 4 MB at once and then nothing until a third of them is sent, so a server cannot see that a slow
client reads. `limit_unsent` makes these steps small.
"""

import contextlib
import socket
import struct
import sys

# What SO_LINGER does with unsent bytes when the socket is closed.
_DISCARD, _FLUSH = struct.pack("ii", 1, 0), struct.pack("ii", 0, 0)
_IDLE = 30
_INTERVAL = 10
_PROBES = 3
_UNSENT = 128 << 10  # bytes

# The option for the idle time before the first probe has two names.
_IDLE_OPTION = "TCP_KEEPALIVE" if sys.platform == "darwin" else "TCP_KEEPIDLE"

# Socket option whose first byte is the state of a connection, and the value of "established".
_STATE, _OPEN = (0x106, 4) if sys.platform == "darwin" else (11, 1)

Address = tuple[int, int, int, str, tuple[object, ...]]  # as `getaddrinfo` returns it


def enable_keepalive(sock: socket.socket) -> None:
    """Turn on TCP keep-alive; accepted sockets inherit it from the listening one."""
    if sock.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        (_IDLE_OPTION, _IDLE),
        ("TCP_KEEPINTVL", _INTERVAL),
        ("TCP_KEEPCNT", _PROBES),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def limit_unsent(sock: socket.socket) -> None:
    """Let the kernel take few bytes that it cannot send yet; the window for bytes on their way stays as large."""
    option = getattr(socket, "TCP_NOTSENT_LOWAT", None)
    if option is not None and sock.family in {socket.AF_INET, socket.AF_INET6}:
        with contextlib.suppress(OSError):  # closed meanwhile
            sock.setsockopt(socket.IPPROTO_TCP, option, _UNSENT)


def limit_sending(sock: socket.socket, seconds: float) -> None:
    """Discard bytes that the peer has not acknowledged when the socket is closed, or after `seconds` (Linux only).

    The close sends a reset. The second limit holds without this process: it may be stopped, or killed.
    """
    with contextlib.suppress(OSError):  # closed meanwhile: the write raises the error
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DISCARD)
        option = getattr(socket, "TCP_USER_TIMEOUT", None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, max(1, int(seconds * 1000)))


def unlimit_closing(sock: socket.socket) -> None:
    """Let a close be an orderly one again."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _FLUSH)


def is_open(sock: socket.socket) -> bool:
    """Whether neither side has ended the connection; works without a pending read."""
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
    enable_keepalive(sock)
    sock.setblocking(False)
    return sock
