"""Tests what references mean on a host: tags are looked up, remembered, and pulled where only a pull tells."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest
from tests.node.images_harness import (
    NEW,
    OLD,
    SETTINGS,
    TAG,
    CountingDriver,
    ImagesHarness,
    run_images,
)

from runyard.node.plans.images import ImageState
from runyard.vm.contract import (
    Busy,
    Fault,
    ImageMissing,
    PullProgress,
    ResolvedImage,
    Unreachable,
    ignore_progress,
)


def test_a_tag_is_resolved_before_it_is_pulled() -> None:
    async def scenario(harness: ImagesHarness) -> None:
        harness.driver.tags[TAG] = OLD
        harness.store.request(TAG, "a")
        await harness.clock.sleep(11)
        assert harness.driver.calls == [f"pull {OLD}"]
        facts = harness.store.facts(TAG)
        assert (facts.state, facts.pinned) == (ImageState.HELD, OLD)

    run_images(scenario)


def test_a_tag_that_moved_is_looked_up_again_and_the_new_image_pulled() -> None:
    async def scenario(harness: ImagesHarness) -> None:
        harness.driver.tags[TAG] = OLD
        harness.store.request(TAG, "a")
        await harness.clock.sleep(11)
        harness.driver.tags[TAG] = NEW
        assert harness.store.facts(TAG).pinned == OLD, "one answer serves a minute"
        await harness.clock.sleep(61)
        assert harness.store.facts(TAG).state is ImageState.ABSENT
        harness.store.request(TAG, "b")
        await harness.clock.sleep(11)
        assert harness.store.facts(TAG).pinned == NEW
        assert harness.driver.calls == [f"pull {OLD}", f"pull {NEW}"]

    run_images(scenario)


def test_a_registry_that_is_away_does_not_stop_pods_whose_image_is_here() -> None:
    async def scenario(harness: ImagesHarness) -> None:
        harness.driver.tags[TAG] = OLD
        harness.store.request(TAG, "a")
        await harness.clock.sleep(72)
        harness.driver.fail("resolve", Unreachable("connection refused"))
        harness.store.request(TAG, "b")
        await harness.clock.sleep(1)
        assert harness.store.facts(TAG).pinned == OLD

        again = harness.reopened()  # a new agent knows the digest from its records only
        again.pins.remember(TAG, OLD)
        await again.refresh()
        assert again.facts(TAG).state is ImageState.ABSENT
        harness.driver.fail("resolve", Unreachable("connection refused"))
        assert await again.pins.resolve(TAG, held=(OLD,)) == OLD

    run_images(scenario)


def test_a_tag_that_the_registry_does_not_know_is_not_taken_from_an_earlier_answer() -> None:
    async def scenario(harness: ImagesHarness) -> None:
        harness.driver.tags[TAG] = OLD
        harness.store.request(TAG, "a")
        await harness.clock.sleep(72)
        harness.driver.fail("resolve", ImageMissing(TAG))
        harness.store.request(TAG, "b")
        await harness.clock.sleep(1)
        facts = harness.store.facts(TAG)
        assert (facts.state, facts.fault) == (ImageState.FAILED, Fault.IMAGE_MISSING)

    run_images(scenario)


def test_a_registry_that_never_answers_leaves_a_text_in_the_failure() -> None:
    async def scenario(harness: ImagesHarness) -> None:
        harness.driver.hang("resolve")
        harness.store.request(TAG, "a")
        await harness.clock.sleep(SETTINGS.deadlines.resolve + 1)
        facts = harness.store.facts(TAG)
        assert (facts.state, facts.fault) == (ImageState.FAILED, Fault.UNREACHABLE)
        assert "did not say within 60 s" in facts.error
        harness.driver.hang("images")
        harness.store.request("i", "a")
        await harness.clock.sleep(SETTINGS.deadlines.list + 1)
        facts = harness.store.facts("i")
        assert facts.fault is Fault.DRIVER_HUNG
        assert "the list of images: the driver did not end it within 60 s" in facts.error

    run_images(scenario)


def test_a_tag_that_was_pulled_by_hand_is_used_while_the_registry_does_not_answer() -> None:
    async def scenario(harness: ImagesHarness) -> None:
        await harness.driver.pull(OLD)
        await harness.store.refresh()
        harness.driver.memory[TAG] = OLD
        harness.driver.fail("resolve", Unreachable("connection refused"), times=3)
        harness.store.request(TAG, "a")
        await harness.clock.sleep(1)
        assert harness.store.facts(TAG).pinned == OLD

        other = harness.reopened()  # the records of an earlier agent go first
        other.pins.remember(TAG, NEW)
        assert await other.pins.resolve(TAG, held=(OLD, NEW)) == NEW
        gone = harness.reopened()
        with pytest.raises(Unreachable):
            await gone.pins.resolve(TAG, held=())

    run_images(scenario)


class OnlyItsOwnTools(CountingDriver):
    """Its registry answers the pull only, which leaves what the tag means."""

    async def resolve(self, image: str) -> ResolvedImage:
        return ResolvedImage(reference=image, pinned=False)

    async def pull(
        self, image: str, *, progress: Callable[[PullProgress], None] = ignore_progress
    ) -> None:
        self.memory[image] = self.tags[image]
        await super().pull(self.tags[image], progress=progress)


def test_a_tag_whose_registry_answers_only_a_pull_is_pulled_and_then_known() -> None:
    async def scenario(harness: ImagesHarness) -> None:
        driver = OnlyItsOwnTools(harness.clock, harness.driver.host)
        harness.deps = msgspec.structs.replace(harness.deps, driver=driver)
        store = harness.reopened()
        running = asyncio.get_running_loop().create_task(store.run())
        await harness.clock.sleep(1)
        for meaning in (OLD, NEW):
            driver.tags[TAG] = meaning
            store.request(TAG, "a")
            await harness.clock.sleep(5)
            pull = store.facts(TAG).pull
            assert pull is not None and pull.percent > 0
            await harness.clock.sleep(10)
            assert store.facts(TAG).pinned == meaning
            assert meaning in harness.deps.records.images
            await harness.clock.sleep(61)  # it has to be looked up again
            assert store.facts(TAG).state is ImageState.ABSENT
        running.cancel()

    run_images(scenario)


def test_a_tag_is_pulled_by_the_drivers_own_tools_if_only_they_reach_the_registry() -> None:
    class Behind(OnlyItsOwnTools):
        """The agent does not reach the registry, its own tools do."""

        pulls_tags = True

        async def resolve(self, image: str) -> ResolvedImage:
            raise Unreachable("no such host")

    async def scenario(harness: ImagesHarness) -> None:
        driver = Behind(harness.clock, harness.driver.host)
        driver.tags[TAG] = OLD
        harness.deps = msgspec.structs.replace(harness.deps, driver=driver)
        store = harness.reopened()
        running = asyncio.get_running_loop().create_task(store.run())
        await harness.clock.sleep(1)
        store.request(TAG, "a")
        await harness.clock.sleep(15)
        assert store.facts(TAG).pinned == OLD
        running.cancel()

    run_images(scenario)


def test_a_registry_that_asked_to_be_left_alone_is_not_asked_by_the_drivers_own_tools() -> None:
    class Limited(OnlyItsOwnTools):
        """Its registry has limited its rate."""

        pulls_tags = True

        async def resolve(self, image: str) -> ResolvedImage:
            raise Busy("asked to be left alone; retry in 60 s")

    async def scenario(harness: ImagesHarness) -> None:
        driver = Limited(harness.clock, harness.driver.host)
        driver.tags[TAG] = OLD
        harness.deps = msgspec.structs.replace(harness.deps, driver=driver)
        with pytest.raises(Busy):
            await harness.reopened().pins.resolve(TAG, held=())
        assert driver.calls == []

    run_images(scenario)
