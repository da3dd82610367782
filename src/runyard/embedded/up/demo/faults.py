"""The demo's four faults: each is applied to the running fleet, which is then watched until it has recovered."""

import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from runyard.clock import Clock
from runyard.embedded.up.demo.events import DemoListener, Fault, FaultView
from runyard.embedded.up.demo.observer import SPACE, Observer, busy
from runyard.embedded.up.faults import armed_after_stamp
from runyard.embedded.up.practice import ACCOUNT, IMAGES, POOL
from runyard.files import write_whole
from runyard.http.errors import TransportError
from runyard.kube.errors import KubeError
from runyard.kube.kinds import PODS, RUNNER_POOLS, SERVICE_ACCOUNTS
from runyard.wire import names

CHECK_EVERY = 0.1
GIVE_UP = 45.0


class NotRecovered(Exception):
    """The fleet did not recover in time; the message names the fault and the log to read."""


class Faults:
    """Applies faults to the running fleet."""

    def __init__(self, observer: Observer, *, clock: Clock, listener: DemoListener) -> None:
        self._observer = observer
        self._machine = observer.machine
        self._clock = clock
        self._listener = listener

    async def kill_agent(self) -> FaultView:
        """Kills the first host's agent with SIGKILL while its VMs run."""
        host = self._machine.hosts[0]
        pid, killed_at = self._machine.supervisor.pid(host), self._clock.now()
        fault = self._begin(
            Fault.AGENT_KILLED,
            "the killed node agent",
            f"kill -9 of the node agent of {host} (process {pid})",
        )
        os.kill(pid, signal.SIGKILL)

        async def back() -> bool:
            new = self._machine.supervisor.pid(host)
            return new not in (0, pid) and await self._observer.lease_renewed(host) > killed_at

        return await self._until(back, fault, log=host)

    async def kill_server_between_stamp_and_commit(
        self, queue: Callable[[], Awaitable[None]]
    ) -> FaultView:
        """Kills the server when a Pod is stamped and Postgres does not know it yet."""
        machine = self._machine
        pid = machine.supervisor.pid("server")
        armed = armed_after_stamp(machine.layout)
        write_whole(armed, "")
        fault = self._begin(
            Fault.SERVER_KILLED,
            "the server killed between stamp and commit",
            "the server will be killed right after its next stamp, before its commit",
        )
        await queue()
        await self._wait(lambda: _gone(armed), "the kill of the server", log="server")
        self._listener.report(
            f"the server (process {pid}) was killed, with a Pod stamped and nothing committed"
        )
        stamped = {pod["metadata"]["uid"] for pod in await self._observer.pods() if busy(pod)}

        async def resolved() -> bool:
            if machine.supervisor.pid("server") in (0, pid):
                return False
            slots = {slot["pod_uid"]: slot["state"] for slot in await self._observer.slots()}
            return all(slots.get(uid) not in ("offered", "armed") for uid in stamped)

        return await self._until(resolved, fault, log="server")

    async def leak_a_stamped_pod(self) -> FaultView:
        """Stamps a Pod as busy that belongs to no job: an incident that once stopped a whole fleet."""
        pod = await self._idle_pod()
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        fault = self._begin(
            Fault.POD_LEAKED,
            "the leaked stamped Pod",
            f"{name} is stamped as busy by hand, and belongs to no job",
        )
        stamp = {"metadata": {"uid": uid, "labels": {names.POOL_OWNER: ACCOUNT}}}
        await self._machine.kube.patch(PODS, name, stamp, namespace=SPACE)

        async def reaped() -> bool:
            pods = {each["metadata"]["uid"] for each in await self._observer.pods()}
            accounts = await self._machine.kube.list(SERVICE_ACCOUNTS, namespace=SPACE)
            names_left = {each["metadata"]["name"] for each in accounts.items}
            return uid not in pods and name not in names_left

        return await self._until(reaped, fault, log="server")

    async def roll_the_image(self) -> FaultView:
        """Sets a new image for the whole pool while jobs run."""
        fault = self._begin(
            Fault.IMAGE_ROLLED,
            "the image roll",
            f"the pool's image becomes {IMAGES[1]} while jobs run",
        )
        spec = {"spec": {"image": IMAGES[1]}}
        await self._machine.kube.patch(RUNNER_POOLS, POOL, spec, namespace=SPACE)

        async def rolled() -> bool:
            pods = [
                pod
                for pod in await self._observer.pods()
                if "deletionTimestamp" not in pod["metadata"]
            ]
            replicas = int((await self._observer.pool())["spec"]["replicas"])
            new = [
                pod
                for pod in pods
                if pod["spec"]["containers"][0]["image"] == IMAGES[1]
                and pod["status"].get("phase") == "Running"
            ]
            return len(new) == len(pods) == replicas

        return await self._until(rolled, fault, log="operator")

    async def _idle_pod(self) -> dict[str, Any]:
        found: list[dict[str, Any]] = []

        async def one() -> bool:
            waiting = {s["pod_uid"] for s in await self._observer.slots() if s["state"] == "idle"}
            found[:] = [
                pod
                for pod in await self._observer.pods()
                if not busy(pod) and pod["metadata"]["uid"] in waiting
            ]
            return bool(found)

        await self._wait(one, "an idle runner", log="operator")
        return found[0]

    def _begin(self, fault: Fault, what: str, detail: str) -> FaultView:
        view = FaultView(fault=fault, what=what, detail=detail)
        self._listener.fault(view)
        return view

    async def _until(
        self, healed: Callable[[], Awaitable[bool]], fault: FaultView, *, log: str
    ) -> FaultView:
        seconds = await self._wait(healed, fault.what, log=log)
        over = msgspec.structs.replace(fault, seconds=round(seconds, 3))
        self._listener.fault(over)
        return over

    async def _wait(
        self, condition: Callable[[], Awaitable[bool]], what: str, *, log: str
    ) -> float:
        began = self._clock.monotonic()
        while True:
            try:
                if await condition():
                    return self._clock.monotonic() - began
            except (KubeError, TransportError):
                pass  # a component is being restarted, as intended
            if self._clock.monotonic() - began > GIVE_UP:
                path = self._machine.layout.log(log)
                raise NotRecovered(f"{what}: not healed within {GIVE_UP:g} s; see {path}")
            await self._clock.sleep(CHECK_EVERY)


async def _gone(path: Path) -> bool:
    return not path.exists()
