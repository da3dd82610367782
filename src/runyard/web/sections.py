"""The sections of the page, each a function from what it shows to HTML."""

from collections.abc import Sequence

from runyard.web.html import Child, Html, join, tag
from runyard.web.pieces import ago_tag, bar, empty, listing, shape, state
from runyard.web.values import (
    Alarm,
    Healed,
    Host,
    Job,
    Overview,
    Pool,
    Runner,
    Source,
    Tone,
)
from runyard.web.words import count, lasted

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
    """The sentence at the top."""
    verdict = view.verdict
    return tag(
        "section",
        {"class": f"verdict tone-{verdict.tone}", "aria-label": "In one sentence"},
        shape(verdict.tone),
        tag("h1", {}, verdict.title),
        tag("p", {}, verdict.text) if verdict.text else None,
    )


def totals_section(view: Overview) -> Html:
    """The numbers at a glance."""
    totals = view.totals
    tiles: tuple[tuple[str, str, str], ...] = (
        ("waiting", str(totals.waiting), _attention(totals.attention)),
        ("running", str(totals.running), f"on {count(totals.busy, 'runner')}"),
        ("warm", str(totals.idle), f"{totals.starting} starting"),
        ("hosts ready", f"{totals.hosts_ready}/{totals.hosts}", count(totals.runners, "runner")),
        ("healed", str(totals.healed_hour), "in the last hour"),
    )
    return tag(
        "dl",
        {"class": "totals"},
        [
            tag(
                "div",
                {
                    "data-key": name,
                    "class": "alert" if name == "waiting" and totals.attention else None,
                },
                tag("dt", {}, name),
                tag("dd", {}, number, tag("small", {}, note)),
            )
            for name, number, note in tiles
        ],
    )


def _attention(jobs: int) -> str:
    return f"{jobs} beside an idle runner" if jobs else "none beside an idle runner"


def alarms_section(alarms: tuple[Alarm, ...], now: float) -> Html | None:
    """What is wrong now; nothing at all if nothing is."""
    if not alarms:
        return None
    return tag(
        "section",
        {"class": "alarms", "aria-labelledby": "alarms"},
        tag("h2", {"id": "alarms"}, "Wrong right now"),
        tag(
            "ul",
            {},
            [
                tag(
                    "li",
                    {"data-key": alarm.code + alarm.message},
                    state("bad" if alarm.severity == "error" else "warn", alarm.title),
                    tag("span", {"class": "muted"}, " for ", ago_tag(alarm.since, now))
                    if alarm.since is not None
                    else None,
                    tag("p", {}, alarm.text),
                    tag("p", {"class": "mono muted"}, alarm.message) if alarm.message else None,
                )
                for alarm in alarms
            ],
        ),
    )


def pools_section(pools: tuple[Pool, ...], now: float) -> Html:
    """The pools, with their runners as a picture."""
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
    heads = ("Pool", "Runners", "#Warm", "#Busy", "#Starting", "#Desired")
    return listing("Pools", heads, rows, none="There is no pool yet.")


def _pool(pool: Pool, now: float) -> Child:
    if not pool.known:
        return (tag("span", {"class": "strong"}, pool.name), state("warn", "the pool is not seen"))
    image = tag("span", {"class": "mono", "title": pool.image}, short_image(pool.image))
    rolled: Child = None
    if pool.rolled_at is not None and not pool.stale:
        rolled = (" · rolled ", ago_tag(pool.rolled_at, now), " ago")
    return (
        tag("span", {"class": "strong"}, pool.name),
        tag("small", {"class": "muted"}, pool.platform, " · ", image, rolled),
        tag("small", {}, state("wait", f"{pool.stale} on an older image")) if pool.stale else None,
        tag("small", {}, state("warn", "is being deleted")) if pool.leaving else None,
    )


def _below(pool: Pool) -> Html | None:
    alive = pool.idle + pool.busy + pool.starting
    if not pool.known or alive >= pool.desired:
        return None
    return tag("small", {"class": "warn"}, f"{pool.desired - alive} missing")


def short_image(image: str) -> str:
    """The end of a reference, which is what tells two images apart."""
    name, _, digest = image.rpartition("/")[2].partition("@")
    return f"{name}@{digest.removeprefix('sha256:')[:10]}" if digest else name


def waiting_section(view: Overview, now: float) -> Html:
    """The jobs that wait, and why."""
    rows = [
        (
            f"w{job.job_id}",
            _job(job),
            _labels(job),
            ago_tag(job.since, now),
            state("bad" if job.attention else "work" if job.state == "taking" else "wait", job.why),
        )
        for job in view.waiting
    ]
    more = view.totals.waiting - len(view.waiting)
    heads = ("Job", "Labels", "#For", "Why it waits")
    return listing("Waiting jobs", heads, rows, none="Nothing waits.", more=more)


def running_section(view: Overview, now: float) -> Html:
    """The jobs that run."""
    rows = [
        (
            f"r{job.job_id}",
            _job(job),
            tag("span", {"class": "mono"}, job.runner or "–"),
            lasted(job.waited),
            ago_tag(job.since, now),
        )
        for job in view.running
    ]
    more = view.totals.running - len(view.running)
    heads = ("Job", "Runner", "#Waited", "#For")
    return listing("Running jobs", heads, rows, none="Nothing runs.", more=more)


def finished_section(jobs: tuple[Job, ...], now: float) -> Html:
    """The jobs that ended last."""
    rows = [
        (
            f"f{job.job_id}",
            _job(job),
            state(_CONCLUSIONS.get(job.conclusion, "warn"), job.conclusion),
            tag("span", {"class": "mono"}, job.runner or "–"),
            lasted(job.waited),
            lasted(job.ran),
            (ago_tag(job.since, now), " ago"),
        )
        for job in jobs
    ]
    heads = ("Job", "Conclusion", "Runner", "#Waited", "#Ran", "#Ended")
    return listing("Finished jobs", heads, rows, none="No job has ended lately.")


def _job(job: Job) -> Child:
    return (
        tag("span", {"class": "strong"}, job.repository),
        tag("small", {"class": "mono muted"}, str(job.job_id)),
    )


def _labels(job: Job) -> Child:
    return [tag("span", {"class": "label"}, label) for label in job.labels[:8]]


def hosts_section(view: Overview, now: float) -> Html:
    """The machines."""
    rows = [
        (
            host.name,
            (
                tag("span", {"class": "strong"}, host.name),
                tag("small", {"class": "muted"}, _machine(host)),
            ),
            (state(host.tone, host.state), tag("small", {}, host.reason) if host.reason else None),
            (bar(host), tag("small", {"class": "muted"}, f"{host.used} of {host.capacity}")),
            ago_tag(host.heartbeat_at, now),
        )
        for host in view.hosts
    ]
    heads = ("Host", "State", "Pods", "#Heartbeat")
    return listing("Hosts", heads, rows, none="No host has joined yet.", more=view.hidden_hosts)


def _machine(host: Host) -> str:
    isolation = {"none": "not isolated", "": ""}.get(host.isolation, host.isolation)
    return " · ".join(filter(None, (host.platform, isolation)))


def healed_section(entries: tuple[Healed, ...], now: float) -> Html:
    """What was put right by nobody, as a line through time."""
    return tag(
        "section",
        {"class": "healed", "aria-labelledby": "healed"},
        tag("h2", {"id": "healed"}, "Healed by itself"),
        tag("ol", {}, [_heal(entry, now) for entry in entries])
        if entries
        else empty("Nothing had to be healed lately."),
    )


def _heal(entry: Healed, now: float) -> Html:
    facts = [
        tag("span", {"class": "mono"}, entry.runner) if entry.runner else None,
        f"after {lasted(entry.took)}" if entry.took is not None else None,
        entry.then or None,
    ]
    return tag(
        "li",
        {"data-key": f"h{entry.id}"},
        tag("span", {"class": "when"}, ago_tag(entry.at, now), " ago"),
        tag("p", {}, entry.what + "."),
        tag("small", {"class": "muted"}, _dotted(facts)),
    )


def _dotted(facts: Sequence[Child]) -> Child:
    kept = [fact for fact in facts if fact is not None]
    return [join(" · " if place else None, fact) for place, fact in enumerate(kept)]


def runners_section(view: Overview, now: float) -> Html:
    """Every runner."""
    rows = [_runner(runner, now) for runner in view.runners]
    heads = ("Runner", "State", "Job", "Pool", "Host", "#For")
    return listing("Runners", heads, rows, none="No runner is there yet.", more=view.hidden_runners)


def _runner(runner: Runner, now: float) -> tuple[str, *tuple[Child, ...]]:
    job = (
        None
        if runner.job_id is None
        else (runner.repository, tag("small", {"class": "mono muted"}, str(runner.job_id)))
    )
    return (
        runner.uid,
        tag("span", {"class": "mono"}, runner.name),
        (
            state(runner.tone, runner.state),
            tag("small", {"class": "muted"}, runner.words),
            tag("small", {}, state("wait", "older image")) if runner.stale else None,
        ),
        job,
        runner.pool,
        runner.host or "–",
        ago_tag(runner.since, now),
    )


def source_line(source: Source, now: float) -> Html:
    """Whether a source answers."""
    words: Child
    if source.state == "ok":
        return tag("span", {"data-key": source.name}, state("good", f"{source.name} answers"), " ")
    if source.state == "off":
        return tag(
            "span", {"data-key": source.name}, state("off", f"{source.name} is not set up"), " "
        )
    words = ["down for ", ago_tag(source.since, now)]
    if source.as_of is not None:
        words = [*words, ", shown as of ", ago_tag(source.as_of, now), " ago"]
    return tag("span", {"data-key": source.name}, state("bad", source.name), " ", words, " ")
