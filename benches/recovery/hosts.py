"""Replaces the hosts of a fleet: binds every Pod, runs its guest as a task that polls over HTTP, publishes its end.

It does what a node agent does for a Pod, as far as server and operator can see it. The guest is the simulator's, which
does what the image's scripts do, with the real clock and a real socket.
"""

import asyncio
import contextlib
import random
from typing import Any

from runyard.clock import Clock
from runyard.embedded.github.core import GithubCore
from runyard.http.errors import TransportError
from runyard.http.messages import Transport
from runyard.kube.client import Kube
from runyard.kube.errors import Conflict, KubeError, NotFound
from runyard.kube.kinds import PODS
from runyard.kube.objects import Pod
from runyard.sim.guest import Fate, Guest, GuestView
from runyard.vm.contract import VmSpec
from runyard.wire import names

SPACE = names.RUNNERS_NAMESPACE
_LOOK = 0.1  # also without a wakeup


class Hosts:
    """All Pods of a fleet and their guests. Implements the guest's `GuestWorld`."""

    def __init__(
        self,
        admin: Kube,
        server: Transport,
        *,
        github: GithubCore,
        wakeup: asyncio.Event,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self.clock, self.rng, self.github = clock, rng, github
        self.guests: dict[str, GuestView] = {}
        self.pollers: dict[str, GuestView] = {}
        self.github_reachable = True
        self.ended = False  # all guests are powered off
        self.wakeup = wakeup  # set at every change of a Pod
        self.fates: dict[Fate, int] = {}  # how many guests are still to fail, and in which way
        self.node = "host"  # where Pods are bound
        self._lost: set[str] = set()  # uids of Pods on lost nodes
        self.jits: list[tuple[str, str]] = []  # (Pod uid, JIT) as they arrived
        self._admin = admin
        self._guest = Guest(self, host="host", server=server, over=self._is_over)
        self._over: set[str] = set()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def fate(self, kind: Fate, guest: GuestView) -> bool:
        left = self.fates.get(kind, 0)
        self.fates[kind] = max(0, left - 1)
        return left > 0

    def delivered(self, guest: GuestView, jit: str) -> None:
        self.jits.append((guest.uid, jit))

    def die(self, guest: GuestView) -> None:
        """Power off a guest: it sends nothing more, and the agent sees a VM that ended."""
        self._over.add(guest.vm)
        self._tasks[guest.uid].cancel()

    def lose(self, *, then: str) -> None:
        """Lose a node with all its Pods: it publishes nothing any more, and another one is created."""
        self.node = then
        for guest in list(self.guests.values()):
            self._lost.add(guest.uid)
            self.die(guest)

    def _is_over(self, vm: str) -> bool:
        return self.ended or vm in self._over

    async def run(self) -> None:
        """Serve every Pod until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self.wakeup.clear()
                with contextlib.suppress(TransportError):
                    for pod in await self._admin.list_as(PODS, Pod, namespace=SPACE):
                        self._look_at(pod, group)
                try:
                    async with asyncio.timeout(_LOOK):
                        await self.wakeup.wait()
                except TimeoutError:
                    pass

    def _look_at(self, pod: Pod, group: asyncio.TaskGroup) -> None:
        uid = pod.metadata.uid
        if uid in self._lost:
            return
        task = self._tasks.get(uid)
        if task is None and not pod.metadata.deletion_timestamp:
            self._tasks[uid] = group.create_task(self._live(pod))
        elif pod.metadata.deletion_timestamp and (task is None or task.done()):
            self._tasks[uid] = group.create_task(self._confirm(pod))
        elif task is not None and pod.metadata.deletion_timestamp and not task.cancelling():
            self._over.add(uid)  # after its grace a hanging guest is powered off as well
            task.cancel()

    async def _live(self, pod: Pod) -> None:
        """Run one Pod from its binding to its result."""
        meta = pod.metadata
        try:
            await self._bind(pod)
            token = await self._admin.create_token(
                meta.name,
                namespace=SPACE,
                audience=names.DISPATCH_AUDIENCE,
                seconds=names.GUEST_TOKEN_SECONDS,
                pod_name=meta.name,
                pod_uid=meta.uid,
            )
            await self._publish(pod, {"phase": "Running"})
            env = {
                names.ENV_POD_NAME: meta.name,
                names.ENV_POD_UID: meta.uid,
                names.ENV_POOL: meta.labels.get(names.RUNNER_POOL, ""),
            }
            spec = VmSpec(
                name=meta.uid,
                image="",
                cpu_milli=0,
                memory_mb=0,
                env=tuple(env.items()),
                token=token,
            )
            code = await self._guest.live(spec, "")
        except (KubeError, TransportError, asyncio.CancelledError):
            code = 1
        if meta.uid not in self._lost:
            await self._publish(pod, {"phase": "Failed" if code else "Succeeded"})
        self.wakeup.set()

    async def _bind(self, pod: Pod) -> None:
        meta = pod.metadata
        path = PODS.object_path(meta.name, namespace=SPACE, subresource="binding")
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": meta.name, "uid": meta.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self.node},
        }
        await self._admin._call("POST", path, body=body)

    async def _publish(self, pod: Pod, status: dict[str, Any]) -> None:
        """Publish a result until the API acknowledges it, as an agent does."""
        meta = pod.metadata
        while True:
            try:
                await self._admin.patch(
                    PODS,
                    meta.name,
                    {"status": status},
                    namespace=SPACE,
                    subresource="status",
                    uid=meta.uid,
                )
                return
            except (NotFound, Conflict):
                return  # the Pod is gone
            except TransportError:  # this machine is busy
                await self.clock.sleep(_LOOK)

    async def _confirm(self, pod: Pod) -> None:
        try:
            await self._admin.delete(
                PODS, pod.metadata.name, namespace=SPACE, uid=pod.metadata.uid, grace=0
            )
        except (NotFound, Conflict, TransportError):
            return  # gone, or published again at the next step
