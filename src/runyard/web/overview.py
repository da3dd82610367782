"""Builds the dashboard's overview from a snapshot.

`build_overview` is a pure function. Each source of the snapshot may be missing or old: the overview then has an alarm
for the source, and shows the other data.
"""

from collections import Counter

import msgspec

from runyard.dispatch.machine.values import JobState
from runyard.dispatch.matching.values import fits
from runyard.dispatch.pools import view_of
from runyard.telemetry.conditions import DATABASE_UNREACHABLE, KUBERNETES_UNREACHABLE
from runyard.web import fleet
from runyard.web.cluster import Cluster
from runyard.web.explain.context import Context, DispatchLimits, JobFacts, build_context
from runyard.web.explain.jobs import explain_job, overdue
from runyard.web.explain.values import Constraint
from runyard.web.explain.views import summary
from runyard.web.links import run_url
from runyard.web.records import JobRow, Records
from runyard.web.recoveries import render_recoveries, render_restarts
from runyard.web.settings import Settings
from runyard.web.snapshot import Snapshot
from runyard.web.values import (
    Alarm,
    Job,
    Overview,
    Totals,
)
from runyard.web.values import JobState as ShownState
from runyard.web.verdict import count_holds, stuck_hosts, unstarted, verdict

_HOUR = 3600.0


def build_overview(
    snapshot: Snapshot, settings: Settings, limits: DispatchLimits | None = None
) -> Overview:
    """Build the overview. Without `limits` there is no dispatcher, and waiting jobs have no reason."""
    records, cluster = snapshot.records or Records(), snapshot.cluster
    context = build_context(snapshot, settings, limits or DispatchLimits())
    all_runners, all_hosts = context.runners, context.hosts
    github = settings.github
    waiting = _waiting(records, None if limits is None else context, github)
    running = tuple(_running(job, github) for job in records.jobs if job.state == "running")
    finished = tuple(_finished(job, github) for job in records.finished)
    demand = _demand(records, cluster)
    groups = fleet.pools(cluster, all_runners, demand)
    restarted = render_restarts(snapshot.restarts)
    recovered = (*render_recoveries(records.recoveries), *restarted)
    attention = sum(job.attention for job in waiting)
    totals = Totals(
        waiting=max(records.waiting, len(waiting)),
        running=max(records.running, len(running)),
        attention=attention,
        idle=sum(pool.idle for pool in groups),
        busy=sum(pool.busy for pool in groups),
        starting=sum(pool.starting for pool in groups),
        runners=len(all_runners),
        hosts=len(all_hosts),
        hosts_ready=sum(host.state == "ready" for host in all_hosts),
        healed_hour=sum(entry.last_hour for entry in records.recoveries)
        + sum(each.at > snapshot.at - _HOUR for each in restarted),
    )
    alarms = _alarms(snapshot, records)
    holds = count_holds(records.groups, None if limits is None else records.matching)
    return Overview(
        at=snapshot.at,
        verdict=verdict(
            alarms,
            totals,
            all_hosts,
            groups,
            holds=holds,
            unstarted=unstarted(groups, all_runners, now=snapshot.at),
            stuck_hosts=stuck_hosts(groups, all_runners, now=snapshot.at),
        ),
        sources=(snapshot.postgres, snapshot.kubernetes),
        totals=totals,
        alarms=alarms,
        pools=groups,
        hosts=all_hosts[: settings.hosts_shown],
        hidden_hosts=max(0, len(all_hosts) - settings.hosts_shown),
        runners=all_runners[: settings.runners_shown],
        hidden_runners=max(0, len(all_runners) - settings.runners_shown),
        waiting=waiting,
        running=running,
        finished=finished,
        healed=tuple(sorted(recovered, key=lambda each: -each.at))[: settings.recoveries_shown],
    )


def _demand(records: Records, cluster: Cluster | None) -> Counter[str]:
    """Count the waiting jobs that fit each pool."""
    found: Counter[str] = Counter()
    views = () if cluster is None else tuple(view_of(pool) for pool in cluster.pools)
    for job in records.jobs:
        if job.state == JobState.QUEUED:
            found.update(pool.name for pool in views if fits(pool, job.labels))
    return found


def _waiting(records: Records, context: Context | None, github: str) -> tuple[Job, ...]:
    """Return the waiting jobs, overdue ones first."""
    queued = [job for job in records.jobs if job.state in (JobState.WAITING, JobState.QUEUED)]
    shown = []
    for job in queued:
        chain = () if context is None else explain_job(_facts(job), None, context)
        shown.append(
            msgspec.structs.replace(
                _shown(job, "waiting", job.enqueued_at, github),
                reason=chain[0].code if chain else "",
                text=summary(chain) if chain else "",
                attention=context is not None and overdue(chain, context),
            )
        )
    taking = [_taking(job, github) for job in records.jobs if job.state == JobState.BOUND]
    shown.sort(key=lambda job: not job.attention)  # stable: older jobs stay first
    return (*shown, *taking)


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


def _taking(job: JobRow, github: str) -> Job:
    return msgspec.structs.replace(
        _shown(job, "taking", job.enqueued_at, github),
        runner=job.runner_name,
        reason=Constraint.NEXT.value,
        text=f"assigned to {job.runner_name}" if job.runner_name else "assigned to a runner",
    )


def _running(job: JobRow, github: str) -> Job:
    return msgspec.structs.replace(
        _shown(job, "running", job.started_at, github),
        waited=_between(job.enqueued_at, job.started_at),
        runner=job.runner_name,
    )


def _finished(job: JobRow, github: str) -> Job:
    return msgspec.structs.replace(
        _shown(job, "done", job.completed_at, github),
        waited=_between(job.enqueued_at, job.started_at),
        ran=_between(job.started_at, job.completed_at),
        runner=job.runner_name,
        conclusion=job.conclusion or "unknown",
    )


def _shown(job: JobRow, state: ShownState, since: float | None, github: str) -> Job:
    """A job as every section shows it."""
    return Job(
        job_id=job.job_id,
        repository=job.repository,
        name=job.name,
        workflow=job.workflow,
        url=run_url(github, job.repository, run_id=job.run_id, job_id=job.job_id),
        labels=job.labels,
        state=state,
        since=since,
    )


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else max(0.0, round(end - start, 3))


def _alarms(snapshot: Snapshot, records: Records) -> tuple[Alarm, ...]:
    """Return the alarms: failing sources first, then the health of this process."""
    pairs = (
        (snapshot.postgres, DATABASE_UNREACHABLE),
        (snapshot.kubernetes, KUBERNETES_UNREACHABLE),
    )
    own = [
        Alarm(
            code=condition.code,
            severity="error",
            title=condition.title,
            text=condition.fix,
            message=source.message,
            since=source.since,
        )
        for source, condition in pairs
        if source.state == "down"
    ]
    if records.sweep_late and snapshot.postgres.state == "ok":
        own.append(
            Alarm(
                code="sweep-late",
                severity="error",
                title="Stuck runners are not recovered",
                text="No dispatch server has run its sweep recently. Check that one is running and reaches Postgres.",
                since=records.swept_at,
            )
        )
    if snapshot.cluster is not None and snapshot.cluster.refused:
        own.append(
            Alarm(
                code="dashboard-refused",
                severity="warning",
                title="The dashboard may not list some Kubernetes objects",
                text="Apply the roles of the dispatch server again (deploy/roles).",
                message=", ".join(snapshot.cluster.refused),
            )
        )
    own_codes = [alarm.code for alarm in own]
    others = [alarm for alarm in snapshot.alarms if alarm.code not in own_codes]
    return (*own, *sorted(others, key=lambda alarm: alarm.severity != "error"))
