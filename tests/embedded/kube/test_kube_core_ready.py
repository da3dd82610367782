"""An API whose controllers fail reports that it is alive and not ready."""

import asyncio
from pathlib import Path

from tests.embedded.kube.coresupport import NODES, World, node
from tests.embedded.kube.test_kube_journal_disk import refuse, relent

from runyard.embedded.kube.storage.journal import Journal
from runyard.sim.loop import run_virtual

LIVES = ("/healthz", "/livez")


async def statuses(world: World, *paths: str) -> list[int]:
    return [(await world.call("GET", path)).status for path in paths]


def test_an_api_is_ready_while_its_controllers_tick() -> None:
    async def main() -> None:
        world = World()
        assert await statuses(world, "/readyz", *LIVES) == [
            200,
            200,
            200,
        ]  # ticked by hand, if at all
        async with asyncio.TaskGroup() as group:
            ticking = group.create_task(world.core.run_controllers())
            await world.clock.sleep(1)
            told = await world.call("GET", "/readyz")
            assert (told.status, told.json()["reason"]) == (503, "ServiceUnavailable")
            assert "controllers" in told.json()["message"]
            await world.clock.sleep(10)
            assert await statuses(world, "/readyz", "/readyz/") == [200, 200]
            ticking.cancel()
        await world.clock.sleep(120)
        assert await statuses(world, "/readyz", *LIVES) == [503, 200, 200]

    run_virtual(main())


def test_an_api_that_cannot_store_writes_is_not_ready(tmp_path: Path) -> None:
    async def main() -> None:
        journal = Journal(tmp_path / "kube.db")
        world = World(journal=journal)
        async with asyncio.TaskGroup() as group:
            ticking = group.create_task(world.core.run_controllers())
            await world.clock.sleep(10)
            assert await statuses(world, "/readyz") == [200]
            refuse(journal)
            assert (await world.call("POST", NODES, node("mini-1"))).status == 507
            assert await statuses(world, "/readyz") == [200]  # a short failure is tolerated
            await world.clock.sleep(30)
            assert await statuses(world, "/readyz", *LIVES) == [503, 200, 200]
            assert "journal" in (await world.call("GET", "/readyz")).json()["message"]
            relent(journal)
            await world.ok("POST", NODES, node("mini-1"))
            assert await statuses(world, "/readyz") == [200]
            ticking.cancel()
        journal.close()

    run_virtual(main())
