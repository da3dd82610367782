"""A mint with an unknown outcome costs no Pod, and delays only the jobs of its account."""

from collections.abc import Awaitable, Callable

import pytest
from tests.dispatch.dispatchharness import Guest, Harness, Onward, play
from tests.dispatch.test_dispatch_minting import MINT_AT_ORG, MINT_AT_USER, exclusion_of, not_sent

from runyard.dispatch.matching.values import Hold
from runyard.embedded.github.identity import KeyPair
from runyard.http.messages import Request, Response, Stream, json_response

Setup = Callable[[Harness, Guest], Awaitable[None]]


@pytest.mark.parametrize("status", [500, 503])
def test_while_mints_of_an_account_fail_only_its_jobs_wait(
    database_url: str, app_keys: KeyPair, status: int
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        first, second = await harness.pod(), await harness.pod(2)
        await harness.offered(first)
        harness.github.faults.fail_next(MINT_AT_ORG, status)
        await harness.mint()
        await harness.queued()
        async with harness.waiting(second):
            await harness.match()
        assert harness.slot(second)["state"] == "idle", (
            "a second runner was spent on the same failure"
        )
        (held,) = (await harness.server.matcher.preview()).held
        assert held.hold is Hold.EXCLUDED
        assert held.cause is not None and held.cause.slug == "mint-unclear"
        other = await harness.queued("mona/dots")
        async with harness.waiting(second):
            await harness.match()
        assert harness.slot(second)["intended_job"] == other, "another account waited, too"

    play(scenario, database_url, app_keys)


def test_while_github_cannot_be_reached_no_other_runners_are_tried(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        first, second = await harness.pod(), await harness.pod(2)
        await harness.offered(first)
        await not_sent(harness, first)
        await harness.mint()
        await harness.queued("mona/dots")
        async with harness.waiting(second):
            await harness.match()
        assert harness.slot(second)["state"] == "idle", (
            "a second runner was spent on the same outage"
        )
        (held,) = (await harness.server.matcher.preview()).held
        assert held.hold is Hold.GITHUB

    play(scenario, database_url, app_keys)


def test_a_success_lets_other_accounts_without_an_answer_be_tried_soon(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        await harness.offered(await harness.pod())
        harness.github.faults.fail_next(MINT_AT_ORG, 502)
        await harness.mint()
        second = await harness.pod(2)
        await harness.offered(second, "mona/dots")
        harness.github.faults.fail_next(MINT_AT_USER, 502)
        await harness.mint()
        harness.rows(
            "UPDATE exclusions SET until = until + interval '50 s' WHERE name = 'acme' RETURNING 1"
        )
        await harness.clock.sleep(6)
        await harness.queued("mona/dots")
        async with harness.waiting(await harness.pod(3)):
            await harness.match()
        await harness.mint()
        failures, left = exclusion_of(harness)
        assert (failures, left) == (1, pytest.approx(8, abs=1)), "the outage may be over for all"

    play(scenario, database_url, app_keys)


def test_a_stamp_of_a_later_offer_is_not_cleared_by_a_slow_sweep(
    database_url: str, app_keys: KeyPair
) -> None:
    """Two replicas sweep one slot: while the first is about to clear the stamp, the Pod is freed and offered again."""

    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        job = await harness.offered(guest)
        harness.github.faults.fail_next(MINT_AT_ORG, 500)
        await harness.mint()
        harness.served_long()
        await harness.clock.sleep(0.5)

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            if request.method == "PATCH" and b"null" in request.body:
                harness.kube_wire.tamper = None
                await harness.server.recovery.sweeper.step()
                assert harness.slot(guest)["state"] == "idle"
                harness.rows("DELETE FROM exclusions RETURNING 1")
                await harness.server.recovery.reader.step()
                async with harness.waiting(guest):
                    await harness.match()
                await harness.mint()
            return await onward()

        harness.kube_wire.tamper = tamper
        await harness.server.recovery.sweeper.step()
        slot = harness.slot(guest)
        assert (slot["state"], slot["intended_job"]) == ("armed", job)
        assert harness.stamp(guest) == "acme", "the operator may delete a Pod without a stamp"

    play(scenario, database_url, app_keys)


def test_a_stamp_that_may_not_be_cleared_costs_the_pod_and_not_the_claim(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        await harness.offered(guest)
        harness.github.faults.fail_next(MINT_AT_ORG, 500)
        await harness.mint()
        harness.served_long()
        await harness.clock.sleep(0.5)

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            denied = request.method == "PATCH" and b"null" in request.body
            return json_response(403, {}) if denied else await onward()

        harness.kube_wire.tamper = tamper
        await harness.server.recovery.sweeper.step()
        slot = harness.slot(guest)
        assert (slot["state"], slot["fence"]) == ("draining", "done")

    play(scenario, database_url, app_keys)
