"""Measures the node agent's own cost, and fails if a target is missed.

    python -m benches.node.run [--hosts 25] [--pods 50]      exits with 1 if a target is missed

Real `tart-kubelet` processes, each with its own account and its own tart (a stand-in), against the embedded Kubernetes
API in a process of its own. Pods are bound one after another, two to a host. Overhead is the time from the moment at
which the Pod was bound until `tart run` began, without the time in which a tart command for that VM was running: on a
Mac a clone takes as long as it takes. The limit of the same run is those commands alone. All hosts share this machine,
so Pods are bound so slowly that they do not wait for each other's CPU; `--every` changes that.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web
from benches import table
from benches.kube.embedded_server import ADMIN
from benches.node.hosts import ROOT, Command, Host, cpu_seconds, pod, resident_mb

from runyard.clock import RealClock
from runyard.embedded.up import accounts
from runyard.embedded.up.layout import Layout
from runyard.http.client import HttpTransport
from runyard.http.tls import client_context
from runyard.kube.client import Kube
from runyard.kube.kinds import PODS, SERVICE_ACCOUNTS
from runyard.wire import names

SPACE = names.RUNNERS_NAMESPACE
SOON = 60.0
IDLE_SECONDS = 30.0
SHIM, POLLER = "runyard.vm.tart.guest", "runyard.vm.shim.poller"
P99_MS, AGENT_MB, SHIM_MB, IDLE_PERCENT = 500.0, 80.0, 25.0, 1.0


class Start(msgspec.Struct, frozen=True):
    """One Pod's way from being bound to `tart run`, in seconds."""

    total: float
    tart: float

    @property
    def own(self) -> float:
        return self.total - self.tart


class Idle(msgspec.Struct, frozen=True):
    """What the processes of all hosts use while every VM waits for a job."""

    agents: tuple[float, ...]  # MB
    shims: tuple[float, ...]  # MB
    pollers: tuple[float, ...]  # MB
    percent: tuple[float, ...]  # of a core, of each agent


@contextmanager
def kubernetes(folder: Path) -> Iterator[tuple[str, bytes]]:
    """The embedded API: its URL and its authority's certificate."""
    folder.mkdir()
    command = [sys.executable, "-m", "benches.kube.embedded_server", str(folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin and process.stdout
        try:
            url = process.stdout.readline().strip()
            assert url, "the embedded API did not start"
            yield url, (folder / "ca.crt").read_bytes()
        finally:
            process.stdin.close()


class Bench:
    """The hosts, and what was measured of them."""

    def __init__(self, kube: Kube, hosts: list[Host], *, pods: int, every: float) -> None:
        self.kube, self.hosts = kube, hosts
        self.pods, self.every = pods, every
        self.clock = RealClock()
        self.bound: dict[str, tuple[Host, float]] = {}

    async def warm_up(self, url: str) -> None:
        """Run one Pod on each host, so that each has the image that VMs are cloned from."""
        for number, host in enumerate(self.hosts):
            await self.bind(f"first-{number}", host, url)
        await self.until_running()
        for name in list(self.bound):
            await self.kube.delete(PODS, name, namespace=SPACE)
        await self.until_none()
        self.bound.clear()

    async def bind(self, name: str, host: Host, url: str) -> None:
        """Create a Pod that is bound to a host."""
        await self.kube.create(SERVICE_ACCOUNTS, {"metadata": {"name": name}}, namespace=SPACE)
        body = pod(name, host.name, host.image, poll_url=url)
        self.bound[name] = (host, time.time())
        await self.kube.create(PODS, body, namespace=SPACE)

    async def run(self, url: str) -> list[Start]:
        """Bind every Pod, and return how each became `tart run`."""
        for number in range(self.pods):
            await self.bind(f"pod-{number}", self.hosts[number % len(self.hosts)], url)
            await self.clock.sleep(self.every)
        await self.until_running()
        uids = {each["metadata"]["name"]: each["metadata"]["uid"] for each in await self._pods()}
        return [
            start_of(host.commands, uids[name], bound) for name, (host, bound) in self.bound.items()
        ]

    async def idle(self) -> Idle:
        """Leave everything alone for a while, and count what it used."""
        agents = [host.agent.pid for host in self.hosts if host.agent is not None]
        before = [cpu_seconds(pid) for pid in agents]
        began = time.monotonic()
        await self.clock.sleep(IDLE_SECONDS)
        took = time.monotonic() - began
        used = [cpu_seconds(pid) for pid in agents]
        return Idle(
            agents=tuple(resident_mb(pid) for pid in agents),
            shims=self._sizes(SHIM),
            pollers=self._sizes(POLLER),
            percent=tuple(
                100 * (end - start) / took for start, end in zip(before, used, strict=True)
            ),
        )

    def _sizes(self, program: str) -> tuple[float, ...]:
        return tuple(resident_mb(pid) for host in self.hosts for pid in host.helpers(program))

    async def until_running(self) -> None:
        wanted = set(self.bound)
        until = time.monotonic() + SOON + self.pods
        while waiting := [
            each
            for each in await self._pods()
            if each["metadata"]["name"] in wanted
            and each.get("status", {}).get("phase") != "Running"
        ]:
            if time.monotonic() > until:
                sys.exit(f"these Pods did not start: {self._why(waiting)}")
            await self.clock.sleep(1.0)

    def _why(self, waiting: list[dict[str, Any]]) -> str:
        """What the API and the agent of the first one say."""
        status = [(each["metadata"]["name"], each.get("status")) for each in waiting]
        host, _ = self.bound[waiting[0]["metadata"]["name"]]
        return f"{status}\n{host.log.read_text()[-3000:]}"

    async def until_none(self) -> None:
        async with asyncio.timeout(SOON):
            while await self._pods():
                await self.clock.sleep(1.0)

    async def _pods(self) -> list[dict[str, Any]]:
        found = await self.kube.list(PODS, namespace=SPACE)
        return list(found.items)


def start_of(commands: list[Command], uid: str, bound: float) -> Start:
    """When the VM of a Pod was run, and how long tart worked for it until then."""
    short = uid.replace("-", "")
    mine = [
        each
        for each in commands
        if any(uid in word or short in word for word in each.argv) and each.ended >= bound
    ]
    (run,) = [each for each in mine if each.argv[0] == "run"]
    busy = [(each.began, each.ended) for each in mine if each.ended <= run.began]
    return Start(run.began - bound, covered(busy))


def covered(spans: list[tuple[float, float]]) -> float:
    """The time that is in at least one of these spans."""
    total, until = 0.0, 0.0
    for began, ended in sorted(spans):
        total += max(0.0, ended - max(began, until))
        until = max(until, ended)
    return total


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def rows(starts: list[Start], idle: Idle, hosts: int) -> tuple[list[table.Row], list[str]]:
    """The verdict, and the numbers beside it."""
    own = [1000 * each.own for each in starts]
    tart = [1000 * each.tart for each in starts]
    found = [
        table.at_most("bound -> tart run, own overhead, p99", quantile(own, 0.99), P99_MS, "ms"),
        table.at_most("agent with two VMs, resident, largest", max(idle.agents), AGENT_MB, "MB"),
        table.at_most("shim, resident, largest", max(idle.shims), SHIM_MB, "MB"),
        table.at_most("agent, idle, of a core, worst", max(idle.percent), IDLE_PERCENT, "%"),
    ]
    mean = sum(idle.percent) / len(idle.percent)
    middle, limit = quantile(own, 0.5), quantile(tart, 0.5)
    notes = [
        f"{len(starts)} Pods on {hosts} hosts, all on this machine",
        f"own overhead p50 {middle:.0f} ms, largest {max(own):.0f} ms",
        f"limit: tart's commands alone p50 {limit:.0f} ms, p99 {quantile(tart, 0.99):.0f} ms",
        f"overhead is {middle / limit:.1f} x of the limit at p50",
        f"idle CPU of an agent on average {mean:.2f} %; {len(idle.shims)} shims",
    ]
    if idle.pollers:
        notes.append(f"beside each shim a poller, largest {max(idle.pollers):.1f} MB")
    return found, notes


async def serve_polls() -> tuple[web.AppRunner, str]:
    """A dispatch server without jobs: every poll waits and is answered with 204."""

    async def nothing(_: web.Request) -> web.Response:
        await RealClock().sleep(20.0)
        return web.Response(status=204)

    app = web.Application()
    app.router.add_post("/api/internal/runners/dispatch", nothing)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    return runner, f"http://{host}:{port}/api/internal/runners/dispatch"


async def main(asked: argparse.Namespace, folder: Path) -> int:
    with ExitStack() as stack:
        url, ca = stack.enter_context(kubernetes(folder / "kube"))
        transport = HttpTransport(url, tls=client_context(ca))
        kube = Kube(transport, token=lambda: ADMIN)
        layout = Layout(folder / "data")
        (layout.root / "tokens").mkdir(parents=True)
        hosts = [Host(folder / f"host-{n}", f"mini-{n}") for n in range(asked.hosts)]
        for host in hosts:
            stack.callback(host.close)
        components = tuple(host.name for host in hosts)
        await accounts.grant(kube, components)
        await accounts.renew(kube, layout, components)
        polls, poll_url = await serve_polls()
        for host in hosts:
            token = layout.token(host.name).read_text().strip()
            await asyncio.to_thread(host.start, url, token=token, ca=ca)
        bench = Bench(kube, hosts, pods=asked.pods, every=asked.every)
        try:
            print(f"warming up {asked.hosts} hosts", flush=True)
            await bench.warm_up(poll_url)
            print(f"binding {asked.pods} Pods", flush=True)
            starts = await bench.run(poll_url)
            print(f"idle for {IDLE_SECONDS:.0f} s", flush=True)
            idle = await bench.idle()
        finally:
            await polls.cleanup()
            await transport.close()
    found, notes = rows(starts, idle, asked.hosts)
    return table.show(found, notes, as_json=asked.json)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benches.node.run", description=__doc__)
    parser.add_argument("--hosts", type=int, default=25)
    parser.add_argument("--pods", type=int, default=50, help="at most two for each host")
    parser.add_argument("--every", type=float, default=0.5, help="seconds between two Pods")
    parser.add_argument("--json", action="store_true")
    found = parser.parse_args()
    if found.pods > 2 * found.hosts:
        parser.error("--pods: a host runs at most two VMs")
    return found


if __name__ == "__main__":
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory(prefix="runyard-bench-") as name:
        sys.exit(asyncio.run(main(arguments(), Path(name).resolve())))
