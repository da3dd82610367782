"""The probes and metrics of `processor`, `operator` and `agent` have the access rules of the server's metrics."""

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.server_harness import SOON, Process, ask, run_here
from tests.cli.test_cli_operator import kubeconfig

from runyard.http.errors import NotSent

SCRAPE = "prometheus-reads-only-this"
RIGHT, WRONG = f"Bearer {SCRAPE}", "Bearer wrong-wrong-wrong-wrong"
COMMANDS = ("processor", "operator", "agent")


def words(command: str, folder: Path) -> tuple[str, ...]:
    """A command line that starts, without the systems that the component works with."""
    if command == "processor":
        return (
            command,
            *("--database-url", "postgresql://localhost:1/none", "--blobs", str(folder / "blobs")),
            *("--scratch", str(folder / "scratch")),
        )
    around = ("--kubeconfig", kubeconfig(folder))
    if command == "operator":
        return (command, *around, "--server-url", "http://127.0.0.1:1")
    (folder / "images").mkdir(exist_ok=True)
    place = ("--data", str(folder / "data"), "--images", str(folder / "images"))
    return (command, *around, *place, "--driver", "process", "--isolation", "none")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("short", "--metrics-token-file: the token of the metrics is shorter than 16 characters"),
        ("", "--metrics-token-file: "),
        (None, "cannot be read"),
    ],
    ids=["short", "empty", "missing"],
)
def test_a_token_of_the_metrics_that_protects_nothing_is_refused(
    command: str, content: str | None, told: str, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    if content is not None:
        token.write_text(content)
    argv = (*words(command, tmp_path), "--listen", "0.0.0.0:0", "--metrics-token-file", str(token))
    code, _, said = run_here(*argv)
    assert (code, said.count("\n")) == (2, 1)
    assert said.startswith("runyard: ") and told in said


# The address to listen at, what else is given, and for each request: its headers, the status of /metrics, and whether
# /readyz lists what is wrong.
HERE, EVIL = {"host": "127.0.0.1"}, {"host": "evil.example"}
Answers = list[tuple[dict[str, str], int, bool]]
OUTSIDE: Answers = [
    (HERE, 401, False),
    ({"authorization": WRONG}, 401, False),
    ({"authorization": "Bearer "}, 401, False),
]
CASES: dict[str, tuple[str, bool, Answers]] = {
    "outside": ("0.0.0.0", True, [*OUTSIDE, ({"authorization": RIGHT}, 200, True)]),
    "outside, no token is set": ("0.0.0.0", False, [*OUTSIDE, ({"authorization": RIGHT}, 401, False)]),
    "loopback": ("127.0.0.1", True, [(HERE, 200, True), (EVIL, 421, False)]),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("command", COMMANDS)
def test_other_machines_read_metrics_and_reasons_with_the_token_only(
    command: str, case: tuple[str, bool, Answers], tmp_path: Path
) -> None:
    host, with_token, answers = case
    (tmp_path / "token").write_text(f"{SCRAPE}\n")
    given = ("--metrics-token-file", str(tmp_path / "token")) if with_token else ()
    port = free_port()

    async def scenario() -> None:
        argv = (*words(command, tmp_path), "--listen", f"{host}:{port}", *given)
        process = await started(argv, tmp_path)
        try:
            url = f"http://127.0.0.1:{port}"
            await answering(url, process)
            for headers, status, listed in answers:
                assert (await ask(url, "GET", "/healthz", **headers)).status == 200
                assert (await ask(url, "GET", "/metrics", **headers)).status == status
                ready = await ask(url, "GET", "/readyz", **headers)
                assert ready.status in (200, 503)
                assert ("conditions" in ready.json()) is listed
            assert SCRAPE not in process.said()
        finally:
            await process.end(signal.SIGKILL)

    asyncio.run(scenario())


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
        return port


async def started(argv: tuple[str, ...], folder: Path) -> Process:
    log = folder / "log"
    environ: dict[str, Any] = {
        name: value for name, value in os.environ.items() if not name.startswith("RUNYARD_")
    }
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", "from runyard.cli.main import main; main()", *argv),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=out,
            env=environ,
        )
    return Process(process, log)


async def answering(url: str, process: Process) -> None:
    async with asyncio.timeout(SOON):
        while True:
            assert process.process.returncode is None, process.said()
            try:
                await ask(url, "GET", "/healthz")
            except NotSent:
                await asyncio.sleep(0.05)
            else:
                return
