"""Tests that golden VMs do not stay for ever, and that nothing else is removed with them."""

import asyncio
import os

import pytest
from tests.vm.tart_harness import NAME, TAG, TIMEOUT, TartHarness, run

from runyard.vm.contract import VmState, VmView
from runyard.vm.tart.driver import TartDriver

pytestmark = pytest.mark.slow  # each command of tart is a program
DAY = 24 * 3600.0


def golden_vms(harness: TartHarness) -> list[str]:
    return [vm.name for vm in harness.tart.storage.locals() if vm.name.startswith("runyard-golden")]


def used_long_ago(harness: TartHarness, image: str) -> None:
    """A day has passed since the image was last used."""
    record = harness.root / "agent" / "goldens" / f"{harness.golden(image)}.json"
    then = harness.clock.now() - DAY
    os.utime(record, (then, then))


async def made(harness: TartHarness) -> str:
    """An image whose golden VM exists, and no VM."""
    image = harness.put_image()
    await harness.driver.create(harness.spec())
    await harness.driver.delete(NAME)
    assert golden_vms(harness) == [harness.golden(image)]
    return image


def test_a_golden_vm_goes_with_an_image_that_another_program_has_deleted() -> None:
    async def scenario(harness: TartHarness) -> None:
        image = await made(harness)
        harness.tart.create("theirs")
        assert await harness.driver.collect(used=frozenset(), idle=DAY) == ()
        assert harness.tart.call("delete", image).code == 0
        assert await harness.driver.collect(used=frozenset({image}), idle=DAY) == ()
        assert await harness.driver.collect(used=frozenset(), idle=DAY) == (image,)
        assert [vm.name for vm in harness.tart.storage.locals()] == ["theirs"]
        assert await harness.driver.collect(used=frozenset(), idle=DAY) == ()

    run(scenario)


def test_an_unused_golden_vm_goes_although_a_person_has_pulled_its_image() -> None:
    async def scenario(harness: TartHarness) -> None:
        image = await made(harness)
        used_long_ago(harness, image)
        assert await harness.driver.collect(used=frozenset({image}), idle=DAY - 60) == ()
        await harness.driver.create(harness.spec())  # which is a use
        assert await harness.driver.collect(used=frozenset(), idle=DAY - 60) == ()
        used_long_ago(harness, image)
        assert await harness.reopened().collect(used=frozenset(), idle=DAY - 60) == (image,)
        assert golden_vms(harness) == []
        assert [each.reference for each in await harness.driver.images()] == [image]
        assert [each.name for each in await harness.driver.list()] == [NAME]

    run(scenario)


def test_a_golden_vm_that_is_being_cloned_stays() -> None:
    async def scenario(harness: TartHarness) -> None:
        image = await made(harness)
        used_long_ago(harness, image)
        harness.tart.set("hang-clone")
        creating = asyncio.create_task(harness.driver.create(harness.spec()))
        async with harness.clock.timeout(TIMEOUT):
            while len(harness.tart.journal("clone")) < 3:
                await harness.clock.sleep(0.02)
            assert await harness.driver.collect(used=frozenset(), idle=0.0) == ()
            harness.tart.unset("hang-clone")
            await creating
        assert golden_vms(harness) == [harness.golden(image)]

    run(scenario)


def test_a_second_agent_on_the_same_mac_uses_the_same_image() -> None:
    async def scenario(harness: TartHarness) -> None:
        image = await made(harness)
        other = TartDriver(
            harness.root / "other",
            registry=harness.registry,
            clock=harness.clock,
            settings=harness.settings,
            environ=harness.tart.environment,
        )
        await other.create(harness.spec(name="theirs"))
        assert len(golden_vms(harness)) == 2
        foreign = [each for each in await harness.driver.list() if not each.owned]
        assert {each.name for each in foreign} == {
            "theirs",
            *(name for name in golden_vms(harness) if name != harness.golden(image)),
        }
        assert VmView(name="theirs", state=VmState.STOPPED, owned=False) in foreign
        assert await harness.driver.collect(used=frozenset(), idle=0.0) == (image,)
        assert len(golden_vms(harness)) == 1, "the other agent's is left alone"
        await other.delete("theirs")

    run(scenario)


def test_a_tag_means_what_tart_has_linked_it_to() -> None:
    async def scenario(harness: TartHarness) -> None:
        image = harness.put_image()
        assert await harness.driver.remembered(TAG) == image
        newer = harness.put_image()
        assert await harness.driver.remembered(TAG) == newer != image
        for unknown in ("registry.test/runner:two", image, "local", "a b/c:../../x"):
            assert await harness.driver.remembered(unknown) == ""

    run(scenario)
