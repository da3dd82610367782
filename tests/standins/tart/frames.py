"""The messages between `tart exec` and the guest's agent, over `control.sock`.

The real one speaks gRPC; programs that drive tart never see it. A message is one letter, a length and that many bytes:

    to the agent    H what to run (JSON)   I input   E end of input   R new size of the terminal (JSON)
    to the client   O stdout   X stderr   C exit code   F the agent's error
"""

import os
import socket
import struct
from collections.abc import Iterator

HEAD = struct.Struct("!cI")
LIMIT = 64 << 10


def frame(kind: bytes, payload: bytes = b"") -> bytes:
    """One message."""
    return HEAD.pack(kind, len(payload)) + payload


class Reader:
    """Cuts a stream of bytes into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The messages that are complete now."""
        self._buffer += data
        while len(self._buffer) >= HEAD.size:
            kind, length = HEAD.unpack_from(self._buffer)
            if len(self._buffer) < HEAD.size + length:
                return
            payload = bytes(self._buffer[HEAD.size : HEAD.size + length])
            del self._buffer[: HEAD.size + length]
            yield kind, payload


def connect(directory: str) -> socket.socket:
    """Connect to the socket of a VM; by its short name, for a path may be longer than a socket's."""
    os.chdir(directory)
    link = socket.socket(socket.AF_UNIX)
    link.connect("control.sock")
    return link
