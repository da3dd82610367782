"""The client layer against the embedded Kubernetes API, under virtual time."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from runyard.embedded.kube.core import KubeCore
from runyard.embedded.kube.settings import Settings
from runyard.http.errors import NotSent, OutcomeUnknown
from runyard.http.loopback import Loopback
from runyard.http.messages import Request, Response, Stream, Transport
from runyard.kube.client import Kube
from runyard.kube.controller import Capacity, Controller, Result
from runyard.kube.errors import AlreadyExists, Conflict, Invalid, KubeError, NotFound
from runyard.kube.events import Recorder
from runyard.kube.kinds import CONFIG_MAPS, EVENTS, LEASES, NODES, PODS, SERVICE_ACCOUNTS
from runyard.kube.lease import renew_lease
from runyard.kube.objects import Bare, Lease, Pod, split_key
from runyard.kube.reflector import Pace, Reflector, Scope, WatchDeps
from runyard.kube.workqueue import WorkQueue
from runyard.sim.clock import VirtualClock
from runyard.sim.loop import run_virtual
from runyard.telemetry.catalogue import RUNYARD_WATCH_RESTARTS_TOTAL
from runyard.telemetry.log import get_logger
from runyard.telemetry.meter import Meter

NS = "default"


class Cluster:
    """One API and one client of it. Make it inside of the simulation."""

    def __init__(self, faults: float = 0.0, **settings: Any) -> None:
        self.clock = VirtualClock()
        self.dice = random.Random(11)
        self.core = KubeCore(clock=self.clock, rng=random.Random(5), settings=Settings(**settings))
        self.wire = Faulty(Loopback(self.core.handle), self.dice)
        self.wire.rate = faults
        self.kube = Kube(Loopback(self.core.handle))
        self.meter = Meter()

    async def put(self, name: str, **labels: str) -> dict[str, Any]:
        body = {"metadata": {"name": name, "labels": labels}}
        return await self.kube.create(CONFIG_MAPS, body, namespace=NS)

    def reflector(self, **how: Any) -> Reflector[Bare]:
        return Reflector(
            WatchDeps(
                kube=Kube(self.wire), clock=self.clock, rng=random.Random(3), meter=self.meter
            ),
            CONFIG_MAPS,
            Bare,
            scope=Scope(namespace=NS),
            pace=Pace(**{key: how.pop(key) for key in Pace.__struct_fields__ if key in how}),
            **how,
        )

    async def truth(self) -> dict[str, str]:
        listing = await self.kube.list(CONFIG_MAPS, namespace=NS)
        return {i["metadata"]["name"]: i["metadata"]["resourceVersion"] for i in listing.items}

    def restarts(self, cause: str) -> float:
        found = self.meter.get(RUNYARD_WATCH_RESTARTS_TOTAL, resource="configmaps", cause=cause)
        return found or 0.0


class Faulty:
    """A network that refuses requests, cuts streams, and drops, repeats and splits lines."""

    def __init__(self, inner: Transport, dice: random.Random) -> None:
        self._inner = inner
        self._dice = dice
        self.rate = 0.0

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        if self._hit():
            raise self._dice.choice([NotSent("refused"), OutcomeUnknown("cut")])
        answer = await self._inner.send(request, timeout=timeout)
        if not isinstance(answer, Stream) or not self.rate:
            return answer
        return Stream(Mangled(answer, self), on_close=None)

    def _hit(self) -> bool:
        return self._dice.random() < self.rate

    def mangle(self, chunk: bytes) -> list[bytes]:
        """Split one chunk into the pieces that arrive; the last piece may be a cut."""
        if not self._hit():
            return [chunk]
        half = self._dice.randrange(len(chunk))
        return self._dice.choice(
            [[], [chunk, chunk], [chunk[:half], chunk[half:]], [chunk[:half], b""]]
        )


class Mangled:
    """A stream through the faulty network; an empty piece is the cut."""

    def __init__(self, stream: Stream, wire: Faulty) -> None:
        self._stream = stream
        self._chunks = stream.__aiter__()
        self._wire = wire
        self._pieces: list[bytes] = []

    def __aiter__(self) -> "Mangled":
        return self

    async def __anext__(self) -> bytes:
        while not self._pieces:
            self._pieces = self._wire.mangle(await anext(self._chunks))
        piece = self._pieces.pop(0)
        if not piece:
            raise OutcomeUnknown("cut in the middle")
        return piece

    async def aclose(self) -> None:
        await self._stream.aclose()


def simulated(scenario: Callable[[], Awaitable[None]], *, seed: int = 0) -> None:
    async def main() -> None:
        await scenario()

    run_virtual(main(), seed=seed)


async def alongside(forever: Awaitable[None], work: Awaitable[None]) -> None:
    """Run an endless task for as long as the work takes."""

    async def main() -> None:
        await forever

    async with asyncio.TaskGroup() as group:
        task = group.create_task(main())
        await work
        task.cancel()


def test_preconditions_protect_an_object_from_a_stale_plan() -> None:
    async def scenario() -> None:
        kube = Cluster().kube
        made = await kube.create(SERVICE_ACCOUNTS, {"metadata": {"name": "a"}}, namespace=NS)
        uid, version = made["metadata"]["uid"], made["metadata"]["resourceVersion"]
        where = {"namespace": NS}
        label = {"metadata": {"labels": {"x": "y"}}}
        with pytest.raises(AlreadyExists):
            await kube.create(SERVICE_ACCOUNTS, {"metadata": {"name": "a"}}, namespace=NS)
        with pytest.raises(Conflict):
            await kube.patch(SERVICE_ACCOUNTS, "a", label, uid="another", **where)
        changed = await kube.patch(SERVICE_ACCOUNTS, "a", label, uid=uid, **where)
        assert changed["metadata"]["labels"] == {"x": "y"}
        with pytest.raises(Conflict):
            await kube.patch(SERVICE_ACCOUNTS, "a", label, resource_version=version, **where)
        with pytest.raises(Conflict):
            await kube.delete(SERVICE_ACCOUNTS, "a", uid="another", **where)
        with pytest.raises(Conflict):
            await kube.delete(SERVICE_ACCOUNTS, "a", resource_version=version, **where)
        await kube.delete(SERVICE_ACCOUNTS, "a", uid=uid, **where)
        with pytest.raises(NotFound):
            await kube.get(SERVICE_ACCOUNTS, "a", **where)
        with pytest.raises(NotFound):
            await kube.patch(SERVICE_ACCOUNTS, "a", label, **where)

    simulated(scenario)


def test_leases_and_events_are_written_to_the_embedded_api() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        kube = cluster.kube
        for second in (0.0, 10.0):
            await renew_lease(
                kube,
                name="h",
                namespace="kube-node-lease",
                holder="h",
                duration=40,
                now=cluster.clock.now() + second,
            )
        lease = await kube.get_as(LEASES, "h", Lease, namespace="kube-node-lease")
        assert lease.spec.holder_identity == "h"
        assert lease.spec.renew_time > lease.spec.acquire_time
        obj = await cluster.put("a")
        uid = obj["metadata"]["uid"]
        held_back = {"metadata": {"finalizers": ["x.dev/f"]}}
        await kube.patch(CONFIG_MAPS, "a", held_back, namespace=NS, uid=uid)
        await kube.delete(CONFIG_MAPS, "a", namespace=NS)
        held = await kube.get_as(CONFIG_MAPS, "a", Bare, namespace=NS)
        assert held.metadata.deletion_timestamp
        released: dict[str, Any] = {"metadata": {"finalizers": []}}
        await kube.patch(CONFIG_MAPS, "a", released, namespace=NS, uid=uid)
        with pytest.raises(NotFound):
            await kube.get(CONFIG_MAPS, "a", namespace=NS)
        recorder = Recorder(kube, component="t", clock=cluster.clock, rng=cluster.dice)
        for _ in range(3):
            await recorder.event(CONFIG_MAPS, held.metadata, type="Normal", reason="R", message="m")
        events = [
            item
            for item in (await kube.list(EVENTS, namespace=NS)).items
            if item["involvedObject"]["name"] == "a"
        ]
        assert [item["count"] for item in events] == [3]

    simulated(scenario)


def test_apply_tokens_and_status() -> None:
    async def scenario() -> None:
        kube = Cluster(schedule=False).kube
        body = {"metadata": {"labels": {"a": "1"}}}
        made = await kube.apply(SERVICE_ACCOUNTS, "sa", body, manager="one", namespace=NS)
        assert made["metadata"]["labels"] == {"a": "1"}
        other = {"metadata": {"labels": {"a": "2"}}}
        with pytest.raises(Conflict):
            await kube.apply(SERVICE_ACCOUNTS, "sa", other, manager="two", namespace=NS)
        await kube.apply(SERVICE_ACCOUNTS, "sa", other, manager="two", namespace=NS, force=True)
        spec = {"serviceAccountName": "sa", "containers": [{"name": "c", "image": "i"}]}
        pod = await kube.create(PODS, {"metadata": {"name": "p"}, "spec": spec}, namespace=NS)
        uid = pod["metadata"]["uid"]
        await kube.patch(
            PODS, "p", {"status": {"phase": "Running"}}, namespace=NS, subresource="status", uid=uid
        )
        assert (await kube.get_as(PODS, "p", Pod, namespace=NS)).status.phase == "Running"
        token = await kube.create_token(
            "sa", namespace=NS, audience="aud", seconds=600, pod_name="p", pod_uid=uid
        )
        good = await kube.review_token(token, audiences=("aud",))
        assert (good.authenticated, good.pod_name, good.pod_uid) == (True, "p", uid)
        assert good.username == f"system:serviceaccount:{NS}:sa"
        assert not (await kube.review_token(token, audiences=("other",))).authenticated
        await kube.delete(PODS, "p", namespace=NS, uid=uid, grace=0)
        assert not (await kube.review_token(token, audiences=("aud",))).authenticated
        with pytest.raises(Invalid):
            await kube.create(NODES, {"metadata": {"name": "NOT A NAME"}})

    simulated(scenario)


async def churn(cluster: Cluster, *, steps: int, pause: float) -> None:
    dice = random.Random(17)
    for number in range(steps):
        name = f"m{dice.randrange(25)}"
        try:
            if dice.random() < 0.4:
                await cluster.kube.delete(CONFIG_MAPS, name, namespace=NS)
            else:
                labels = {"metadata": {"labels": {"n": str(number)}}}
                await cluster.kube.patch(CONFIG_MAPS, name, labels, namespace=NS)
        except NotFound:
            await cluster.put(name)
        await cluster.clock.sleep(dice.random() * pause)


def listener_view(cluster: Cluster) -> tuple[dict[str, str], Callable[..., None]]:
    """Return a view that is built only from reported changes, and the listener that builds it."""
    view: dict[str, str] = {}

    def changed(key: str, old: Bare | None, new: Bare | None) -> None:
        name = split_key(key)[1]
        assert view.get(name) == (old.metadata.resource_version if old else None)
        if new is None:
            del view[name]
        else:
            view[name] = new.metadata.resource_version

    return view, changed


def stored(reflector: Reflector[Bare]) -> dict[str, str]:
    return {o.metadata.name: o.metadata.resource_version for o in reflector.store.values()}


async def restart(cluster: Cluster) -> None:
    cluster.core.close_watches()


async def expire(cluster: Cluster) -> None:
    cluster.core.expire_watches()


async def outage(cluster: Cluster) -> None:
    """The API is unreachable for a while, and has no history when it is back."""
    cluster.wire.rate = 1.0
    cluster.core.close_watches()
    await cluster.clock.sleep(15.0)
    cluster.core.compact()
    cluster.wire.rate = 0.0


async def nothing(cluster: Cluster) -> None:
    """No fault."""


Sabotage = Callable[[Cluster], Awaitable[None]]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("sabotage", "settings", "cause"),
    [
        pytest.param(nothing, {}, "resync", id="quiet"),
        pytest.param(nothing, {"bookmark_every": 5.0}, "resync", id="many bookmarks"),
        pytest.param(restart, {}, "closed", id="restarts of the server"),
        pytest.param(expire, {}, "gone", id="410 in a running stream"),
        pytest.param(outage, {}, "gone", id="compaction in an outage"),
        pytest.param(outage, {"gone_in_stream": False}, "gone", id="the same as a status"),
        pytest.param(outage, {"watch_buffer": 2, "history": 9}, "gone", id="short memory"),
    ],
)
def test_a_reflector_follows_an_api_in_motion(
    sabotage: Sabotage, settings: dict[str, Any], cause: str, seed: int
) -> None:
    async def scenario() -> None:
        cluster = Cluster(**settings)
        view, changed = listener_view(cluster)
        reflector = cluster.reflector(on_change=changed, resync=120.0)

        async def inject_faults() -> None:
            for _ in range(6):
                await cluster.clock.sleep(40.0)
                await sabotage(cluster)

        async def work() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(churn(cluster, steps=700, pause=1.0))
                group.create_task(inject_faults())
            await cluster.clock.sleep(20.0)  # the longest pause after a failure, and a little more

        await alongside(reflector.run(), work())
        assert stored(reflector) == view == await cluster.truth()
        assert cluster.restarts(cause) >= 2, "the scenario did not do what its name says"
        assert cluster.core.watcher_count("configmaps") == 0
        assert cluster.core.failures == {}

    simulated(scenario, seed=seed)


@pytest.mark.parametrize("seed", range(5))
def test_a_reflector_behind_a_faulty_network_reaches_the_state_of_the_api(seed: int) -> None:
    async def scenario() -> None:
        cluster = Cluster(faults=0.25)
        cluster.dice.seed(seed)
        view, changed = listener_view(cluster)
        reflector = cluster.reflector(on_change=changed, resync=60.0, mute_after=30.0)

        async def work() -> None:
            await churn(cluster, steps=400, pause=1.0)
            await cluster.clock.sleep(30.0)
            cluster.wire.rate = 0.0
            await cluster.clock.sleep(120.0)

        await alongside(reflector.run(), work())
        assert stored(reflector) == view == await cluster.truth()
        assert cluster.restarts("transport") > 3

    simulated(scenario, seed=seed)


def test_an_idle_watch_is_kept_alive_by_bookmarks_and_not_restarted() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        reflector = cluster.reflector(resync=3600.0)
        await alongside(reflector.run(), cluster.clock.sleep(3000.0))
        assert cluster.meter.total(RUNYARD_WATCH_RESTARTS_TOTAL) == 0

    simulated(scenario)


@pytest.mark.parametrize("seed", range(3))
def test_a_controller_brings_every_object_to_its_wanted_state(seed: int) -> None:
    async def scenario() -> None:
        cluster = Cluster(faults=0.1)
        queue = WorkQueue(clock=cluster.clock, rng=cluster.dice)
        reflector = cluster.reflector(on_change=lambda key, old, new: queue.add(key), resync=30.0)
        flaky = Kube(cluster.wire)

        async def reconcile(key: str) -> Result:
            obj = reflector.store.get(key)
            if obj is None or obj.metadata.labels.get("seen") == obj.metadata.labels.get("n"):
                return Result()
            seen = {"metadata": {"labels": {"seen": obj.metadata.labels.get("n")}}}
            meta = obj.metadata
            await flaky.patch(
                CONFIG_MAPS,
                meta.name,
                seen,
                namespace=NS,
                uid=meta.uid,
                resource_version=meta.resource_version,
            )
            return Result()

        controller = Controller(
            "pod-controller",
            reconcile,
            queue=queue,
            clock=cluster.clock,
            meter=cluster.meter,
            log=get_logger("test"),
            capacity=Capacity(workers=3),
        )

        async def both() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(reflector.run())
                group.create_task(controller.run())

        async def work() -> None:
            await churn(cluster, steps=300, pause=0.5)
            await cluster.clock.sleep(120.0)

        await alongside(both(), work())
        for item in (await cluster.kube.list(CONFIG_MAPS, namespace=NS)).items:
            labels = item["metadata"].get("labels", {})
            assert labels.get("seen") == labels.get("n")

    simulated(scenario, seed=seed)


def test_paging_sees_every_object_once() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        for number in range(25):
            await cluster.put(f"m{number:02}")
        paged = await cluster.kube.list(CONFIG_MAPS, namespace=NS, limit=4)
        names = [item["metadata"]["name"] for item in paged.items]
        assert names == [f"m{number:02}" for number in range(25)]
        with pytest.raises(KubeError):
            await cluster.kube.list(CONFIG_MAPS, namespace=NS, labels="((")

    simulated(scenario)
