"""What the agent of a joined host says when the main machine does not accept it any more."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.hosts.joining.joinsupport import Served, ShiftedClock

from runyard.cli.agent import Flags, agent
from runyard.cli.cluster import cluster
from runyard.cli.joinedagent import joined_host
from runyard.cli.main import cli, run
from runyard.clock import RealClock
from runyard.components.reporting import with_reports
from runyard.hosts.joining.accounts import revoke
from runyard.kube.client import Kube
from runyard.kube.errors import KubeError
from runyard.kube.kinds import NODES
from runyard.telemetry.conditions import ALL, HOST_CREDENTIAL_ENDED
from runyard.telemetry.health import Health
from runyard.telemetry.meter import Meter


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path / "main")
    yield made
    made.close()


def joined(served: Served, data: Path) -> Flags:
    """The flags of the agent of a machine that has joined."""
    given = ("--name", "mini-2", "--data", str(data), "--driver", "process", "--no-service")
    assert run(cli, name="runyard", argv=["host", "join", served.url, served.token(), *given]) == 0
    params = agent.make_context("agent", ["--joined", "--data", str(data)]).params
    return msgspec.convert({**params, "images": data / "images"}, Flags)


def test_a_host_that_was_removed_says_only_that_its_requests_are_refused(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNYARD_ISOLATION", "none")  # no sandbox is probed, which takes time
    data = tmp_path / "agent"
    flags = joined(served, data)
    said: list[str] = []
    log: Any = SimpleNamespace(error=lambda text, **more: said.append(f"{text} {more}"))
    clock = ShiftedClock()
    health = Health(clock, ALL)

    async def ask(times: int) -> list[str]:
        async with joined_host(flags, clock=RealClock()) as host:
            transport, _ = cluster(host.flags.kubeconfig, clock=RealClock(), agent="test")
            watched = host.watched(Kube(transport), health, log)
            kube = with_reports(watched, health, meter=Meter(), log=log)
            for _ in range(times):
                with contextlib.suppress(KubeError):
                    await kube.get(NODES, "mini-2")
            await transport.close()
        clock.ahead += 60.0
        return [each.code for each in health.report()]

    assert asyncio.run(ask(1)) == [] and said == []
    assert served.run(revoke(served.main.kube, "mini-2"))
    assert asyncio.run(ask(3)) == [HOST_CREDENTIAL_ENDED.code]
    (line,) = said
    for part in ("no longer accepts", "mini-2", "removed", f"runyard host leave --data {data}"):
        assert part in line
