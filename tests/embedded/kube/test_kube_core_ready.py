"""An API whose controllers fail reports that it is alive and not ready."""

import asyncio
from pathlib import Path

from tests.embedded.kube.coresupport import NODES, Harness, node
from tests.embedded.kube.test_kube_journal_disk import fill_disk, free_disk

from runyard.embedded.kube.storage.journal import Journal
from runyard.sim.loop import run_virtual

LIVES = ("/healthz", "/livez")


async def statuses(harness: Harness, *paths: str) -> list[int]:
    return [(await harness.call("GET", path)).status for path in paths]


def test_an_api_is_ready_while_its_controllers_tick() -> None:
    async def main() -> None:
        harness = Harness()
        assert await statuses(harness, "/readyz", *LIVES) == [
            200,
            200,
            200,
        ]  # ticked by hand, if at all
        async with asyncio.TaskGroup() as group:
            ticking = group.create_task(harness.core.run_controllers())
            await harness.clock.sleep(1)
            answer = await harness.call("GET", "/readyz")
            assert (answer.status, answer.json()["reason"]) == (503, "ServiceUnavailable")
            assert "controllers" in answer.json()["message"]
            await harness.clock.sleep(10)
            assert await statuses(harness, "/readyz", "/readyz/") == [200, 200]
            ticking.cancel()
        await harness.clock.sleep(120)
        assert await statuses(harness, "/readyz", *LIVES) == [503, 200, 200]

    run_virtual(main())


def test_an_api_that_cannot_store_writes_is_not_ready(tmp_path: Path) -> None:
    async def main() -> None:
        journal = Journal(tmp_path / "kube.db")
        harness = Harness(journal=journal)
        async with asyncio.TaskGroup() as group:
            ticking = group.create_task(harness.core.run_controllers())
            await harness.clock.sleep(10)
            assert await statuses(harness, "/readyz") == [200]
            fill_disk(journal)
            assert (await harness.call("POST", NODES, node("mini-1"))).status == 507
            assert await statuses(harness, "/readyz") == [200]  # a short failure is tolerated
            await harness.clock.sleep(30)
            assert await statuses(harness, "/readyz", *LIVES) == [503, 200, 200]
            assert "journal" in (await harness.call("GET", "/readyz")).json()["message"]
            free_disk(journal)
            await harness.ok("POST", NODES, node("mini-1"))
            assert await statuses(harness, "/readyz") == [200]
            ticking.cancel()
        journal.close()

    run_virtual(main())
