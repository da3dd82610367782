"""Renders the sections of the page, one function each."""

from collections.abc import Sequence

from runyard.web.durations import format_duration, pluralize
from runyard.web.elements import (
    age,
    bar,
    cut,
    empty,
    listing,
    name,
    shape,
    shorten_words,
    state,
)
from runyard.web.html import Child, Html, join, tag
from runyard.web.values import (
    Alarm,
    Host,
    Job,
    Overview,
    Pool,
    Recovery,
    Runner,
    Source,
    Tone,
)

_CONCLUSIONS: dict[str, Tone] = {
    "success": "good",
    "failure": "bad",
    "timed_out": "bad",
    "startup_failure": "bad",
    "cancelled": "off",
    "skipped": "off",
    "neutral": "off",
}


def verdict_section(view: Overview) -> Html:
    """Render the summary at the top."""
    verdict = view.verdict
    return tag(
        "section",
        {"class": f"verdict tone-{verdict.tone}", "aria-label": "Summary"},
        shape(verdict.tone),
        tag("h1", {}, shorten_words(verdict.title)),
        tag("p", {}, shorten_words(verdict.text)) if verdict.text else None,
    )


def totals_section(view: Overview) -> Html:
    """Render the totals."""
    totals = view.totals
    tiles: tuple[tuple[str, str, str], ...] = (
        ("waiting", str(totals.waiting), _attention(totals.attention)),
        ("running", str(totals.running), f"on {pluralize(totals.busy, 'runner')}"),
        ("idle", str(totals.idle), f"{totals.starting} starting"),
        (
            "hosts ready",
            f"{totals.hosts_ready}/{totals.hosts}",
            pluralize(totals.runners, "runner"),
        ),
        ("recovered", str(totals.healed_hour), "in the last hour"),
    )
    return tag(
        "dl",
        {"class": "totals"},
        [
            tag(
                "div",
                {
                    "data-key": tile,
                    "class": "alert" if tile == "waiting" and totals.attention else None,
                },
                tag("dt", {}, tile),
                tag("dd", {}, number, tag("small", {}, note)),
            )
            for tile, number, note in tiles
        ],
    )


def _attention(jobs: int) -> str:
    return f"{jobs} beside an idle runner" if jobs else "none beside an idle runner"


def alarms_section(alarms: tuple[Alarm, ...], now: float) -> Html | None:
    """Render the alarms; None if there are none."""
    if not alarms:
        return None
    return tag(
        "section",
        {"class": "alarms", "aria-labelledby": "alarms"},
        tag("h2", {"id": "alarms"}, "Alarms"),
        tag(
            "ul",
            {},
            [
                tag(
                    "li",
                    {"data-key": alarm.code + alarm.message},
                    state("bad" if alarm.severity == "error" else "warn", alarm.title),
                    tag("span", {"class": "muted"}, " for ", age(alarm.since, now))
                    if alarm.since is not None
                    else None,
                    tag("p", {}, shorten_words(alarm.text)),
                    tag("p", {"class": "mono muted"}, shorten_words(alarm.message))
                    if alarm.message
                    else None,
                )
                for alarm in alarms
            ],
        ),
    )


def pools_section(pools: tuple[Pool, ...], now: float) -> Html:
    """Render the pools, with a bar of their runners."""
    rows = [
        (
            pool.name,
            _pool(pool, now),
            bar(pool),
            str(pool.idle),
            str(pool.busy),
            str(pool.starting),
            (str(pool.desired), _below(pool)),
        )
        for pool in pools
    ]
    heads = ("Pool", "Runners", "#Idle", "#Busy", "#Starting", "#Desired")
    return listing("Pools", heads, rows, none="There is no RunnerPool yet.")


def _pool(pool: Pool, now: float) -> Child:
    if not pool.known:
        return (
            cut(pool.name, "strong"),
            state("warn", "no RunnerPool of this name"),
        )
    image = tag(
        "span", {"class": "mono", "title": pool.image}, shorten_words(short_image(pool.image))
    )
    rolled: Child = None
    if pool.rolled_at is not None and not pool.stale:
        rolled = (" · rolled ", age(pool.rolled_at, now), " ago")
    return (
        cut(pool.name, "strong"),
        tag("small", {"class": "muted"}, pool.platform, " · ", image, rolled),
        tag("small", {}, state("wait", f"{pool.stale} on an older image")) if pool.stale else None,
        tag("small", {}, state("warn", "being deleted")) if pool.leaving else None,
    )


def _below(pool: Pool) -> Html | None:
    alive = pool.idle + pool.busy + pool.starting
    if not pool.known or alive >= pool.desired:
        return None
    return tag("small", {"class": "warn"}, f"{pool.desired - alive} missing")


def short_image(image: str) -> str:
    """Shorten an image reference to its name and the begin of its digest."""
    short, _, digest = image.rpartition("/")[2].partition("@")
    return f"{short}@{digest.removeprefix('sha256:')[:10]}" if digest else short


def waiting_section(view: Overview, now: float) -> Html:
    """Render the waiting jobs with their reasons."""
    rows = [
        (
            f"w{job.job_id}",
            _job(job),
            _labels(job),
            age(job.since, now),
            state(
                "bad" if job.attention else "work" if job.state == "taking" else "wait", job.text
            ),
        )
        for job in view.waiting
    ]
    more = view.totals.waiting - len(view.waiting)
    heads = ("Job", "Labels", "#For", "Reason")
    return listing("Waiting jobs", heads, rows, none="No job is waiting.", more=more)


def running_section(view: Overview, now: float) -> Html:
    """Render the running jobs."""
    rows = [
        (
            f"r{job.job_id}",
            _job(job),
            name(job.runner or "–", "mono"),
            format_duration(job.waited),
            age(job.since, now),
        )
        for job in view.running
    ]
    more = view.totals.running - len(view.running)
    heads = ("Job", "Runner", "#Waited", "#For")
    return listing("Running jobs", heads, rows, none="No job is running.", more=more)


def finished_section(jobs: tuple[Job, ...], now: float) -> Html:
    """Render the jobs that finished last."""
    rows = [
        (
            f"f{job.job_id}",
            _job(job),
            state(_CONCLUSIONS.get(job.conclusion, "warn"), job.conclusion),
            name(job.runner or "–", "mono"),
            format_duration(job.waited),
            format_duration(job.ran),
            (age(job.since, now), " ago"),
        )
        for job in jobs
    ]
    heads = ("Job", "Conclusion", "Runner", "#Waited", "#Ran", "#Ended")
    return listing("Finished jobs", heads, rows, none="No job has finished recently.")


def _job(job: Job) -> Child:
    return job_cell(job.name, (job.repository, job.workflow), job.url, job.job_id)


def job_cell(title: str, belongs: tuple[str, ...], url: str, job_id: int) -> Child:
    """Render a job: its name, linked to its run; where it belongs; and its number, linked to its record."""
    where = " · ".join(filter(None, belongs))
    record = tag("a", {"href": f"/api/v1/jobs/{job_id}"}, str(job_id))
    title, where = (title, where) if title else (where, "")
    return (
        name(title, "strong", url),
        tag(
            "small",
            {"class": "where muted"},
            cut(where) if where else None,
            tag("span", {"class": "mono"}, record),
        ),
    )


def _labels(job: Job) -> Child:
    return [cut(label, "label") for label in job.labels[:8]]


def hosts_section(view: Overview, now: float) -> Html:
    """Render the hosts."""
    rows = [
        (
            host.name,
            (
                cut(host.name, "strong"),
                tag("small", {"class": "muted"}, _machine(host)),
            ),
            (
                state(host.tone, host.state),
                tag("small", {}, shorten_words(host.reason)) if host.reason else None,
            ),
            (bar(host), tag("small", {"class": "muted"}, f"{host.used} of {host.capacity}")),
            age(host.heartbeat_at, now),
        )
        for host in view.hosts
    ]
    heads = ("Host", "State", "Pods", "#Heartbeat")
    return listing("Hosts", heads, rows, none="No host has joined yet.", more=view.hidden_hosts)


def _machine(host: Host) -> str:
    isolation = {"none": "not isolated", "": ""}.get(host.isolation, host.isolation)
    return " · ".join(filter(None, (host.platform, isolation)))


def recoveries_section(entries: tuple[Recovery, ...], now: float) -> Html:
    """Renders the automatic recoveries as a timeline."""
    return tag(
        "section",
        {"class": "recoveries", "aria-labelledby": "recoveries"},
        tag("h2", {"id": "recoveries"}, "Recovered automatically"),
        tag("ol", {}, [_recovery(entry, now) for entry in entries])
        if entries
        else empty("No recoveries recently."),
    )


def _recovery(entry: Recovery, now: float) -> Html:
    facts = [
        tag("span", {"class": "mono"}, shorten_words(entry.runner)) if entry.runner else None,
        f"after {format_duration(entry.took)}" if entry.took is not None else None,
        entry.then or None,
    ]
    return tag(
        "li",
        {"data-key": f"{entry.component or 'h'}{entry.id}"},
        tag("span", {"class": "when"}, age(entry.at, now), " ago"),
        tag("p", {}, shorten_words(entry.what) + "."),
        tag("small", {"class": "muted"}, _dotted(facts)),
    )


def _dotted(facts: Sequence[Child]) -> Child:
    kept = [fact for fact in facts if fact is not None]
    return [join(" · " if place else None, fact) for place, fact in enumerate(kept)]


def runners_section(view: Overview, now: float) -> Html:
    """Render the runners."""
    rows = [_runner(runner, now) for runner in view.runners]
    heads = ("Runner", "State", "Job", "Pool", "Host", "#For")
    return listing("Runners", heads, rows, none="There is no runner yet.", more=view.hidden_runners)


def _runner(runner: Runner, now: float) -> tuple[str, *tuple[Child, ...]]:
    job = (
        None
        if runner.job_id is None
        else job_cell(
            runner.job_name,
            (runner.repository, runner.job_workflow),
            runner.job_url,
            runner.job_id,
        )
    )
    return (
        runner.uid,
        name(runner.name, "mono"),
        (
            state(runner.tone, runner.state),
            tag("small", {"class": "muted"}, shorten_words(runner.words)),
            tag("small", {}, state("wait", "older image")) if runner.stale else None,
        ),
        job,
        cut(runner.pool),
        cut(runner.host or "–"),
        age(runner.since, now),
    )


def source_line(source: Source, now: float) -> Html:
    """Render the state of a source."""
    text: Child
    if source.state == "ok":
        return tag("span", {"data-key": source.name}, state("good", f"{source.name} is up"), " ")
    if source.state == "off":
        return tag(
            "span", {"data-key": source.name}, state("off", f"{source.name} is not configured"), " "
        )
    text = ["down for ", age(source.since, now)]
    if source.as_of is not None:
        text = [*text, ", shown as of ", age(source.as_of, now), " ago"]
    return tag("span", {"data-key": source.name}, state("bad", source.name), " ", text, " ")
