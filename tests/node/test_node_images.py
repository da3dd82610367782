"""The image store: one pull per image, no removal of what is used, room made when there is none."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec

from runyard.http.loopback import Loopback
from runyard.http.messages import Request, Response
from runyard.kube.client import Kube
from runyard.node.deps import Deps
from runyard.node.images import ImageStore
from runyard.node.plans.pod import ImageState
from runyard.node.records import Records
from runyard.node.settings import Settings
from runyard.node.vms import Vms
from runyard.sim.clock import VirtualClock
from runyard.sim.driver import Host, SimDriver
from runyard.sim.loop import run_virtual
from runyard.telemetry import conditions
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.log import get_logger
from runyard.telemetry.meter import Meter
from runyard.vm.contract import DriverFailed, VmSpec, VmState


class CountingDriver(SimDriver):
    """Remembers which pulls and removals were begun."""

    def __init__(self, clock: VirtualClock, host: Host) -> None:
        super().__init__(clock, host=host)
        self.calls: list[str] = []

    async def pull(self, image: str) -> None:
        self.calls.append(f"pull {image}")
        await super().pull(image)

    async def remove_image(self, image: str) -> None:
        self.calls.append(f"remove {image}")
        await super().remove_image(image)


class Shelf:
    """A store with its driver, its users and the keys that it woke."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        host = Host(bandwidth=10.0, image_bytes=100.0, disk=250.0, vm_bytes=0.0)
        self.driver = CountingDriver(self.clock, host)
        self.used: list[str] = []
        self.woken: list[str] = []

        async def nobody(request: Request) -> Response:
            return Response(status=500)

        self.deps = Deps(
            kube=Kube(Loopback(nobody)),
            driver=self.driver,
            records=Records(Path("/nowhere"), durable=False),
            clock=self.clock,
            rng=random.Random(1),
            meter=Meter(),
            log=get_logger("test"),
            settings=Settings(node_name="n", images_every=1e9),
            health=Health(self.clock, conditions.ALL),
            freshness=Freshness(self.clock),
        )
        self.store = ImageStore(
            self.deps, in_use=lambda: frozenset(self.used), wake=self.woken.append
        )


def on_shelf(scenario: Callable[[Shelf], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        shelf = Shelf()
        running = asyncio.get_running_loop().create_task(shelf.store.run())
        await shelf.clock.sleep(1)
        await scenario(shelf)
        running.cancel()

    run_virtual(main())


def test_everybody_who_waits_is_woken_by_one_pull() -> None:
    async def scenario(shelf: Shelf) -> None:
        for key in ("a", "b", "a"):
            shelf.store.request("i", key)
        assert shelf.store.facts("i").state is ImageState.PULLING
        await shelf.clock.sleep(5)
        shelf.store.request("i", "late")
        await shelf.clock.sleep(6)
        assert shelf.woken == ["a", "b", "late"]
        assert shelf.driver.calls == ["pull i"]
        assert shelf.store.facts("i").state is ImageState.HELD
        assert shelf.store.held == ("i",)

    on_shelf(scenario)


def test_who_only_looks_at_a_pull_is_woken_by_its_end_too() -> None:
    async def scenario(shelf: Shelf) -> None:
        shelf.store.request("i", "a")
        await shelf.clock.sleep(5)
        assert shelf.store.facts("i", "b").state is ImageState.PULLING
        await shelf.clock.sleep(6)
        assert shelf.woken == ["a", "b"]
        assert shelf.store.facts("i", "c").state is ImageState.HELD

    on_shelf(scenario)


def test_a_failed_pull_waits_longer_each_time_and_wakes_too() -> None:
    async def scenario(shelf: Shelf) -> None:
        waits: list[float] = []
        for _ in range(4):
            shelf.driver.fail("pull", DriverFailed("no route to \x1b the registry"))
            shelf.store.request("i", "a")
            await shelf.clock.sleep(0.1)
            facts = shelf.store.facts("i")
            assert facts.state is ImageState.FAILED and facts.error.isprintable()
            waits.append(facts.retry_in)
            await shelf.clock.sleep(facts.retry_in)
            assert shelf.store.facts("i").state is ImageState.ABSENT
        assert shelf.woken == ["a"] * 4
        assert all(late > 1.01 * early for early, late in zip(waits, waits[2:], strict=False))

    on_shelf(scenario)


def test_what_somebody_uses_or_waits_for_is_not_removed() -> None:
    async def scenario(shelf: Shelf) -> None:
        shelf.store.request("i", "a")
        await shelf.clock.sleep(11)
        shelf.used.append("i")
        assert await shelf.store.remove("i") is False
        assert await shelf.store.reclaim() == 0
        shelf.used.clear()
        assert await shelf.store.remove("i") is True
        assert shelf.store.facts("i").state is ImageState.ABSENT
        assert shelf.driver.calls[-1] == "remove i"

    on_shelf(scenario)


def test_an_image_on_its_way_out_is_absent_and_its_next_pull_waits() -> None:
    async def scenario(shelf: Shelf) -> None:
        shelf.store.request("i", "a")
        await shelf.clock.sleep(11)
        shelf.driver.hang("remove_image")
        removal = asyncio.get_running_loop().create_task(shelf.store.remove("i"))
        await shelf.clock.sleep(1)
        assert shelf.store.facts("i").state is ImageState.ABSENT
        shelf.store.request("i", "b")
        await shelf.clock.sleep(1)
        assert shelf.driver.calls.count("pull i") == 1
        removal.cancel()
        await shelf.clock.sleep(1)
        assert shelf.woken == ["a", "b"]

    on_shelf(scenario)


def test_a_full_disk_is_cleared_of_unused_images_and_the_pull_goes_on() -> None:
    async def scenario(shelf: Shelf) -> None:
        for image in ("one", "two", "three"):
            shelf.store.request(image, "a")
            await shelf.clock.sleep(15)
            shelf.used = ["two"]
        assert shelf.store.held == ("two", "three")
        assert shelf.store.facts("one").state is ImageState.ABSENT

    on_shelf(scenario)


def test_nothing_to_clear_is_a_failure_that_says_so() -> None:
    async def scenario(shelf: Shelf) -> None:
        shelf.used = ["one", "two"]
        for image in ("one", "two", "three"):
            shelf.store.request(image, "a")
            await shelf.clock.sleep(2 if image == "three" else 15)
        facts = shelf.store.facts("three")
        assert facts.state is ImageState.FAILED and "NoSpace" in facts.error
        assert shelf.store.held == ("one", "two")

    on_shelf(scenario)


def test_a_list_that_began_before_a_change_does_not_count_after_it() -> None:
    async def scenario(shelf: Shelf) -> None:
        changes: list[str] = []
        vms = Vms(shelf.deps, on_change=changes.append)
        await shelf.driver.pull("i")
        shelf.driver.host = msgspec.structs.replace(shelf.driver.host, list_seconds=10.0)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(vms.newer_than(0))
            await shelf.clock.sleep(5)
            spec = VmSpec(name="vm", image="i", cpu_milli=1, memory_mb=1)
            tasks.create_task(shelf.driver.create(spec))
            await shelf.clock.sleep(3)
            touched = vms.begun
        assert vms.seen <= touched, "the list in flight is not new enough"
        began = shelf.clock.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(5):
                tasks.create_task(vms.newer_than(touched))
        assert shelf.clock.monotonic() - began == 10.0, "five who ask share one list"
        found = vms.get("vm")
        assert found is not None and found.state is VmState.STOPPED
        assert changes == ["vm"]

    on_shelf(scenario)
