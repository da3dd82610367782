"""One overview out of what Postgres, Kubernetes and this process know.

`overview` is pure: two readings, either of which may be missing or old, what this process reports of itself, and
the time. It never fails for want of a source; what is missing is said, and the rest is shown.
"""

from collections import Counter

import msgspec

from runyard.dispatch.machine.values import Room
from runyard.dispatch.matching.values import fits
from runyard.dispatch.pools import view_of
from runyard.telemetry.conditions import DATABASE_UNREACHABLE, KUBERNETES_UNREACHABLE
from runyard.web import fleet
from runyard.web.cluster import Cluster
from runyard.web.healing import retell
from runyard.web.reasons import Budget, Queued, Reason, Supply, why_waiting
from runyard.web.records import JobRow, Records
from runyard.web.settings import Settings
from runyard.web.values import (
    Alarm,
    Host,
    Job,
    Overview,
    Pool,
    Runner,
    Source,
    Totals,
    Verdict,
)


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """What is known at one moment. A reading of None has never succeeded."""

    at: float
    postgres: Source
    kubernetes: Source
    records: Records | None = None
    cluster: Cluster | None = None
    alarms: tuple[Alarm, ...] = ()


def overview(picture: Picture, settings: Settings) -> Overview:
    """Everything that the dashboard shows."""
    records, cluster = picture.records or Records(), picture.cluster
    everyone = fleet.runners(cluster, records.slots, cluster_at=picture.kubernetes.as_of)
    supplies = None if cluster is None else _supplies(cluster, everyone)
    waiting, reasons = _waiting(records, supplies, now=picture.at, settings=settings)
    running = tuple(_running(job) for job in records.jobs if job.state == "running")
    finished = tuple(_finished(job) for job in records.finished)
    machines = fleet.hosts(cluster, now=picture.at, settings=settings)
    demand = _demand(records, supplies)
    groups = fleet.pools(cluster, everyone, demand)
    healed = retell(records.healed)
    attention = sum(reason.attention for reason in reasons)
    totals = Totals(
        waiting=max(records.waiting, len(waiting)),
        running=max(records.running, len(running)),
        attention=attention,
        idle=sum(pool.idle for pool in groups),
        busy=sum(pool.busy for pool in groups),
        starting=sum(pool.starting for pool in groups),
        runners=len(everyone),
        hosts=len(machines),
        hosts_ready=sum(host.state == "ready" for host in machines),
        healed_hour=sum(entry.last_hour for entry in records.healed),
    )
    alarms = _alarms(picture, records)
    unmatched = sum(reason.unmatched for reason in reasons)
    return Overview(
        at=picture.at,
        verdict=verdict(alarms, totals, machines, groups, unmatched=unmatched),
        sources=(picture.postgres, picture.kubernetes),
        totals=totals,
        alarms=alarms,
        pools=groups,
        hosts=machines[: settings.hosts_shown],
        hidden_hosts=max(0, len(machines) - settings.hosts_shown),
        runners=everyone[: settings.runners_shown],
        hidden_runners=max(0, len(everyone) - settings.runners_shown),
        waiting=waiting,
        running=running,
        finished=finished,
        healed=healed,
    )


def verdict(
    alarms: tuple[Alarm, ...],
    totals: Totals,
    machines: tuple[Host, ...],
    groups: tuple[Pool, ...],
    *,
    unmatched: int,
) -> Verdict:
    """The sentence at the top: the worst thing that is true."""
    errors = [alarm for alarm in alarms if alarm.severity == "error"]
    if errors:
        more = f"{len(errors) - 1} more below." if len(errors) > 1 else ""
        return Verdict(tone="bad", title=errors[0].title, text=f"{errors[0].text} {more}".strip())
    if totals.attention:
        title = f"{_jobs(totals.attention)} although a fitting runner is idle"
        return Verdict(
            tone="bad", title=title, text="The dispatcher should have matched this long ago."
        )
    down = len(machines) - sum(host.tone in {"good", "warn"} for host in machines)
    if down:
        title = f"{down} of {len(machines)} hosts {'is' if down == 1 else 'are'} not there"
        return Verdict(
            tone="warn", title=title, text=f"First: {machines[0].name}, {machines[0].state}."
        )
    if unmatched:
        title = f"{_jobs(unmatched)} for a pool that does not exist"
        return Verdict(tone="warn", title=title, text="See below which labels no pool has.")
    if alarms:
        return Verdict(tone="warn", title=alarms[0].title, text=alarms[0].text)
    if totals.waiting:
        text = f"{totals.busy} busy, {totals.starting} starting."
        return Verdict(tone="wait", title=_jobs(totals.waiting), text=text)
    if not groups:
        text = "Create a RunnerPool; jobs wait until one matches their labels."
        return Verdict(tone="off", title="There is no pool yet", text=text)
    work = f"{totals.running} running, " if totals.running else ""
    return Verdict(tone="good", title="Nothing waits", text=f"{work}{totals.idle} warm.")


def _jobs(count: int) -> str:
    return "1 job waits" if count == 1 else f"{count} jobs wait"


def _supplies(cluster: Cluster, everyone: tuple[Runner, ...]) -> tuple[Supply, ...]:
    counts = Counter((runner.pool, runner.state) for runner in everyone)
    return tuple(
        Supply(
            pool=view_of(pool),
            desired=pool.spec.replicas,
            idle=counts[pool.metadata.name, "idle"],
            busy=counts[pool.metadata.name, "busy"] + counts[pool.metadata.name, "taking"],
            starting=counts[pool.metadata.name, "starting"],
        )
        for pool in cluster.pools
    )


def _demand(records: Records, supplies: tuple[Supply, ...] | None) -> Counter[str]:
    """How many of the waiting jobs would fit each pool."""
    found: Counter[str] = Counter()
    for job in records.jobs:
        if job.state == "queued":
            found.update(s.pool.name for s in supplies or () if fits(s.pool, job.labels))
    return found


def _waiting(
    records: Records, supplies: tuple[Supply, ...] | None, *, now: float, settings: Settings
) -> tuple[tuple[Job, ...], tuple[Reason, ...]]:
    queued = [job for job in records.jobs if job.state == "queued"]
    budgets = tuple(
        Budget(
            tenant=row.tenant,
            platform=row.platform,
            vcpus=row.vcpus_limit,
            memory_gb=row.memory_limit,
            room=Room(vcpus=row.vcpus, memory_gb=row.memory_gb),
        )
        for row in records.rooms
    )
    reasons = why_waiting(
        tuple(_queued(job) for job in queued),
        supplies,
        budgets,
        now=now,
        match_within=settings.match_within,
    )
    shown = [
        Job(
            job_id=job.job_id,
            repository=job.repository,
            labels=job.labels,
            state="waiting",
            since=job.enqueued_at,
            why=reason.why,
            attention=reason.attention,
        )
        for job, reason in zip(queued, reasons, strict=True)
    ]
    taking = [_taking(job) for job in records.jobs if job.state == "bound"]
    shown.sort(key=lambda job: not job.attention)  # stable: the oldest stay first among equals
    return (*shown, *taking), reasons


def _queued(job: JobRow) -> Queued:
    return Queued(
        job_id=job.job_id,
        tenant=job.tenant,
        labels=job.labels,
        since=job.enqueued_at,
        verified=job.verified,
    )


def _taking(job: JobRow) -> Job:
    return Job(
        job_id=job.job_id,
        repository=job.repository,
        labels=job.labels,
        state="taking",
        since=job.enqueued_at,
        runner=job.runner_name,
        why=f"is handed to {job.runner_name}" if job.runner_name else "is handed to a runner",
    )


def _running(job: JobRow) -> Job:
    return Job(
        job_id=job.job_id,
        repository=job.repository,
        labels=job.labels,
        state="running",
        since=job.started_at,
        waited=_between(job.enqueued_at, job.started_at),
        runner=job.runner_name,
    )


def _finished(job: JobRow) -> Job:
    return Job(
        job_id=job.job_id,
        repository=job.repository,
        labels=job.labels,
        state="done",
        since=job.completed_at,
        waited=_between(job.enqueued_at, job.started_at),
        ran=_between(job.started_at, job.completed_at),
        runner=job.runner_name,
        conclusion=job.conclusion or "unknown",
    )


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else max(0.0, round(end - start, 3))


def _alarms(picture: Picture, records: Records) -> tuple[Alarm, ...]:
    """What is wrong now: our own sources first, then what this process reports of itself."""
    pairs = (
        (picture.postgres, DATABASE_UNREACHABLE),
        (picture.kubernetes, KUBERNETES_UNREACHABLE),
    )
    own = [
        Alarm(
            code=condition.code,
            severity="error",
            title=condition.title,
            text=condition.text,
            message=source.message,
            since=source.since,
        )
        for source, condition in pairs
        if source.state == "down"
    ]
    if records.sweep_late and picture.postgres.state == "ok":
        own.append(
            Alarm(
                code="sweep-late",
                severity="error",
                title="Nobody looks after stuck runners",
                text="No dispatch server has swept lately. Check that one runs and reaches Postgres.",
                since=records.swept_at,
            )
        )
    if picture.cluster is not None and picture.cluster.refused:
        own.append(
            Alarm(
                code="dashboard-refused",
                severity="warning",
                title="Kubernetes refuses a list to the dashboard",
                text="Apply the shipped roles of the dispatch server again.",
                message=", ".join(picture.cluster.refused),
            )
        )
    told = [alarm.code for alarm in own]
    others = [alarm for alarm in picture.alarms if alarm.code not in told]
    return (*own, *sorted(others, key=lambda alarm: alarm.severity != "error"))
