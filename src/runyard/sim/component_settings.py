"""The settings of the components of a simulated fleet, and the pools that they serve. Derived from a `Shape` only."""

from typing import Any

from runyard.dispatch.guards import Guards, without
from runyard.dispatch.settings import Limit
from runyard.dispatch.settings import Settings as ServerSettings
from runyard.node.settings import Settings as NodeSettings
from runyard.pools.settings import Settings as PoolSettings
from runyard.sim import guard_switches
from runyard.sim.shape import FLEET, PLATFORM, PoolShape, Shape
from runyard.wire.paths import DISPATCH

SECRET = "practice-webhook-secret"
MATCH_EVERY = 5.0  # a smaller value would make most of a quiet run reads of an empty queue
OPERATOR = PoolSettings(dispatch_url=f"https://dispatch.example{DISPATCH}")


def server_settings(shape: Shape) -> ServerSettings:
    """The settings of each server replica."""
    return ServerSettings(
        webhook_secrets=(SECRET,),
        seal_key=b"0123456789abcdef0123456789abcdef",
        stamped_grace=shape.stamped_grace,
        intake=shape.intake,
        modes=guard_switches.modes(shape.off),
        match_every=MATCH_EVERY,
        default_limits=(Limit(platform=PLATFORM, vcpus=8, memory_gb=14),),
    )


def server_guards(shape: Shape) -> Guards:
    """The guards of each replica: all of them, unless an incident is run without one."""
    return without(*guard_switches.of_the_server(shape.off))


def node_settings(shape: Shape, name: str, *, number: int) -> NodeSettings:
    """The settings of one host's agent."""
    return NodeSettings(
        node_name=name,
        node_ip=f"10.0.0.{number + 10}",
        fleet=FLEET,
        pods=shape.seats,
        cpu_milli=4000 * shape.seats,
        memory_mb=8192 * shape.seats,
    )


def pool_body(shape: Shape, pool: PoolShape) -> dict[str, Any]:
    """The RunnerPool object."""
    spec = {
        "image": pool.image,
        "fleetSelector": FLEET,
        "dispatchLabel": pool.label,
        "runnerLabels": ["self-hosted", "macOS"],
        "replicas": shape.seats_of(pool),
        "os": "darwin",
        "podCPUMilli": pool.cpu_milli,
        "podMemoryMB": pool.memory_mb,
        "idleTimeoutSeconds": pool.idle_timeout,
        "rollout": {"maxConcurrentPercent": 100 if "roll_cap" in shape.off else pool.roll_percent},
    }
    return {"metadata": {"name": pool.name}, "spec": spec}
