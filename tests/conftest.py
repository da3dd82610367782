"""What every test of the repository shares: no outside network, and honesty about what was absent.

- A test that connects to anything but this machine fails at once.
- A test that needs a component which this machine lacks calls `absent("kubectl", "how to get it")`; the
  test is skipped, and the end of the run lists every absent component with the number of its tests.
- A test that runs on several servers notes which (`BACKEND`); the end of the run counts by server.
"""

import ipaddress
import socket
from collections import Counter
from collections.abc import Callable
from typing import Any, NoReturn

import pytest
from tests import contract_table, tiers

from runyard.telemetry.meter import Meter

ABSENT = "absent-component"
BACKEND = "conformance-backend"
COMPARED = "conformance-compared"

tiers.load_profile()

# A label value that the catalogue does not list is an error at the line that wrote it.
Meter.check_values = True

Absent = Callable[[str, str], NoReturn]


class OutsideConnection(Exception):
    """A test tried to leave this machine."""


def is_local(address: object) -> bool:
    """Whether a socket address stays on this machine: loopback, or not of the internet at all."""
    if not isinstance(address, tuple) or not address:
        return True  # a Unix socket's path
    host = str(address[0])
    if host in {"localhost", ""}:
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


@pytest.fixture(autouse=True)
def only_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sockets reach this machine only."""

    def guard(original: Callable[..., Any]) -> Callable[..., Any]:
        def connect(self: socket.socket, address: object, /) -> Any:
            if self.family in {socket.AF_INET, socket.AF_INET6} and not is_local(address):
                raise OutsideConnection(f"a test tried to reach {address!r}")
            return original(self, address)

        return connect

    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, guard(getattr(socket.socket, name)))


@pytest.fixture
def absent(request: pytest.FixtureRequest) -> Absent:
    """Skip this test because a component is missing, and have the summary say so."""

    def skip(component: str, how_to_get_it: str) -> NoReturn:
        request.node.user_properties.append((ABSENT, f"{component}: {how_to_get_it}"))
        pytest.skip(f"{component} is absent ({how_to_get_it})")

    return skip


def pytest_report_header() -> str:
    """Say which sample runs, so that it can run again."""
    return f"tier: RUNYARD_TIER={tiers.TIER} RUNYARD_ROTATION={tiers.ROTATION}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Count by server, and list what was absent; properties travel from xdist's workers, state would not."""
    _count_by_backend(terminalreporter)
    contract_table.show(terminalreporter)
    _list_absent(terminalreporter)


def _count_by_backend(terminalreporter: pytest.TerminalReporter) -> None:
    counts: dict[str, Counter[str]] = {}
    versions: dict[str, str] = {}
    compared: list[str] = []
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            noted = dict(getattr(report, "user_properties", ()))
            if BACKEND in noted:
                counts.setdefault(noted[BACKEND], Counter())[outcome] += 1
                versions[noted[BACKEND]] = noted.get(BACKEND + "-version", "")
            if COMPARED in noted:
                compared.append(f"compared            {noted[COMPARED]}, {outcome}")
    if not counts:
        return
    terminalreporter.section("Kubernetes conformance")
    for backend, count in sorted(counts.items()):
        failed = count["failed"] + count["error"]
        told = f"{count['passed']} passed, {failed} failed, {count['skipped']} NOT RUN"
        terminalreporter.write_line(f"{backend:9} {versions[backend]:9} {told}")
    for line in compared:
        terminalreporter.write_line(line)


def _list_absent(terminalreporter: pytest.TerminalReporter) -> None:
    missing = Counter(
        str(value)
        for report in terminalreporter.stats.get("skipped", [])
        for key, value in getattr(report, "user_properties", ())
        if key == ABSENT
    )
    if missing:
        terminalreporter.section("absent components")
        for component, tests in sorted(missing.items()):
            terminalreporter.write_line(f"{tests} tests not run for want of {component}")
