"""Reads the overview of a fleet that the real dispatcher has written, and finds jobs and runners in it."""

from tests.dispatch.dispatchharness import SPACE, Guest, Harness

from runyard.kube.client import Kube
from runyard.web.cluster import read_cluster
from runyard.web.explain.context import DispatchLimits
from runyard.web.overview import build_overview
from runyard.web.records import read_records
from runyard.web.settings import Settings
from runyard.web.snapshot import Snapshot
from runyard.web.values import Job, Overview, Runner, Source

SETTINGS = Settings()


async def look(
    harness: Harness, settings: Settings = SETTINGS, *, kube: Kube | None = None
) -> Overview:
    now = harness.clock.now()
    snapshot = Snapshot(
        at=now,
        postgres=Source(name="Postgres", state="ok", as_of=now),
        kubernetes=Source(name="Kubernetes", state="ok", as_of=now),
        records=await read_records(harness.database, settings, harness.server.matcher.preview),
        cluster=await read_cluster(kube or harness.admin, namespace=SPACE),
    )
    return build_overview(snapshot, settings, DispatchLimits())


def job_of(view: Overview, job_id: int) -> Job:
    everything = (*view.waiting, *view.running, *view.finished)
    return next(job for job in everything if job.job_id == job_id)


def runner_of(view: Overview, guest: Guest) -> Runner:
    return next(runner for runner in view.runners if runner.uid == guest.uid)
