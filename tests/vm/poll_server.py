"""A small dispatch server over real HTTP: it answers polls in order, and records what it was sent."""

import contextlib
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PATH = "/api/internal/runners/dispatch"
JIT = "ZW5jb2RlZC1jb25maWd1cmF0aW9u"


class PollServer:
    """Answers: a status, or a status with a body; the last one is repeated."""

    def __init__(self, *answers: int | tuple[int, object]) -> None:
        self.answers = [each if isinstance(each, tuple) else (each, b"") for each in answers]
        self.headers: dict[str, str] = {}  # added to each answer
        self.seen: list[tuple[str, str, str]] = []  # method and path, credentials, body
        self.asked = threading.Event()
        self._server: ThreadingHTTPServer | None = None
        self._port = 0
        self._scheme = "http"

    @property
    def url(self) -> str:
        return f"{self._scheme}://localhost:{self._port}{PATH}"

    def start(self, certificate: Path | None = None) -> None:
        """Serve; after `stop`, on the same port again."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                held = self.headers.get("Authorization", "")
                outer.seen.append((f"{self.command} {self.path}", held, body.decode()))
                status, answer = outer.answers[0]
                if len(outer.answers) > 1:
                    outer.answers.pop(0)
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                for name, value in outer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
                outer.asked.set()

            def log_message(self, *_: object) -> None:
                return

        server = self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
            self._scheme = "https"
        server.daemon_threads = True
        self._port = server.server_address[1]
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    @contextlib.contextmanager
    def followed(self) -> "Iterator[PollServer]":
        """Another server on the same port, after this one was stopped."""
        other = PollServer(*self.answers)
        other._port = self._port
        other.start()
        try:
            yield other
        finally:
            other.stop()


@contextlib.contextmanager
def serving(*answers: int | tuple[int, object]) -> Iterator[PollServer]:
    server = PollServer(*answers)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def job(jit: str = JIT, **more: str) -> tuple[int, object]:
    return 200, {"encoded_jit_config": jit, **more}
