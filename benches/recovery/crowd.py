"""Many dispatchers: loops that keep many Pods asking for work, from a first poll to its one job and to the next life.

No operator and no stop reports here: a Pod comes back under its old name with a new uid, which proves that its
earlier incarnation is gone. So the cost of a job is the server's, not the fleet's around it.
"""

import asyncio
import contextlib

from benches.recovery.fleet import Fleet
from benches.recovery.hosts import SPACE, Hosts
from benches.recovery.servers import Way

from runyard.kube.errors import AlreadyExists, KubeError
from runyard.kube.kinds import PODS, SERVICE_ACCOUNTS
from runyard.sim.guest import Guest
from runyard.vm.contract import VmSpec
from runyard.wire import names

_LABELS = {names.RUNNER: "true", names.RUNNER_POOL: "pool"}


class Dispatcher:
    """One loop with some Pods."""

    def __init__(self, fleet: Fleet, hosts: Hosts, number: int, *, pods: int) -> None:
        self._fleet = fleet
        self._hosts = hosts
        self._names = [f"d{number}-{seat}" for seat in range(pods)]
        way = Way(fleet.servers, patience=0.0, first=number)
        self._guest = Guest(hosts, host=f"d{number}", server=way, over=lambda _: True)
        self.incarnations = 0
        self.ended = False  # a guest that is cancelled says how it ended, and does not pass that on

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for name in self._names:
                group.create_task(self._seat(name))

    async def _seat(self, name: str) -> None:
        admin = self._fleet.admin
        account = {"metadata": {"name": name, "labels": _LABELS}}
        while True:
            self.incarnations += 1
            with contextlib.suppress(AlreadyExists):  # one that was reaped took its account with it
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
            with contextlib.suppress(KubeError):  # the server may have reaped it
                await admin.delete(PODS, name, namespace=SPACE, uid=uid, grace=0)


def _pod(name: str) -> dict[str, object]:
    return {
        "metadata": {"name": name, "labels": _LABELS},
        "spec": {
            "serviceAccountName": name,
            "containers": [{"name": "runner", "image": "registry.example/runner:1"}],
        },
    }
