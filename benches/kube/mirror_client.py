"""Mirrors Pods in a process of its own and prints the cost as one line of JSON.

python -m benches.kube.mirror_client list URL CA TOKEN PODS      list and index, until all Pods are there
python -m benches.kube.mirror_client watch URL EVENTS            follow a watch, until EVENTS changes arrived

python -m benches.kube.mirror_client bare-list URL CA TOKEN PODS      the limit: aiohttp and msgspec alone
python -m benches.kube.mirror_client bare-watch URL EVENTS            the limit: decode each line only
"""

import asyncio
import random
import resource
import sys
import time
from pathlib import Path

import aiohttp
import msgspec
from benches.kube.pods import NAMESPACE

from runyard.clock import RealClock
from runyard.http.client import HttpTransport
from runyard.http.tls import client_context
from runyard.kube.client import Kube
from runyard.kube.kinds import PODS
from runyard.kube.objects import Pod
from runyard.kube.reflector import Reflector, Scope, WatchDeps
from runyard.telemetry.meter import Meter


class Cost(msgspec.Struct, frozen=True):
    seconds: float
    cpu: float
    peak_mb: float  # of the whole process, including the interpreter
    count: int


def _by_node(pod: Pod) -> tuple[str, ...]:
    return (pod.spec.node_name,)


def _by_pool(pod: Pod) -> tuple[str, ...]:
    pool = pod.metadata.labels.get("tuist.dev/runner-pool", "")
    return (f"{pod.metadata.namespace}/{pool}",)


class Changes:
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
    """Peak memory of this process; not by maxrss, which may be inherited from the parent."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # macOS: in bytes
    return int(status.partition("VmHWM:")[2].split()[0]) / 1000


async def measure(transport: HttpTransport, *, token: str, wanted: int, listing: bool) -> Cost:
    changes = Changes(wanted)
    reflector: Reflector[Pod] = Reflector(
        WatchDeps(
            kube=Kube(transport, token=lambda: token, timeout=60.0),
            clock=RealClock(),
            rng=random.Random(1),
            meter=Meter(),
        ),
        PODS,
        Pod,
        scope=Scope(namespace=NAMESPACE),
        on_change=changes.changed,
        indexes={"node": _by_node, "pool": _by_pool},
    )
    began = (time.perf_counter(), time.process_time())
    async with asyncio.TaskGroup() as group:
        running = group.create_task(reflector.run())
        await changes.done.wait()
        if not listing:
            began = changes.began  # the connection and the empty list are not measured
        cost = Cost(
            time.perf_counter() - began[0],
            time.process_time() - began[1],
            _peak_mb(),
            changes.count,
        )
        running.cancel()
    assert not listing or len(reflector.store) == wanted
    await transport.close()
    return cost


async def bare(url: str, *, ca: bytes | None, token: str, path: str, wanted: int) -> Cost:
    """Read the same bytes with aiohttp and decode them into plain dicts: the limit for any client."""
    began = (time.perf_counter(), time.process_time())
    headers = {"authorization": f"Bearer {token}"} if token else {}
    tls = client_context(ca) if ca is not None else True
    kept: list[object] = []
    count = 0
    async with aiohttp.ClientSession(read_bufsize=1 << 20) as session:
        if "watch=1" in path:
            async with session.get(url + path.partition("?")[0]) as answer:
                await answer.read()  # the list comes first, as for any client
            async with session.get(url + path, headers=headers, ssl=tls) as answer:
                began = (time.perf_counter(), time.process_time())
                async for line in answer.content:
                    msgspec.json.decode(line)
                    count += 1
                    if count == wanted:
                        break
        else:
            more = ""
            while True:
                async with session.get(url + path + more, headers=headers, ssl=tls) as answer:
                    page = msgspec.json.decode(await answer.read())
                kept += page["items"]
                if not page["metadata"].get("continue"):
                    break
                more = f"&continue={page['metadata']['continue']}"
            count = len(kept)
    return Cost(time.perf_counter() - began[0], time.process_time() - began[1], _peak_mb(), count)


async def main(what: str, url: str, *rest: str) -> Cost:
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    if what == "bare-list":
        ca, token, count = rest
        given = Path(ca).read_bytes()
        return await bare(url, ca=given, token=token, path=f"{pods}?limit=500", wanted=int(count))
    if what == "bare-watch":
        return await bare(url, ca=None, token="", path=f"{pods}?watch=1", wanted=int(rest[0]))
    if what == "list":
        ca, token, count = rest
        transport = HttpTransport(url, tls=client_context(Path(ca).read_bytes()))
        return await measure(transport, token=token, wanted=int(count), listing=True)
    return await measure(HttpTransport(url), token="", wanted=int(rest[0]), listing=False)


if __name__ == "__main__":
    print(msgspec.json.encode(asyncio.run(main(*sys.argv[1:]))).decode())
