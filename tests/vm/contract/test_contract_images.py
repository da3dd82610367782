"""Tests the driver contract: images are resolved, pulled once, listed and removed. The same for each driver."""

import asyncio

from tests.vm.contract.offers import DriverHarness
from tests.vm.contract.running import Run

from runyard.vm.contract import PullProgress


async def held(harness: DriverHarness) -> list[str]:
    return [each.reference for each in await harness.driver.images()]


def test_images_are_pulled_once_listed_and_removed(run: Run) -> None:
    async def scenario(harness: DriverHarness) -> None:
        await harness.driver.pull(harness.image)
        await harness.driver.pull(harness.image)
        assert (await held(harness)).count(harness.image) == 1
        await harness.driver.remove_image(harness.image)
        assert harness.image not in await held(harness)

    run(scenario)


def test_a_reference_with_a_digest_means_itself(run: Run) -> None:
    async def scenario(harness: DriverHarness) -> None:
        assert (await harness.driver.resolve(harness.image)).reference == harness.image

    run(scenario)


def test_a_reference_without_a_digest_is_resolved_to_one(run: Run) -> None:
    async def scenario(harness: DriverHarness) -> None:
        assert (await harness.driver.resolve(harness.tag)).reference == harness.image

    run(scenario)


def test_the_progress_of_a_pull_grows_to_the_whole(run: Run) -> None:
    async def scenario(harness: DriverHarness) -> None:
        harness.offer_image()
        seen: list[PullProgress] = []
        await harness.driver.pull(harness.image, progress=seen.append)
        percents = [each.percent for each in seen]
        assert percents and percents == sorted(percents) and percents[-1] == 100.0

    run(scenario)


def test_a_pull_that_was_cancelled_half_way_can_be_repeated(run: Run) -> None:
    async def scenario(harness: DriverHarness) -> None:
        harness.offer_image()
        await harness.interruptible_pull()
        assert harness.image not in await held(harness)
        await harness.driver.pull(harness.image)
        assert harness.image in await held(harness)

    run(scenario)


def test_pulls_of_one_image_at_once_are_one_and_survive_a_cancelled_caller(run: Run) -> None:
    async def scenario(harness: DriverHarness) -> None:
        harness.offer_image()
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(harness.driver.pull(harness.image))
            for _ in range(3):
                tasks.create_task(harness.driver.pull(harness.image))
            await harness.clock.sleep(0)
            first.cancel()
        assert (await held(harness)).count(harness.image) == 1

    run(scenario)
