"""Runs a guest without a VM: the packaged scripts in plain folders, and a dispatch server with scripted responses.

The server is real HTTP on loopback. A response is a status with a body, or `DROP`: the connection is cut after the
request. `HOLD` is a poll without a response until the test ends.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal, Self

from runyard.vm.guest import envfile, image

TOKEN = "the-token-that-must-stay-secret"
DROP: Literal["drop"] = "drop"
HOLD: Literal["hold"] = "hold"
Answer = tuple[int, bytes] | Literal["drop", "hold"]
JIT = (200, b'{"encoded_jit_config": "c2VjcmV0+/==", "owner": "acme", "workflow_job_id": 7}')
DRAIN = (410, b'{"error": "drain", "reason": "image stale"}')
TIMEOUT = 60.0


class Server:
    """Responds to polls one by one as scripted; repeats the last response."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self.answers = list(answers)
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.arrived = threading.Event()
        self.released = threading.Event()
        self.leaks: list[str] = []  # what `find_leaks` found during polls
        self.find_leaks: Callable[[], list[str]] = list
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                server._answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                """Quiet."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}/dispatch"

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("content-length", "0")))
        headers = {name.lower(): value for name, value in handler.headers.items()}
        number = len(self.requests)
        self.requests.append((handler.command, handler.path, headers, body))
        self.leaks += self.find_leaks()
        self.arrived.set()
        answer = self.answers[min(number, len(self.answers) - 1)]
        if answer == HOLD:
            self.released.wait(TIMEOUT)
        if answer in (DROP, HOLD):
            handler.close_connection = True
            return
        assert not isinstance(answer, str)
        status, text = answer
        handler.send_response(status)
        if status != 204:
            handler.send_header("content-length", str(len(text)))
        handler.end_headers()
        if status != 204:
            handler.wfile.write(text)


class Guest:
    """One guest's folders and its process."""

    def __init__(self, root: Path, *, runner: str = "exit 0") -> None:
        self.root = root
        self.status = root / "status"
        self.env = root / "env"
        self.work = root / "work"
        source = root / "runner-source"
        source.mkdir()
        (source / "run.sh").write_text(f"#!/bin/sh\n{runner}\n")
        self.image = image.build_image(root / "image", runner=source)
        for folder in (self.status, self.env, root / "run"):
            folder.mkdir()
        (self.image / "work").rename(self.work)

    def stage(self, url: str, **env: str) -> None:
        """Stage the files of the host."""
        staged = {"TUIST_RUNNER_DISPATCH_URL": url, "RUNYARD_POLL_PAUSE": "0", **env}
        (self.env / "tuist.env").write_bytes(envfile.encode(staged.items()))
        (self.env / "sa_token").write_text(TOKEN)

    def start(self, **env: str) -> subprocess.Popen[bytes]:
        """Start the boot script."""
        environment = {
            "PATH": os.environ["PATH"],
            "RUNYARD_ENV_DIR": str(self.env),
            "RUNYARD_STATUS_DIR": str(self.status),
            "RUNYARD_RUN_DIR": str(self.root / "run"),
            "RUNYARD_WORK_DIR": str(self.work),
            "RUNYARD_PYTHON": sys.executable,
            "OUT": str(self.root),
            **env,
        }
        with (self.root / "console").open("wb") as console:
            argv = [str(self.image / "boot.sh")]
            return subprocess.Popen(argv, env=environment, stderr=console, stdout=console)

    def run(self, **env: str) -> int:
        """Boot and wait for the end; returns the exit code, which must be the reported one."""
        process = self.start(**env)
        return self.ended(process)

    def ended(self, process: subprocess.Popen[bytes]) -> int:
        code = process.wait(TIMEOUT)
        assert (self.status / "runner-rc").read_text() == f"{code}\n"
        return code

    def text(self, name: str) -> str:
        """The text of a file that a runner wrote into $OUT."""
        return (self.root / name).read_text()
