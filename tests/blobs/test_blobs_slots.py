"""Slots under load, on virtual time: a thousand uploads of one client do not starve another."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from runyard.blobs.plans.slots import Limits
from runyard.blobs.slots import Ended, Late, Slots
from runyard.sim.clock import VirtualClock
from runyard.sim.loop import run_virtual
from runyard.telemetry.catalogue import RUNYARD_UPLOADS_RUNNING, RUNYARD_UPLOADS_WAITING
from runyard.telemetry.meter import Meter
from runyard.wire.reasons_results import Yielded

FLOOD = 1000


class Load:
    """Uploads of several clients through the same slots."""

    def __init__(self) -> None:
        self.clock, self.meter = VirtualClock(), Meter()
        self.slots = Slots(Limits(), clock=self.clock, meter=self.meter)
        self.most_running = self.most_waiting = 0.0
        self.outcomes: dict[str, list[str]] = {}

    async def upload(self, account: str, *, seconds: int) -> float:
        """Upload 100 kB for each of these seconds; returns how long it waited for its slot."""
        began = self.clock.monotonic()
        outcome = "stored"
        try:
            async with self.slots.hold((account, "app")) as upload:
                waited = self.clock.monotonic() - began
                self.most_running = max(
                    self.most_running, self.meter.get(RUNYARD_UPLOADS_RUNNING) or 0
                )
                async for _ in upload.pieces(self._body(seconds)):
                    pass
        except Ended as ended:
            outcome, waited = ended.reason.slug, self.clock.monotonic() - began
        self.most_waiting = max(self.most_waiting, self.meter.get(RUNYARD_UPLOADS_WAITING) or 0)
        self.outcomes.setdefault(account, []).append(outcome)
        return waited

    async def _body(self, seconds: int) -> AsyncIterator[bytes]:
        for _ in range(seconds):
            await self.clock.sleep(1.0)
            yield bytes(100_000)


@pytest.mark.slow
def test_a_thousand_uploads_of_one_client_do_not_starve_another() -> None:
    async def scenario() -> None:
        load = Load()
        async with asyncio.TaskGroup() as group:
            for _ in range(FLOOD):
                group.create_task(load.upload("flood", seconds=20))
            await load.clock.sleep(1.0)
            waits = [await load.upload("honest", seconds=3) for _ in range(5)]
        assert load.outcomes["honest"] == ["stored"] * 5
        assert max(waits) <= 6.0
        assert load.most_running <= Limits().slots
        assert load.most_waiting <= Limits().queue
        flood = load.outcomes["flood"]
        assert len(flood) == FLOOD
        assert flood.count(Yielded.UPLOADS_FULL) >= FLOOD - Limits().slots - Limits().queue
        assert flood.count(Yielded.UPLOAD_DISPLACED) <= 5
        assert flood.count("stored") >= Limits().slots

    run_virtual(scenario(), seed=1)


def test_short_uploads_of_many_clients_are_served_before_the_rest_of_one() -> None:
    async def scenario() -> None:
        load = Load()
        async with asyncio.TaskGroup() as group:
            flood = [group.create_task(load.upload("flood", seconds=5)) for _ in range(120)]
            await load.clock.sleep(1.0)
            others = [group.create_task(load.upload(f"c{n}", seconds=5)) for n in range(20)]
        assert max(each.result() for each in others) <= 10.0
        assert max(each.result() for each in flood) > 30.0
        stored = {account: set(outcomes) for account, outcomes in load.outcomes.items()}
        assert all(outcomes == {"stored"} for outcomes in stored.values()), stored
        assert load.meter.get(RUNYARD_UPLOADS_RUNNING) == 0

    run_virtual(scenario(), seed=2)


def test_an_upload_whose_bytes_are_always_here_already_is_ended_at_its_limit() -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        slots = Slots(Limits(longest=100.0), clock=clock, meter=Meter())

        async def buffered() -> AsyncIterator[bytes]:
            for _ in range(200):
                yield bytes(100_000)

        read = 0
        with pytest.raises(Late):
            async with slots.hold(("acme", "app")) as upload:
                async for _ in upload.pieces(buffered()):
                    read += 1
                    await clock.sleep(1.0)  # the store is slower than the client
        assert read == 100

    run_virtual(scenario(), seed=3)
