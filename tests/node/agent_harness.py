"""Runs one host with its agent against the embedded Kubernetes API, in virtual time.

The API server, the driver with its VMs and the directory of records belong to the harness; the agent is a
process that can be killed exactly before or after any of its effects and started again.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextvars import Context
from pathlib import Path
from typing import Any

import msgspec

from runyard.embedded.kube.core import KubeCore
from runyard.http.loopback import Loopback
from runyard.kube.client import Kube
from runyard.kube.errors import NotFound
from runyard.kube.kinds import NODES, PODS, SERVICE_ACCOUNTS
from runyard.node.agent import Agent
from runyard.node.deps import Deps
from runyard.node.records import Records
from runyard.node.settings import Settings
from runyard.sim.clock import VirtualClock
from runyard.sim.driver import Host, SimDriver
from runyard.sim.loop import run_virtual
from runyard.sim.process import Process, wrap, wrap_transport
from runyard.sim.trace import Trace
from runyard.telemetry import conditions
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.log import get_logger
from runyard.telemetry.meter import Meter
from runyard.vm.contract import VmSpec
from runyard.wire import names

NODE = "mini-1"
SPACE = names.RUNNERS_NAMESPACE
IMAGE = "registry/runner@sha256:1"
DRIVER_EFFECTS = ("create", "start", "stop", "delete", "pull", "remove_image")
SETTINGS = Settings(node_name=NODE, node_ip="10.1.1.1", fleet="macs")
QUICK = Host(boot_seconds=20.0, bandwidth=1e9, image_bytes=30e9)


class AgentHarness:
    """A host, its agent and their dependencies."""

    def __init__(
        self, directory: Path, *, settings: Settings = SETTINGS, host: Host = QUICK, seed: int = 1
    ) -> None:
        self.clock = VirtualClock()
        self.rng = random.Random(seed)
        self.core = KubeCore(clock=self.clock, rng=random.Random(seed + 1))
        self.kube = Kube(Loopback(self.core.handle))
        self.driver = SimDriver(self.clock, host=host, guest=self._guest)
        self.records = Records(directory, durable=False)
        self.settings = settings
        self.meters: list[Meter] = []
        self.guests: dict[str, float] = {}  # pod name → seconds that its guest works
        self.codes: dict[str, int] = {}
        self.shut_down: list[str] = []  # guests that got a shutdown request
        self.trace = Trace(self.clock.now)
        self.agent = Process("agent", trace=self.trace)

    def start_agent(self) -> None:
        self.agent.start(self._agent)

    def supervise(self) -> None:
        """Start the agent again in five seconds, as its supervisor would."""
        loop = asyncio.get_running_loop()
        loop.call_later(5.0, self._restart, context=Context())

    def _restart(self) -> None:
        if not self.agent.alive:
            self.start_agent()

    async def _agent(self) -> None:
        meter = Meter()
        self.meters.append(meter)
        transport = wrap_transport(self.agent, Loopback(self.core.handle), name="kube")
        deps = Deps(
            kube=Kube(transport, agent="tart-kubelet"),
            driver=wrap(self.agent, self.driver, DRIVER_EFFECTS),
            records=wrap(self.agent, self.records, ("write", "forget")),
            clock=self.clock,
            rng=random.Random(self.rng.getrandbits(32)),
            meter=meter,
            log=get_logger("agent"),
            settings=self.settings,
            health=Health(self.clock, conditions.ALL),
            freshness=Freshness(self.clock),
        )
        await Agent(deps).run()

    async def _guest(self, spec: VmSpec, address: str) -> int:
        name = dict(spec.env)[names.ENV_POD_NAME]
        try:
            await self.clock.sleep(self.guests.get(name, 60.0))
        except asyncio.CancelledError:
            self.shut_down.append(name)
            await self.clock.sleep(3.0)  # the guest cleans up before it ends
        return self.codes.get(name, 0)

    # ── actions of the operator ─────────────────────────────────────────────────────────────────

    async def add_pod(self, name: str, *, image: str = IMAGE, **changes: Any) -> dict[str, Any]:
        meta = {"name": name, "namespace": SPACE}
        await self.kube.create(SERVICE_ACCOUNTS, {"metadata": meta}, namespace=SPACE)
        return await self.kube.create(PODS, pod_body(name, image, **changes), namespace=SPACE)

    async def delete_pod(self, name: str, *, grace: int | None = None) -> None:
        await self.kube.delete(PODS, name, namespace=SPACE, grace=grace)

    async def pod(self, name: str) -> dict[str, Any] | None:
        try:
            return await self.kube.get(PODS, name, namespace=SPACE)
        except NotFound:
            return None

    async def phase(self, name: str) -> str:
        found = await self.pod(name)
        return "gone" if found is None else str(found["status"].get("phase", ""))

    async def node(self) -> dict[str, Any]:
        return await self.kube.get(NODES, NODE)

    async def until(
        self, wanted: Callable[[], Coroutine[Any, Any, bool]], *, within: float = 600.0
    ) -> float:
        """Wait until it holds; returns how long that took."""
        began = self.clock.monotonic()
        async with self.clock.timeout(within):
            while not await wanted():
                await self.clock.sleep(0.5)
        return self.clock.monotonic() - began

    async def until_phase(self, name: str, phase: str, *, within: float = 600.0) -> float:
        async def reached() -> bool:
            return await self.phase(name) == phase

        return await self.until(reached, within=within)


def pod_body(
    name: str, image: str, *, labels: dict[str, str] | None = None, **changes: Any
) -> dict[str, Any]:
    labels = {names.RUNNER: "true", names.RUNNER_POOL: "a"} if labels is None else labels
    uid = {"fieldRef": {"fieldPath": "metadata.uid"}}
    env = [
        {"name": names.ENV_POD_NAME, "value": name},
        {"name": names.ENV_POD_UID, "valueFrom": uid},
    ]
    limits = {"cpu": "4", "memory": "4Gi"}
    spec: dict[str, Any] = {
        "nodeName": NODE,
        "serviceAccountName": name,
        "automountServiceAccountToken": True,
        "restartPolicy": "Never",
        "containers": [
            {
                "name": "runner",
                "image": image,
                "env": env,
                "resources": {"limits": limits, "requests": limits},
            }
        ],
    }
    return {"metadata": {"name": name, "labels": labels}, "spec": {**spec, **changes}}


Scenario = Callable[[AgentHarness], Coroutine[Any, Any, None]]


def play(scenario: Scenario, directory: Path, *, seed: int = 0, **options: Any) -> AgentHarness:
    """Run a scenario with a running agent."""

    async def main() -> AgentHarness:
        harness = AgentHarness(directory, **options)
        harness.start_agent()
        await scenario(harness)
        harness.agent.crash()
        return harness

    harness = run_virtual(main(), seed=seed)
    assert not harness.core.failures, harness.core.failures
    return harness


def changed(**changes: Any) -> Settings:
    return msgspec.structs.replace(SETTINGS, **changes)
