"""`kubectl describe runnerpool` shows the operator's events, on the embedded API and on a real one."""

import asyncio
import contextlib
import random
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.conformance.kube.clusters import KUBECTL, kubectl, manifests
from tests.conformance.kube.commandline import Server, embedded, real
from tests.conftest import Absent

from runyard.clock import RealClock
from runyard.kube.client import Kube
from runyard.kube.connect import connect
from runyard.kube.kubeconfig import find_config
from runyard.pools.deps import Deps
from runyard.pools.operator import NAME, Operator
from runyard.pools.plans.reasons import Why
from runyard.pools.settings import Settings
from runyard.telemetry import conditions
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.log import get_logger
from runyard.telemetry.meter import Meter
from runyard.wire import names

POOL = {
    "apiVersion": "tuist.dev/v1alpha1",
    "kind": names.POOL_KIND,
    "metadata": {"name": "linux"},
    "spec": {
        "os": "linux",
        "image": "vm:1",
        "fleetSelector": "minis",
        "dispatchLabel": "linux",
        "runnerLabels": ["self-hosted"],
        "replicas": 2,
    },
}


@contextlib.asynccontextmanager
async def operating(server: Server) -> AsyncIterator[None]:
    """Runs the operator meanwhile."""
    clock = RealClock()
    config = find_config(str(server.folder / "config"), environ={}, home=server.folder)
    transport = connect(config, clock=clock, environ={})
    deps = Deps(
        kube=Kube(transport),
        clock=clock,
        rng=random.Random(7),
        meter=Meter(),
        log=get_logger("test"),
        settings=Settings(event_seconds=0.0),
        health=Health(clock, conditions.ALL),
        freshness=Freshness(clock),
    )
    async with asyncio.TaskGroup() as group:
        task = group.create_task(Operator(deps).run())
        try:
            yield
        finally:
            task.cancel()
    await transport.close()


async def describe_a_pool(server: Server) -> None:
    api = server.api
    pools = api.path(names.POOL_PLURAL, group="tuist.dev/v1alpha1")

    async def created() -> bool | None:
        return (await api.call("POST", pools, POOL)).status == 201 or None

    async def shown(reason: str, times: str) -> str | None:
        code, text = await server.run(KUBECTL, "describe runnerpool linux")
        assert code == 0, text
        events = text.partition("\nEvents:")[2]
        return events if re.search(rf"Normal +{reason} +{times}", events) else None

    await api.eventually(created)
    async with operating(server):
        events = await api.eventually(lambda: shown(Why.REPLICAS_MISSING.camel, r"\S+ \(x2 over"))
        assert NAME in events
        await api.patch(f"{pools}/linux", {"spec": {"replicas": 1}})
        events = await api.eventually(lambda: shown(Why.SCALED_DOWN.camel, r"\S+ +runner"))
        assert "retired runner linux-runner-" in events


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("where", ["embedded", "real"])
def test_describe_shows_what_the_operator_did_to_a_pool(
    where: str, tmp_path: Path, request: pytest.FixtureRequest, absent: Absent
) -> None:
    if not KUBECTL.exists():
        absent("kubectl", "make .venv/ready installs it")

    async def main() -> None:
        space = names.RUNNERS_NAMESPACE
        if where == "embedded":
            async with embedded(tmp_path, space=space) as server:
                await describe_a_pool(server)
            return
        async with real(request.getfixturevalue("bare_plane"), tmp_path, space=space) as server:
            config = tmp_path / "config"
            await asyncio.to_thread(kubectl, config, "apply", "-f", "-", stdin=manifests())
            await describe_a_pool(server)

    asyncio.run(main())
