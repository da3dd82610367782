"""Simulates many runners: loops that poll for many Pods, each until its one job, and then as a new Pod.

There is no operator and no stop report: a Pod reappears under its old name with a new uid, which proves that its
earlier incarnation is gone. So the cost of a job is that of the server alone.
"""

import asyncio
import contextlib

from benches.recovery.fleet import Fleet
from benches.recovery.hosts import SPACE, Hosts
from benches.recovery.servers import LoadBalancer

from runyard.kube.errors import AlreadyExists, KubeError
from runyard.kube.kinds import PODS, SERVICE_ACCOUNTS
from runyard.sim.guest import Guest
from runyard.vm.contract import VmSpec
from runyard.wire import names

_LABELS = {names.RUNNER: "true", names.RUNNER_POOL: "pool"}


class Dispatcher:
    """One loop that polls for some Pods."""

    def __init__(self, fleet: Fleet, hosts: Hosts, number: int, *, pods: int) -> None:
        self._fleet = fleet
        self._hosts = hosts
        self._names = [f"d{number}-{pod}" for pod in range(pods)]
        balancer = LoadBalancer(fleet.servers, patience=0.0, first=number)
        self._guest = Guest(hosts, host=f"d{number}", server=balancer, over=lambda _: True)
        self.incarnations = 0
        self.ended = False  # set by a cancelled guest, which does not propagate the cancellation

    async def run(self) -> None:
        """Poll until cancelled."""
        async with asyncio.TaskGroup() as group:
            for name in self._names:
                group.create_task(self._poll_for(name))

    async def _poll_for(self, name: str) -> None:
        admin = self._fleet.admin
        account = {"metadata": {"name": name, "labels": _LABELS}}
        while True:
            self.incarnations += 1
            with contextlib.suppress(AlreadyExists):  # a deleted Pod's account is deleted too
                await admin.create(SERVICE_ACCOUNTS, account, namespace=SPACE)
            made = await admin.create(PODS, _pod(name), namespace=SPACE)
            uid = made["metadata"]["uid"]
            token = await admin.create_token(
                name,
                namespace=SPACE,
                audience=names.DISPATCH_AUDIENCE,
                seconds=names.GUEST_TOKEN_SECONDS,
                pod_name=name,
                pod_uid=uid,
            )
            env = {
                names.ENV_POD_NAME: name,
                names.ENV_POD_UID: uid,
                names.ENV_POOL: "pool",
                names.ENV_IDLE_TIMEOUT: "60",
            }
            spec = VmSpec(
                name=uid, image="", cpu_milli=0, memory_mb=0, env=tuple(env.items()), token=token
            )
            await self._guest.live(spec, "")
            if self.ended:
                return
            with contextlib.suppress(KubeError):  # the server may have deleted it
                await admin.delete(PODS, name, namespace=SPACE, uid=uid, grace=0)


def _pod(name: str) -> dict[str, object]:
    return {
        "metadata": {"name": name, "labels": _LABELS},
        "spec": {
            "serviceAccountName": name,
            "containers": [{"name": "runner", "image": "registry.example/runner:1"}],
        },
    }
