"""An answer from before a failover of the database is not committed after it, and clears no stamp."""

from tests.dispatch.dispatchharness import Harness, Onward, play

from runyard.dispatch.machine.events import FenceAnswer, Fenced, JobStillQueued
from runyard.embedded.github.identity import KeyPair
from runyard.http.messages import Request, Response, Stream
from runyard.wire.reasons_dispatch import Refused


def test_an_answer_of_an_earlier_era_changes_nothing(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        await harness.armed(guest)
        before = harness.slot(guest)
        absent = Fenced(generation=before["generation"], answer=FenceAnswer.ABSENT, scope_read=True)
        late = await harness.store.apply_to_slot(
            guest.uid, absent, name="late", in_era="2001-01-01 00:00:00+00"
        )
        assert late.refused == Refused.DATABASE_FAILED_OVER.because()
        assert harness.slot(guest) == before

        era = await harness.database.transact(harness.store.era, name="era")
        timely = await harness.store.apply_to_slot(guest.uid, absent, name="timely", in_era=era)
        assert not timely.refused
        assert harness.slot(guest)["state"] == "draining"

    play(scenario, database_url, app_keys)


def test_the_sweeper_asks_in_the_era_of_the_row(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        await harness.armed(guest)
        harness.overdue(guest)
        harness.served_long()

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            if request.method == "DELETE":  # the database fails over while GitHub answers
                harness.server.recovery.sweeper._store.era = another_era  # type: ignore[method-assign]  # stands in for the other server
            return await onward()

        async def another_era(tx: object) -> str:
            return "another"

        harness.github_wire.tamper = tamper
        await harness.server.recovery.sweeper.step()
        assert harness.slot(guest)["state"] == "armed"

    play(scenario, database_url, app_keys)


def test_a_refused_mint_does_not_clear_the_stamp_of_a_later_offer(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        await harness.offered(guest)
        harness.github.faults.fail_next("/orgs/acme/actions/runners/generate-jitconfig", 422)

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            if "generate-jitconfig" in request.path:  # the offer was lost and repeated
                harness.execute("UPDATE slots SET generation = generation + 1000")
            return await onward()

        harness.github_wire.tamper = tamper
        await harness.mint()
        assert harness.stamp(guest) == "acme"
        assert harness.slot(guest)["state"] == "offered"

    play(scenario, database_url, app_keys)


def test_a_read_from_before_a_requeue_does_not_verify_the_job(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        job = await harness.offered(guest)
        (seen,) = harness.rows("SELECT look_at FROM jobs")
        harness.github.faults.fail_next("/orgs/acme/actions/runners/generate-jitconfig", 422)
        await harness.clock.sleep(1)
        await harness.mint()  # refused: the job is requeued
        assert (harness.job(job)["state"], harness.job(job)["verified"]) == ("queued", False)

        still = JobStillQueued(job_id=job)
        late = await harness.store.apply_job_read(still, "acme", look_at=seen["look_at"])
        assert late.refused == Refused.READ_OUTDATED.because()
        assert harness.job(job)["verified"] is False

        (now,) = harness.rows("SELECT look_at FROM jobs")
        assert not (
            await harness.store.apply_job_read(still, "acme", look_at=now["look_at"])
        ).refused
        assert harness.job(job)["verified"] is True

    play(scenario, database_url, app_keys)
