"""A process that mirrors Pods, and says what that cost.

    python -m benches.kube.mirrored list URL CA TOKEN PODS      list and index, until everything is there
    python -m benches.kube.mirrored watch URL EVENTS            follow a watch, until so many changes were told

Prints one line of JSON.
"""

import asyncio
import random
import resource
import sys
import time
from pathlib import Path

import msgspec
from benches.kube.pods import NAMESPACE

from runyard.clock import RealClock
from runyard.http.client import HttpTransport
from runyard.http.tls import client_context
from runyard.kube.client import Kube
from runyard.kube.kinds import PODS
from runyard.kube.objects import Pod
from runyard.kube.reflector import Reflector
from runyard.telemetry.meter import Meter


class Cost(msgspec.Struct, frozen=True):
    seconds: float
    cpu: float
    peak_mb: float  # of this whole process, the interpreter included
    count: int


def _by_node(pod: Pod) -> tuple[str, ...]:
    return (pod.spec.node_name,)


def _by_pool(pod: Pod) -> tuple[str, ...]:
    pool = pod.metadata.labels.get("tuist.dev/runner-pool", "")
    return (f"{pod.metadata.namespace}/{pool}",)


class Told:
    def __init__(self, wanted: int) -> None:
        self.count = 0
        self.began = (0.0, 0.0)
        self._wanted = wanted
        self.done = asyncio.Event()

    def changed(self, key: str, old: Pod | None, new: Pod | None) -> None:
        if not self.count:
            self.began = (time.perf_counter(), time.process_time())
        self.count += 1
        if self.count == self._wanted:
            self.done.set()


def _peak_mb() -> float:
    """The most memory that this process had; what the kernel calls maxrss may be its parent's."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # macOS: in bytes
    return int(status.partition("VmHWM:")[2].split()[0]) / 1000


async def measure(transport: HttpTransport, *, token: str, wanted: int, listing: bool) -> Cost:
    told = Told(wanted)
    reflector: Reflector[Pod] = Reflector(
        Kube(transport, token=lambda: token, timeout=60.0),
        PODS,
        Pod,
        clock=RealClock(),
        rng=random.Random(1),
        meter=Meter(),
        namespace=NAMESPACE,
        on_change=told.changed,
        indexes={"node": _by_node, "pool": _by_pool},
    )
    began = (time.perf_counter(), time.process_time())
    async with asyncio.TaskGroup() as group:
        running = group.create_task(reflector.run())
        await told.done.wait()
        if not listing:
            began = told.began  # the connection and the empty list are not what is measured
        cost = Cost(
            time.perf_counter() - began[0],
            time.process_time() - began[1],
            _peak_mb(),
            told.count,
        )
        running.cancel()
    assert not listing or len(reflector.store) == wanted
    await transport.close()
    return cost


async def main(what: str, url: str, *rest: str) -> Cost:
    if what == "list":
        ca, token, count = rest
        transport = HttpTransport(url, tls=client_context(Path(ca).read_bytes()))
        return await measure(transport, token=token, wanted=int(count), listing=True)
    return await measure(HttpTransport(url), token="", wanted=int(rest[0]), listing=False)


if __name__ == "__main__":
    print(msgspec.json.encode(asyncio.run(main(*sys.argv[1:]))).decode())
