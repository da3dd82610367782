"""A dispatch server for many Pods: each asks at a path of its own, and gets one job.

POST /<pod>/dispatch    204, then once 200 with the JIT configuration, then 204 for ever
"""

import contextlib
import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.node.crashes.effects import JIT


class Jobs:
    """Hands out one job for each Pod."""

    def __init__(self) -> None:
        self.polls: Counter[str] = Counter()
        self.given: Counter[str] = Counter()
        self.tokens: dict[str, str] = {}
        self._lock = threading.Lock()
        jobs = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", "0")))
                pod = self.path.split("/")[1]
                answer = jobs.answer(pod, self.headers.get("Authorization", ""))
                body = json.dumps({"encoded_jit_config": JIT}).encode() if answer == 200 else b""
                self.send_response(answer)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                with contextlib.suppress(ConnectionError):  # its poller was killed
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def answer(self, pod: str, authorization: str) -> int:
        """The status for one poll."""
        with self._lock:
            self.polls[pod] += 1
            self.tokens[pod] = authorization.removeprefix("Bearer ")
            if self.polls[pod] < 2 or self.given[pod]:
                return 204
            self.given[pod] += 1
            return 200

    def url(self, pod: str, *, host: str) -> str:
        """Where this Pod polls; `host` is how its poller reaches this machine."""
        return f"http://{host}:{self._server.server_address[1]}/{pod}/dispatch"

    def close(self) -> None:
        """Serve no longer."""
        self._server.shutdown()
        self._server.server_close()
