"""One overview out of what Postgres, Kubernetes and this process know.

`overview` is pure: two readings, either of which may be missing or old, what this process reports of itself, and
the time. It never fails for want of a source; what is missing is said, and the rest is shown.
"""

from collections import Counter

from runyard.dispatch.machine.values import JobState
from runyard.dispatch.matching.values import fits
from runyard.dispatch.pools import view_of
from runyard.telemetry.conditions import DATABASE_UNREACHABLE, KUBERNETES_UNREACHABLE
from runyard.web import fleet
from runyard.web.cluster import Cluster
from runyard.web.explain.jobs import of_job, overdue, sentence
from runyard.web.explain.scene import JobFacts, Scene, Terms, scene_of
from runyard.web.explain.values import Constraint
from runyard.web.healing import retell
from runyard.web.picture import Picture
from runyard.web.records import JobRow, Records
from runyard.web.settings import Settings
from runyard.web.values import (
    Alarm,
    Host,
    Job,
    Overview,
    Pool,
    Totals,
    Verdict,
)


def overview(picture: Picture, settings: Settings, terms: Terms | None = None) -> Overview:
    """Everything that the dashboard shows; without `terms` there is no dispatcher, and nobody says why jobs wait."""
    records, cluster = picture.records or Records(), picture.cluster
    scene = scene_of(picture, settings, terms or Terms())
    everyone, machines = scene.runners, scene.hosts
    waiting, unmatched = _waiting(records, None if terms is None else scene)
    running = tuple(_running(job) for job in records.jobs if job.state == "running")
    finished = tuple(_finished(job) for job in records.finished)
    demand = _demand(records, cluster)
    groups = fleet.pools(cluster, everyone, demand)
    healed = retell(records.healed)
    attention = sum(job.attention for job in waiting)
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


def _demand(records: Records, cluster: Cluster | None) -> Counter[str]:
    """How many of the waiting jobs would fit each pool."""
    found: Counter[str] = Counter()
    offers = () if cluster is None else tuple(view_of(pool) for pool in cluster.pools)
    for job in records.jobs:
        if job.state == JobState.QUEUED:
            found.update(pool.name for pool in offers if fits(pool, job.labels))
    return found


def _waiting(records: Records, scene: Scene | None) -> tuple[tuple[Job, ...], int]:
    """The jobs that wait, those that should not first, and how many of them no pool matches."""
    queued = [job for job in records.jobs if job.state in (JobState.WAITING, JobState.QUEUED)]
    shown, unmatched = [], 0
    for job in queued:
        chain = () if scene is None else of_job(_facts(job), None, scene)
        unmatched += bool(chain) and chain[0].constraint is Constraint.NO_POOL
        shown.append(
            Job(
                job_id=job.job_id,
                repository=job.repository,
                labels=job.labels,
                state="waiting",
                since=job.enqueued_at,
                why=sentence(chain) if chain else "",
                attention=scene is not None and overdue(chain, scene),
            )
        )
    taking = [_taking(job) for job in records.jobs if job.state == JobState.BOUND]
    shown.sort(key=lambda job: not job.attention)  # stable: the oldest stay first among equals
    return (*shown, *taking), unmatched


def _facts(job: JobRow) -> JobFacts:
    return JobFacts(
        job_id=job.job_id,
        tenant=job.tenant,
        repository=job.repository,
        labels=job.labels,
        state=job.state,
        verified=job.verified,
        runner_name=job.runner_name,
        conclusion=job.conclusion,
        installation_id=job.installation_id,
        enqueued_at=job.enqueued_at,
        look_at=job.look_at,
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
