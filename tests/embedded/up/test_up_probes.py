"""Every component of a machine has health endpoints, which only this machine can reach."""

import asyncio
import random
import socket
from pathlib import Path

import pytest
from tests.embedded.up.upsupport import HAS_PROC, Up, ask, until

from runyard.clock import RealClock
from runyard.components.probing import served
from runyard.embedded.up.boot import Boot
from runyard.embedded.up.context import Context
from runyard.embedded.up.layout import Layout
from runyard.embedded.up.roles.access import probe_sockets
from runyard.embedded.up.token_files import ensure_token
from runyard.http.client import HttpTransport
from runyard.http.messages import Request, Response
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.meter import Meter

PATHS = ("/healthz", "/readyz", "/metrics", "/openapi.json")
whole = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.skipif(not HAS_PROC, reason="searches for processes in /proc"),
]


def context(root: Path, *sockets: socket.socket) -> Context:
    boot = Boot(
        role="operator",
        name="operator",
        root=str(root),
        kube_url="",
        server_url="",
        github_url="",
        sockets=tuple((sock.getsockname()[0], sock.detach()) for sock in sockets),
    )
    return Context(boot=boot, clock=RealClock(), rng=random.Random(1), ready=lambda: None)


async def reported(url: str, host: str, token: str) -> tuple[list[int], bytes]:
    headers = (("host", host), *((("authorization", f"Bearer {token}"),) if token else ()))
    transport = HttpTransport(url)
    try:
        answers = [
            await transport.send(Request(method="GET", path=path, headers=headers), timeout=20)
            for path in PATHS
        ]
    finally:
        await transport.close()
    assert all(isinstance(answer, Response) for answer in answers)
    return [answer.status for answer in answers], answers[1].body


TOKEN = "token-of-the-dashboard"


@pytest.mark.parametrize(
    ("host", "token", "statuses"),
    [
        ("127.0.0.1", TOKEN, [200, 200, 200, 200]),
        ("127.0.0.1", "", [200, 200, 200, 401]),
        ("evil.example", TOKEN, [200, 200, 421, 421]),
    ],
    ids=["owner", "job", "web page"],
)
def test_a_job_reads_no_reasons_and_a_web_page_nothing_under_its_own_name(
    tmp_path: Path, host: str, token: str, statuses: list[int]
) -> None:
    layout = Layout(tmp_path)
    ensure_token(layout.dashboard_token, random.Random(1), first=TOKEN)
    ensure_token(layout.metrics_token, random.Random(2))

    async def scenario() -> None:
        sock = socket.create_server(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        given, clock = context(tmp_path, sock), RealClock()
        async with served("component", Deps(clock), probe_sockets(given)):
            got, ready = await reported(f"http://127.0.0.1:{port}", host, token)
            assert got == statuses
            assert (b"conditions" in ready) == (statuses[-1] == 200)

    asyncio.run(scenario())


class Deps:
    """A component's dependencies, as far as probes report them."""

    def __init__(self, clock: RealClock) -> None:
        self.health = Health(clock)
        self.freshness = Freshness(clock)
        self.meter = Meter()


def test_a_component_without_a_socket_runs_without_probes(tmp_path: Path) -> None:
    async def scenario() -> None:
        given, clock = context(tmp_path), RealClock()
        async with served("component", Deps(clock), probe_sockets(given)):
            pass

    asyncio.run(scenario())


class TestWhole:
    """On a running machine."""

    pytestmark = whole

    @pytest.mark.parametrize("component", ["server", "operator", "host-1", "kube", "github"])
    def test_every_component_is_alive_and_becomes_ready(self, up: Up, component: str) -> None:
        tls = up.tls() if component == "kube" else None
        assert ask(up.url(component), "GET", "/healthz", tls=tls).status == 200

        def content() -> bool:
            token = (up.data / "dashboard.token").read_text().strip()
            headers = {} if tls else {"authorization": f"Bearer {token}"}
            got = ask(up.url(component), "GET", "/readyz", tls=tls, headers=headers)
            return got.status == 200 and b'"works":false' not in got.body

        until(content, what=f"{component} ready")

    @pytest.mark.parametrize(
        ("component", "loop"),
        [
            ("server", "slot-sweep"),
            ("server", "test-result-queue"),
            ("server", "processor-repair"),
            ("operator", "runner-pool-controller"),
            ("host-1", "node-lease"),
        ],
    )
    def test_every_component_has_metrics(self, up: Up, component: str, loop: str) -> None:
        line = f'runyard_loop_last_success_seconds{{loop="{loop}"}}'.encode()
        until(
            lambda: line in ask(up.url(component), "GET", "/metrics").body,
            what=f"{loop} of {component}",
        )
