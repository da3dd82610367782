"""Tokens in files: private, written once, and the same for every process that reads them."""

import http.server
import random
import threading
from pathlib import Path
from typing import Self

import pytest
from tests.cli.server_harness import run_here

from runyard.embedded.lock import DirectoryLock, is_owned
from runyard.embedded.up.layout import BadDirectory
from runyard.embedded.up.token_files import ensure_token, read_token


def test_two_processes_that_start_together_use_the_same_token(tmp_path: Path) -> None:
    path, found = tmp_path / "data" / "dashboard.token", set()
    together = threading.Barrier(8)

    def start() -> None:
        together.wait()
        found.add(ensure_token(path, random.SystemRandom()))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == {read_token(path)}
    assert [each.name for each in path.parent.iterdir()] == ["dashboard.token"]


def test_a_token_that_its_owner_wrote_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "dashboard.token"
    path.write_text("chosen by its owner\n")
    assert ensure_token(path, random.Random(1), first="another") == "chosen by its owner"


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff", b"a\nb"])
def test_a_file_without_a_token_is_reported(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "dashboard.token"
    path.write_bytes(content)
    with pytest.raises(BadDirectory, match="token"):
        ensure_token(path, random.Random(1))


def test_the_token_is_not_sent_to_a_port_that_the_machine_has_left(tmp_path: Path) -> None:
    (tmp_path / "ports.json").write_text('{"server": 1}')
    ensure_token(tmp_path / "dashboard.token", random.Random(1))
    line = ("tenant", "list", "--data", str(tmp_path))
    code, _, err = run_here(*line)
    assert code == 2 and "does not run in" in err
    lock = DirectoryLock(tmp_path)
    lock.acquire()
    try:
        assert is_owned(tmp_path)
        code, _, err = run_here(*line)
        assert code == 2 and "does not respond" in err
    finally:
        lock.release()
    assert not is_owned(tmp_path)


class Listener:
    """A program that listens on the port that a machine had, and keeps the tokens that it is sent."""

    def __init__(self) -> None:
        self.tokens: list[str | None] = []
        tokens = self.tokens

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                tokens.append(self.headers.get("authorization"))
                self.send_response(401)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Print nothing."""

        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self.server.serve_forever).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def test_an_exported_address_gets_the_token_only_while_the_machine_runs_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = ensure_token(tmp_path / "dashboard.token", random.Random(1))
    with Listener() as listener:
        (tmp_path / "ports.json").write_text(f'{{"server": {listener.port}}}')
        monkeypatch.setenv("RUNYARD_SERVER", f"http://127.0.0.1:{listener.port}")
        monkeypatch.setenv("RUNYARD_DATA", str(tmp_path))
        run_here("tenant", "list")
        lock = DirectoryLock(tmp_path)
        lock.acquire()
        try:
            run_here("tenant", "list")
        finally:
            lock.release()
        assert listener.tokens == [None, f"Bearer {token}"]


def test_the_data_directory_on_the_command_line_is_not_overruled_by_an_exported_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Listener() as listener:
        monkeypatch.setenv("RUNYARD_SERVER", f"http://127.0.0.1:{listener.port}")
        code, _, _ = run_here("tenant", "list", "--data", str(tmp_path / "another"))
        assert (code, listener.tokens) == (2, [])
