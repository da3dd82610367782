"""Transitions of jobs are counted once, after the commit, for the pool that they ran in."""

from tests.dispatch.dispatchharness import Harness, play

from runyard.embedded.github.identity import KeyPair
from runyard.embedded.github.session import RunnerSession
from runyard.telemetry import catalogue
from runyard.telemetry.metric import Metric

FED = (
    catalogue.TUIST_RUNNERS_JOB_ENQUEUED_COUNT,
    catalogue.TUIST_RUNNERS_JOB_RUNNING_COUNT,
    catalogue.TUIST_RUNNERS_JOB_QUEUE_TIME_MILLISECONDS,
    catalogue.TUIST_RUNNERS_JOB_QUEUE_TO_RUNNING_TIME_MILLISECONDS,
    catalogue.TUIST_RUNNERS_JOB_CLAIM_TO_RUNNING_TIME_MILLISECONDS,
    catalogue.TUIST_RUNNERS_JOB_RUN_TIME_MILLISECONDS,
    catalogue.TUIST_RUNNERS_JOB_TOTAL_TIME_MILLISECONDS,
)


def text(harness: Harness, metric: Metric) -> str:
    lines = harness.meter.exposition().decode().splitlines()
    return "\n".join(line for line in lines if line.startswith(metric.name))


def test_a_jobs_transitions_count_in_every_metric_once(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        job = await harness.queued()
        await harness.clock.sleep(7)
        async with harness.waiting(guest):
            await harness.match()
        await harness.clock.sleep(2)
        await harness.mint()
        session = harness.github.connect(await harness.jit(guest))
        assert isinstance(session, RunnerSession)
        await harness.github.settle()
        await harness.clock.sleep(90)
        session.finish("success")
        await harness.github.settle()
        for attempt in harness.github.attempts():  # every event arrives a second time
            await harness._deliver(attempt.delivery)
        assert harness.job(job)["state"] == "done"
        assert [harness.meter.get(metric, fleet="mac") for metric in FED] == [1] * len(FED)
        done = catalogue.TUIST_RUNNERS_JOB_COMPLETED_COUNT
        assert harness.meter.get(done, fleet="mac", conclusion="success") == 1
        waited = text(harness, catalogue.TUIST_RUNNERS_JOB_QUEUE_TIME_MILLISECONDS)
        assert 'le="5000.0"} 0.0' in waited and 'le="10000.0"} 1.0' in waited
        ran = text(harness, catalogue.TUIST_RUNNERS_JOB_RUN_TIME_MILLISECONDS)
        assert 'le="60000.0"} 0.0' in ran and 'le="300000.0"} 1.0' in ran
        took = catalogue.TUIST_RUNNERS_DISPATCH_REQUEST_DURATION_MILLISECONDS
        assert 'le="10.0",outcome="served"} 1.0' in text(harness, took)

    play(scenario, database_url, app_keys)


def test_a_job_that_its_runner_never_ran_counts_as_stranded(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        await harness.armed(guest)
        await harness.clock.sleep(121)
        harness.overdue(guest)
        await harness.server.recovery.sweeper.step()
        assert harness.meter.get(catalogue.TUIST_RUNNERS_JOB_REQUEUED_COUNT, fleet="mac") == 1
        stranded = catalogue.TUIST_RUNNERS_RECOVERY_STRANDED_TIME_MILLISECONDS
        exported = text(harness, stranded)
        assert 'le="60000.0"} 0.0' in exported and 'le="300000.0"} 1.0' in exported

    play(scenario, database_url, app_keys)


def test_a_rolled_back_transition_is_not_counted(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        harness.database.down = True
        await harness.queued()
        harness.database.down = False
        enqueued = catalogue.TUIST_RUNNERS_JOB_ENQUEUED_COUNT
        assert harness.meter.total(enqueued) == 0
        harness.database.lose_answer = lambda name: name == "webhook"
        await harness.queued()
        assert harness.meter.total(enqueued) == 0, "nobody knows whether it was committed"

    play(scenario, database_url, app_keys)
