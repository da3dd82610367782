"""A TCP proxy to the database that can be closed and opened, and that drops connections at random."""

import random
import select
import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo


class TcpProxy:
    """`with TcpProxy(conninfo) as proxy:` and connect to `proxy.conninfo`."""

    def __init__(
        self, conninfo: str, *, rng: random.Random | None = None, every: int = 0, most: int = 0
    ) -> None:
        self._conninfo = conninfo
        self._rng = rng
        self._every = every  # largest number of bytes after which a connection is dropped
        self._most = most  # largest number of connections to drop
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self._links: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._open = True
        self.dropped = 0
        self.refused = 0

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        self._listener.close()

    @property
    def conninfo(self) -> str:
        port = self._listener.getsockname()[1]
        return make_conninfo(self._conninfo, host="127.0.0.1", port=port)

    def close(self) -> None:
        """Refuse new connections and close the existing ones."""
        self._open = False
        with self._lock:
            for link in self._links:
                with suppress(OSError):
                    link.shutdown(socket.SHUT_RDWR)

    def open(self) -> None:
        self._open = True

    def _start(self, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)  # type: ignore[arg-type]  # any callable
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if not self._open:
                    self.refused += 1
                    client.close()
                    continue
                self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with client, self._upstream() as server, suppress(OSError):
            with self._lock:
                self._links.add(client)
            left = self._rng.randrange(self._every) if self._rng else -1
            try:
                while True:
                    for ready in select.select([client, server], [], [])[0]:
                        data = ready.recv(65536)
                        if not data:
                            return
                        if self.dropped < self._most and 0 <= left < len(data):
                            self.dropped += 1
                            return
                        left -= len(data)
                        (server if ready is client else client).sendall(data)
            finally:
                with self._lock:
                    self._links.discard(client)

    def _upstream(self) -> socket.socket:
        where = conninfo_to_dict(self._conninfo)
        server = socket.socket(socket.AF_UNIX)
        server.connect(f"{where['host']}/.s.PGSQL.{where.get('port') or 5432}")
        return server
