"""Tests the image store: one pull per image, no removal of images in use, space freed when the disk is full."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.node.images_harness import (
    OLD,
    SETTINGS,
    TAG,
    CountingDriver,
    ImagesHarness,
    run_images,
)

from runyard.node.owned_images import OwnedImages
from runyard.node.plans.images import ImageState
from runyard.node.vms import Vms
from runyard.sim.clock import VirtualClock
from runyard.sim.driver import Host
from runyard.vm.contract import (
    DriverFailed,
    Fault,
    PullProgress,
    VmSpec,
    VmState,
    ignore_progress,
)

LISTING = msgspec.structs.replace(SETTINGS, images_every=60.0)


def test_one_pull_wakes_all_waiting_keys() -> None:
    async def scenario(harness: ImagesHarness) -> None:
        for key in ("a", "b", "a"):
            harness.store.request("i", key)
        assert harness.store.facts("i").state is ImageState.PULLING
        await harness.clock.sleep(5)
        harness.store.request("i", "late")
        await harness.clock.sleep(6)
        assert harness.woken == ["a", "b", "late"]
        assert harness.driver.calls == ["pull i"]
        assert harness.store.facts("i").state is ImageState.HELD
        assert harness.store.held == ("i",)

    run_images(scenario)


def test_a_key_that_read_the_state_of_a_pull_is_woken_at_its_end() -> None:
    async def scenario(harness: ImagesHarness) -> None:
        harness.store.request("i", "a")
        await harness.clock.sleep(5)
        assert harness.store.facts("i", "b").state is ImageState.PULLING
        await harness.clock.sleep(6)
        assert harness.woken == ["a", "b"]
        assert harness.store.facts("i", "c").state is ImageState.HELD

    run_images(scenario)


def test_a_failed_pull_backs_off_and_wakes_the_waiting_keys() -> None:
    async def scenario(harness: ImagesHarness) -> None:
        waits: list[float] = []
        for _ in range(4):
            harness.driver.fail("pull", DriverFailed("no route to \x1b the registry"))
            harness.store.request("i", "a")
            await harness.clock.sleep(0.1)
            facts = harness.store.facts("i")
            assert facts.state is ImageState.FAILED and facts.error.isprintable()
            waits.append(facts.retry_in)
            await harness.clock.sleep(facts.retry_in)
            assert harness.store.facts("i").state is ImageState.ABSENT
        assert harness.woken == ["a"] * 4
        assert all(late > 1.01 * early for early, late in zip(waits, waits[2:], strict=False))

    run_images(scenario)


def test_an_image_in_use_is_not_removed() -> None:
    async def scenario(harness: ImagesHarness) -> None:
        harness.store.request("i", "a")
        await harness.clock.sleep(11)
        harness.used.append("i")
        assert await harness.store.remove("i") is False
        assert await harness.store.reclaim() == 0
        harness.used.clear()
        assert await harness.store.remove("i") is True
        assert harness.store.facts("i").state is ImageState.ABSENT
        assert harness.driver.calls[-1] == "remove i"

    run_images(scenario)


def test_an_image_being_removed_is_absent_and_its_next_pull_waits() -> None:
    async def scenario(harness: ImagesHarness) -> None:
        harness.store.request("i", "a")
        await harness.clock.sleep(11)
        harness.driver.hang("remove_image")
        removal = asyncio.get_running_loop().create_task(harness.store.remove("i"))
        await harness.clock.sleep(1)
        assert harness.store.facts("i").state is ImageState.ABSENT
        harness.store.request("i", "b")
        await harness.clock.sleep(1)
        assert harness.driver.calls.count("pull i") == 1
        removal.cancel()
        await harness.clock.sleep(1)
        assert harness.woken == ["a", "b"]

    run_images(scenario)


def test_a_full_disk_is_cleared_of_unused_images_and_the_pull_continues() -> None:
    async def scenario(harness: ImagesHarness) -> None:
        for image in ("one", "two", "three"):
            harness.store.request(image, "a")
            await harness.clock.sleep(15)
            harness.used = ["two"]
        assert harness.store.held == ("two", "three")
        assert harness.store.facts("one").state is ImageState.ABSENT

    run_images(scenario)


def test_a_full_disk_without_unused_images_fails_the_pull() -> None:
    async def scenario(harness: ImagesHarness) -> None:
        harness.used = ["one", "two"]
        for image in ("one", "two", "three"):
            harness.store.request(image, "a")
            await harness.clock.sleep(2 if image == "three" else 15)
        facts = harness.store.facts("three")
        assert (facts.state, facts.fault) == (ImageState.FAILED, Fault.NO_SPACE)
        assert harness.store.held == ("one", "two")

    run_images(scenario)


def test_a_list_that_began_before_a_change_is_not_used_after_it() -> None:
    async def scenario(harness: ImagesHarness) -> None:
        changes: list[str] = []
        vms = Vms(harness.deps, on_change=changes.append, on_list=lambda views: None)
        await harness.driver.pull("i")
        harness.driver.host = msgspec.structs.replace(harness.driver.host, list_seconds=10.0)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(vms.newer_than(0))
            await harness.clock.sleep(5)
            spec = VmSpec(name="vm", image="i", cpu_milli=1, memory_mb=1)
            tasks.create_task(harness.driver.create(spec))
            await harness.clock.sleep(3)
            touched = vms.begun
        assert vms.seen <= touched, "the list in flight is not new enough"
        began = harness.clock.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(5):
                tasks.create_task(vms.newer_than(touched))
        assert harness.clock.monotonic() - began == 10.0, "five callers share one list"
        found = vms.get("vm")
        assert found is not None and found.state is VmState.STOPPED
        assert changes == ["vm"]

    run_images(scenario)


def test_an_image_that_another_tool_pulled_is_used_and_never_removed() -> None:
    async def scenario(harness: ImagesHarness) -> None:
        await harness.driver.pull("theirs")  # by hand, after our last list
        harness.store.request("theirs", "a")
        await harness.clock.sleep(1)
        assert harness.store.facts("theirs").state is ImageState.HELD
        assert harness.driver.calls == ["pull theirs"], "only their own pull"
        assert await harness.store.remove("theirs") is False
        assert await harness.store.reclaim() == 0
        assert not any(held.owned for held in harness.store.snapshot())

    run_images(scenario)


@pytest.mark.parametrize("guarded", [True, False])
def test_an_image_of_others_is_kept_because_it_has_no_record(
    guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not guarded:
        monkeypatch.setattr(OwnedImages, "__contains__", lambda self, reference: True)

    async def scenario(harness: ImagesHarness) -> None:
        await harness.driver.pull("theirs")
        await harness.store.refresh()
        await harness.store.reclaim()
        kept = "remove theirs" not in harness.driver.calls
        assert kept is guarded

    run_images(scenario)


def test_an_image_that_others_pulled_after_ours_was_deleted_is_theirs() -> None:
    async def scenario(harness: ImagesHarness) -> None:
        harness.store.request("shared", "a")
        await harness.clock.sleep(11)
        assert [held.owned for held in harness.store.snapshot()] == [True]
        await harness.driver.remove_image("shared")  # by a person, with `tart delete`
        await harness.clock.sleep(900)
        await harness.driver.pull("shared")  # and again by hand
        await harness.clock.sleep(900)
        assert [held.owned for held in harness.store.snapshot()] == [False]
        assert await harness.store.remove("shared") is False

    run_images(scenario, settings=LISTING)


def test_an_image_whose_pull_lasts_longer_than_lists_do_is_ours() -> None:
    async def scenario(harness: ImagesHarness) -> None:
        harness.driver.slow_down(0.05)
        harness.store.request("large", "a")
        await harness.clock.sleep(1900)
        assert harness.store.facts("large").state is ImageState.PULLING
        await harness.clock.sleep(200)
        assert [held.owned for held in harness.store.snapshot()] == [True]

    run_images(scenario, settings=LISTING)


def test_an_image_that_an_earlier_agent_pulled_is_still_ours(tmp_path: Path) -> None:
    async def scenario(harness: ImagesHarness) -> None:
        harness.store.request("ours", "a")
        await harness.clock.sleep(11)
        harness.deps.records.images.load()
        again = harness.reopened()
        await again.refresh()
        assert [held.owned for held in again.snapshot()] == [True]
        assert await again.remove("ours") is True
        harness.deps.records.images.load()
        assert "ours" not in harness.deps.records.images

    run_images(scenario, tmp_path)


def test_without_garbage_collection_a_full_disk_removes_nothing() -> None:
    async def scenario(harness: ImagesHarness) -> None:
        for image in ("one", "two", "three"):
            harness.store.request(image, "a")
            await harness.clock.sleep(2 if image == "three" else 15)
        assert harness.store.held == ("one", "two")
        assert harness.store.facts("three").fault is Fault.NO_SPACE
        assert not any(call.startswith("remove") for call in harness.driver.calls)

    run_images(scenario, settings=msgspec.structs.replace(SETTINGS, gc=False))


def test_a_slow_pull_that_advances_completes_and_wakes_its_pods_on_the_way() -> None:
    async def scenario(harness: ImagesHarness) -> None:
        harness.driver.registry = {"big": 200.0}
        harness.driver.slow_down(200.0 / 2400)  # 40 minutes
        harness.store.request("big", "a")
        await harness.clock.sleep(1200)
        pull = harness.store.facts("big").pull
        assert pull is not None and 49 < pull.percent < 51
        assert len(harness.woken) > 60, "its Pod is queued every quarter of a minute"
        await harness.clock.sleep(1205)
        assert harness.store.facts("big").state is ImageState.HELD

    run_images(scenario)


def test_a_pull_that_stands_still_is_ended_with_its_reason() -> None:
    async def scenario(harness: ImagesHarness) -> None:
        harness.driver.stall_pulls()
        harness.store.request("big", "a")
        await harness.clock.sleep(harness.driver.host.stall_seconds + 1)
        facts = harness.store.facts("big")
        assert (facts.state, facts.fault) == (ImageState.FAILED, Fault.PULL_STALLED)

    run_images(scenario)


def test_a_driver_that_never_ends_a_pull_is_given_up() -> None:
    async def scenario(harness: ImagesHarness) -> None:
        harness.driver.hang("pull")
        harness.store.request("big", "a")
        await harness.clock.sleep(SETTINGS.deadlines.pull_stall + 1)
        facts = harness.store.facts("big")
        assert (facts.state, facts.fault) == (ImageState.FAILED, Fault.PULL_STALLED)
        assert "no progress for 900 s at 0 %" in facts.error

    run_images(scenario)


class OneAtATime(CountingDriver):
    """Pulls one image at a time, as tart does from one registry, and reports every half minute."""

    def __init__(self, clock: VirtualClock, host: Host) -> None:
        super().__init__(clock, host)
        self.clock = clock
        self.turn = asyncio.Lock()
        self.percents: dict[str, float] = {}

    async def pull(
        self, image: str, *, progress: Callable[[PullProgress], None] = ignore_progress
    ) -> None:
        mine = False

        async def report() -> None:
            while True:
                await self.clock.sleep(30.0)
                progress(PullProgress(percent=self.percents.get(image, 0.0) if mine else 0.0))

        reporting = asyncio.get_running_loop().create_task(report())
        try:
            async with self.turn:
                mine = True
                await self.clock.sleep(2400.0)
                await super().pull(image)
        finally:
            reporting.cancel()


def test_an_image_that_waits_for_the_pull_of_another_one_is_not_given_up() -> None:
    async def scenario(harness: ImagesHarness) -> None:
        driver = OneAtATime(harness.clock, harness.driver.host)
        harness.deps = msgspec.structs.replace(harness.deps, driver=driver)
        harness.driver = driver
        store = harness.reopened()
        running = asyncio.get_running_loop().create_task(store.run())
        await harness.clock.sleep(1)
        store.request("one", "a")
        store.request("two", "b")
        await harness.clock.sleep(2300)
        pull = store.facts("two").pull
        assert pull is not None and harness.clock.now() - pull.at <= 30
        assert "b" in harness.woken, "its Pod's start deadline is moved on as well"
        await harness.clock.sleep(2 * 2400)
        assert store.held == ("one", "two")
        assert driver.calls == ["pull one", "pull two"]
        running.cancel()

    run_images(scenario)


def test_a_pull_slower_than_a_percent_in_a_quarter_of_an_hour_completes() -> None:
    async def scenario(harness: ImagesHarness) -> None:
        driver = OneAtATime(harness.clock, harness.driver.host)
        driver.percents["big"] = 1.0
        harness.deps = msgspec.structs.replace(harness.deps, driver=driver)
        store = harness.reopened()
        running = asyncio.get_running_loop().create_task(store.run())
        await harness.clock.sleep(1)
        store.request("big", "a")
        await harness.clock.sleep(2390)
        facts = store.facts("big")
        assert facts.pull is not None and facts.pull.percent == 1.0
        await harness.clock.sleep(30)
        assert store.facts("big").state is ImageState.HELD
        running.cancel()

    run_images(scenario)


def test_what_drivers_make_from_images_goes_when_the_disk_is_full_but_not_what_is_used() -> None:
    async def scenario(harness: ImagesHarness) -> None:
        harness.driver.made = [OLD, "theirs"]
        harness.driver.tags[TAG] = OLD
        harness.store.request(TAG, "a")
        await harness.clock.sleep(11)
        harness.used = [TAG]
        assert await harness.store.reclaim() == 1
        assert harness.driver.made == [OLD]
        (used, idle) = harness.driver.collections[-1]
        assert used == {TAG, OLD} and idle == 0.0

    run_images(scenario)


def test_without_garbage_collection_nothing_that_drivers_made_is_removed() -> None:
    async def scenario(harness: ImagesHarness) -> None:
        harness.driver.made = [OLD]
        assert await harness.store.reclaim() == 0
        assert harness.driver.made == [OLD]

    run_images(scenario, settings=msgspec.structs.replace(SETTINGS, gc=False))
