"""A lost webhook can be found and requested again."""

import asyncio
from typing import Any

from runyard.github.signatures import verify
from runyard.github.views import DeliveryView, read_job_event


async def everything(fleet: Any) -> tuple[DeliveryView, ...]:
    """Every page, newest first."""
    page = await fleet.github.deliveries()
    found = page.items
    while page.next_cursor:
        page = await fleet.github.deliveries(cursor=page.next_cursor)
        found += page.items
    return tuple(found)


def test_a_failed_delivery_is_found_and_redelivered(fleet: Any) -> None:
    async def scenario() -> None:
        fleet.answer = 503
        job_id = fleet.core.queue_job("acme/app", ("macos",))
        await fleet.core.settle()
        assert len(fleet.delivered) == 1  # GitHub does not retry by itself
        await fleet.core.settle()
        assert len(fleet.delivered) == 1

        lost = await everything(fleet)
        assert [(each.status_code, each.event, each.action) for each in lost] == [
            (503, "workflow_job", "queued")
        ]
        assert not lost[0].redelivery and lost[0].installation_id == fleet.installation

        fleet.answer = 200
        assert await fleet.github.redeliver(lost[0].id)
        await fleet.core.settle()
        first, second = fleet.delivered
        assert (first.guid, first.body) == (second.guid, second.body)
        assert second.redelivery
        assert [each.succeeded for each in await everything(fleet)] == [True, False]
        assert read_job_event(second.body).workflow_job.id == job_id

    asyncio.run(scenario())


def test_what_was_sent_can_be_read_without_receiving_it(fleet: Any) -> None:
    async def scenario() -> None:
        job_id = fleet.core.queue_job("acme/app", ("macos",), duration=5)
        await fleet.core.settle()
        page = await fleet.github.deliveries()
        full = await fleet.github.delivery(page.items[0].id)
        assert full is not None
        event = read_job_event(full.payload)
        assert (event.action, event.workflow_job.id) == ("queued", job_id)
        assert event.repository.full_name == "Acme/app"
        assert event.installation is not None and event.installation.id == fleet.installation
        assert full.request.headers["x-github-delivery"] == full.guid

    asyncio.run(scenario())


def test_the_signature_is_over_the_very_bytes(fleet: Any) -> None:
    async def scenario() -> None:
        fleet.core.queue_job("acme/app", ("macos",))
        await fleet.core.settle()
        request = fleet.delivered[0].request("/webhooks/github")
        assert request.header("x-github-event") == "workflow_job"
        assert verify(request.body, request.header("x-hub-signature-256"), ["hush"])

    asyncio.run(scenario())


def test_all_pages_of_deliveries_of_a_long_outage_are_read(fleet: Any) -> None:
    async def scenario() -> None:
        for _ in range(250):
            fleet.clock.t += 60
            fleet.core.queue_job("acme/app", ("macos",))
        await fleet.core.settle()
        found = await everything(fleet)
        assert len(found) == 250
        ids = [each.id for each in found]
        assert ids == sorted(ids, reverse=True)
        assert len({each.guid for each in found}) == 250
        assert fleet.wire.count("/app/hook/deliveries") == 3

    asyncio.run(scenario())


def test_a_forgotten_delivery_is_no_error(fleet: Any) -> None:
    async def scenario() -> None:
        fleet.core.queue_job("acme/app", ("macos",))
        await fleet.core.settle()
        held = (await fleet.github.deliveries()).items[0]
        fleet.clock.t += 4 * 86400
        assert (await fleet.github.deliveries()).items == ()
        assert await fleet.github.delivery(held.id) is None
        assert await fleet.github.redeliver(held.id) is False

    asyncio.run(scenario())
