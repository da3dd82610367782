"""One host of the crash matrix: its stand-in tart, its killable agent, and the Pods that it runs one after another."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Literal

import msgspec
from tests.conformance.kube import clusters
from tests.conformance.kube.clusters import Cluster
from tests.node.crashes import effects
from tests.node.crashes.polls import Jobs
from tests.standins.tart.helper import StandIn

from runyard.clock import RealClock
from runyard.embedded.kube.kubeconfig import render
from runyard.embedded.up.layout import Layout
from runyard.http.client import HttpTransport
from runyard.kube.client import Kube
from runyard.kube.errors import Conflict, NotFound
from runyard.kube.kinds import PODS, SERVICE_ACCOUNTS
from runyard.node.facts import HostPod
from runyard.vm.guest.image import build_image
from runyard.vm.tart.golden import golden_name
from runyard.wire import names

Mode = Literal["host", "guest"]
MODES: tuple[Mode, ...] = ("host", "guest")
SPACE = names.RUNNERS_NAMESPACE
IMAGE = "registry.test/mac/runner:1"
FOREIGN = "packer-build"
CODE = 7  # of every job: neither success nor what a failure of the host looks like
ENDED = ("Succeeded", "Failed")
_BOOT = """#!/bin/sh
export RUNYARD_ENV_DIR="$STANDIN_SHARES/env" RUNYARD_TOKEN_DIR="$STANDIN_SHARES/token"
export RUNYARD_STATUS_DIR="$STANDIN_SHARES/status" RUNYARD_RUN_DIR="$HOME/run" RUNYARD_WORK_DIR="$HOME/work"
export RUNYARD_POLL_PAUSE=0.1
exec ./boot.sh
"""
_JOB = """#!/bin/sh
echo "begin $STANDIN_VM" >>'{root}/jobs'
until [ -e "{root}/go/$STANDIN_VM" ]; do sleep 0.05; done
echo "end $STANDIN_VM" >>'{root}/jobs'
exit {code}
"""


class Ended(msgspec.Struct, frozen=True):
    """A terminal status of a Pod."""

    phase: str
    code: int
    message: str = ""


class Host:
    """One Mac."""

    def __init__(self, node: str, root: Path, cluster: Cluster, kube: Kube, jobs: Jobs) -> None:
        self.node, self.root, self.cluster, self.kube, self.jobs = node, root, cluster, kube, jobs
        self.folder = root / "crashes"
        self.log = root / "agent.log"
        self.clock = RealClock()
        self.pods: dict[str, HostPod] = {}  # as the watch shows them
        self.ended: dict[str, list[Ended]] = {}  # every terminal status that a Pod has had
        self.agent: asyncio.subprocess.Process | None = None
        self.starts = 0
        self.tart = StandIn(root)
        for folder in (self.folder, root / "go"):
            folder.mkdir()
        self.images: dict[Mode, str] = {"host": self._image("host"), "guest": self._image("guest")}
        self.tart.image("registry.test/others/image:1", {"boot": "#!/bin/sh\n"})
        self.tart.create(FOREIGN)
        self.tart.start(FOREIGN)
        self.order(life="")

    def _image(self, mode: Mode) -> str:
        job = _JOB.format(root=self.root, code=CODE)
        if mode == "host":
            return self.tart.image("registry.test/mac/stock:1", {"actions-runner/run.sh": job})
        runner = self.root / "runner"
        runner.mkdir()
        (runner / "run.sh").write_text(job)
        built = build_image(self.root / "image", runner=runner)
        files = {
            str(path.relative_to(built)): path.read_text()
            for path in sorted(built.rglob("*"))
            if path.is_file()
        }
        return self.tart.image(IMAGE, {**files, "boot": _BOOT})

    # ── the agent ───────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Start the agent; it serves soon."""
        argv = [
            *(sys.executable, "-m", "tests.node.crashes.agent", str(self.folder)),
            *(f"--node-name={self.node}", f"--kubeconfig={self.root / 'kubeconfig'}"),
            *(f"--data={self.root / 'agent'}", f"--tart-binary={self.tart.program}"),
            *("--metrics-bind-address=0", "--health-probe-bind-address=0", "--poller=guest"),
        ]
        self.starts += 1
        with self.log.open("ab") as log:
            self.agent = await asyncio.create_subprocess_exec(
                *argv,
                stdout=log,
                stderr=log,
                env={**self.tart.environment, "PYTHONPATH": os.pathsep.join(sys.path)},
            )

    async def keep_running(self) -> None:
        """Start the agent again if it has died."""
        if self.agent is None or self.agent.returncode is not None:
            await self.start()

    async def kill(self) -> None:
        """Kill the agent."""
        if self.agent is not None:
            with contextlib.suppress(ProcessLookupError):
                self.agent.send_signal(signal.SIGKILL)
            await self.agent.wait()

    def order(self, **order: Any) -> None:
        """Give the agent and its shims an order; they count effects from now on."""
        effects.put(str(self.folder / "order.json"), json.dumps(order))

    def journal(self, life: str) -> list[dict[str, Any]]:
        """The effects of one life."""
        path = self.folder / "journal"
        lines = path.read_text().splitlines() if path.exists() else []
        return [each for line in lines if (each := json.loads(line))["life"] == life]

    def lists(self) -> int:
        """How often an agent has begun a list of VMs since effects are counted."""
        path = self.folder / "journal"
        return path.read_text().count('"start tart list') if path.exists() else 0

    # ── Pods ────────────────────────────────────────────────────────────────────────────────────

    async def add_pod(self, name: str, mode: Mode) -> None:
        """A runner's Pod that is bound to this host."""
        # The guests of the stand-in are processes of this machine; the agent refuses a loopback address by its name.
        url = self.jobs.url(name, host="127.0.0.1" if mode == "host" else "0.0.0.0")
        env = [{"name": names.ENV_DISPATCH_URL, "value": url}]
        body = {
            "metadata": {
                "name": name,
                "labels": {names.RUNNER: "true"},
                "annotations": {names.POLLER: mode},
            },
            "spec": {
                "nodeName": self.node,
                "serviceAccountName": self.node,
                "automountServiceAccountToken": True,
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 2,
                "containers": [{"name": "main", "image": self.images[mode], "env": env}],
            },
        }
        await self.kube.create(PODS, body, namespace=SPACE)

    async def delete_pod(self, name: str) -> None:
        """Ask for its deletion."""
        with contextlib.suppress(NotFound, Conflict):
            await self.kube.delete(PODS, name, namespace=SPACE)

    def seen(self, key: str, old: HostPod | None, new: HostPod | None) -> None:
        """Take over what the watch shows."""
        name = key.partition("/")[2]
        if new is None:
            self.pods.pop(name, None)
            return
        self.pods[name] = new
        if new.status.phase in ENDED:
            state = new.status.container_statuses[0].state.terminated
            ended = Ended(
                new.status.phase, -1 if state is None else state.exit_code, new.status.message
            )
            found = self.ended.setdefault(name, [])
            if not found or found[-1] != ended:
                found.append(ended)

    async def until(self, holds: Callable[[], bool], *, within: float, strict: bool = True) -> bool:
        """Wait until it holds; returns whether it does, or with `strict` raises."""
        until = self.clock.monotonic() + within
        while not (held := holds()) and self.clock.monotonic() < until:
            await self.clock.sleep(0.05)
        assert held or not strict, self.log.read_text()[-3000:]
        return held

    def terminal(self, name: str) -> bool:
        """Whether the Pod has a result."""
        return name in self.ended

    def present(self, name: str) -> bool:
        """Whether the API has the Pod."""
        return name in self.pods

    async def forget_image(self, mode: Mode) -> None:
        """Delete the golden VM of the image, as if no VM was made from it before."""
        folder = self.root / "agent" / "vm" / "tart" / "goldens"
        golden = golden_name(self.images[mode], folder)
        await asyncio.to_thread(self.tart.call, "delete", golden)
        (folder / f"{golden}.json").unlink()

    # ── jobs ────────────────────────────────────────────────────────────────────────────────────

    def lines(self, word: str, vm: str) -> int:
        """How many jobs have begun or ended in a VM, by the beginning of its name."""
        path = self.root / "jobs"
        lines = path.read_text().splitlines() if path.exists() else []
        return sum(1 for line in lines if line.startswith(f"{word} {vm}"))

    def go_on(self, vm: str) -> None:
        """Let the job in this VM end."""
        (self.root / "go" / vm).touch()


@contextlib.asynccontextmanager
async def open_host(
    node: str, root: Path, cluster: Cluster, kube: Kube, jobs: Jobs
) -> AsyncIterator[Host]:
    """A host whose account exists; its agent, VMs and shims end with it."""
    host = Host(node, root, cluster, kube, jobs)
    try:
        await kube.create(SERVICE_ACCOUNTS, {"metadata": {"name": node}}, namespace=SPACE)
        yield host
    finally:
        await host.kill()
        host.tart.close()


async def prepare(cluster: Cluster, folder: Path, nodes: tuple[str, ...]) -> None:
    """Create the accounts of these hosts and write their kubeconfigs into folders of their names."""
    layout = Layout(folder / "cluster")
    (layout.root / "tokens").mkdir(parents=True)
    transport = cluster.transport()
    try:
        await clusters.prepare(cluster, transport, layout, nodes)
    finally:
        await transport.close()
    for node in nodes:
        (folder / node).mkdir()
        token = (layout.root / "tokens" / node).read_text().strip()
        text = render(cluster.url, token=token, ca=cluster.authority.certificate)
        (folder / node / "kubeconfig").write_text(text)


def admin(cluster: Cluster) -> tuple[Kube, HttpTransport]:
    """The administrator's client."""
    transport = cluster.transport()
    return Kube(transport, token=lambda: cluster.admin), transport
