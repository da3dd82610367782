"""Renders the status of a fleet for a terminal of any width: the verdict first, then what it is made of."""

import click

from runyard.cli.screen import table, wrapped
from runyard.cli.statusview import Component, Problem, StatusView
from runyard.web.durations import format_age, format_duration
from runyard.web.values import Host, Pool

_MARKS = {
    "healthy": ("HEALTHY", "green"),
    "degraded": ("DEGRADED", "yellow"),
    "critical": ("CRITICAL", "red"),
    "unknown": ("UNKNOWN", "magenta"),
}
_HOUR = 3600.0


def screen(view: StatusView, *, width: int, color: bool = False) -> list[str]:
    """The lines of the screen."""
    sections = (
        _verdict(view, width, color=color),
        _components(view, width),
        _hosts(view, width),
        _pools(view, width),
        _queue(view, width),
        _problems(view, width),
        _recovered(view, width),
        [line for each in view.unread for line in wrapped(f"not read: {each}", width=width)],
    )
    lines: list[str] = []
    for section in filter(None, sections):
        lines += [*([""] if lines else []), *section]
    return lines


def _verdict(view: StatusView, width: int, *, color: bool) -> list[str]:
    mark, tone = _MARKS[view.state]
    first, *rest = wrapped(f"{mark}: {view.title}", width=width)
    shown = click.style(mark, fg=tone, bold=True) if color else mark
    lines = [shown + first.removeprefix(mark), *rest]
    for text in (view.text, f"of {view.where}"):
        lines += wrapped(text, width=width, indent=2) if text else []
    return lines


def _components(view: StatusView, width: int) -> list[str]:
    if not view.components:
        return []
    columns = ("component", "state", "version", "restarts in 24 h")
    rows = [_component(each, view.at) for each in view.components]
    return table(columns, rows, width=width)


def _component(one: Component, now: float) -> tuple[str, ...]:
    state = f"{one.state}: {one.text}" if one.text and one.state != "works" else one.state
    restarts = ""
    if one.restarts:
        restarts = f"{one.restarts}, the last {format_age(one.restarted_at, now)} ago"
    return one.name, state, one.version, restarts


def _hosts(view: StatusView, width: int) -> list[str]:
    if view.hosts is None:
        return []
    if not view.hosts:
        return ["hosts: none has joined yet"]
    columns = ("host", "state", "slots", "running", "heartbeat")
    rows = [_host(each, view.at) for each in view.hosts]
    more = [f"{view.hidden_hosts} more hosts"] if view.hidden_hosts else []
    return [*table(columns, rows, width=width), *more]


def _host(one: Host, now: float) -> tuple[str, ...]:
    more = [*one.pressure, *(["cordoned"] if one.cordoned and one.state != "cordoned" else [])]
    state = f"{one.state} ({', '.join(more)})" if more else one.state
    age = format_age(one.heartbeat_at, now)
    beat = age if age in ("now", "–") else f"{age} ago"
    return one.name, state, f"{one.used} of {one.capacity} used", str(one.running), beat


def _pools(view: StatusView, width: int) -> list[str]:
    if view.pools is None:
        return []
    if not view.pools:
        create = "runyard pool create NAME --image REF --replicas 1"
        return wrapped(f"pools: none. Create one: {create}", width=width)
    columns = ("pool", "desired", "idle", "busy", "starting", "rolling", "jobs waiting", "runs-on")
    return table(columns, [_pool(each) for each in view.pools], width=width)


def _pool(one: Pool) -> tuple[str, ...]:
    state = " (being deleted)" if one.leaving else "" if one.known else " (no RunnerPool)"
    counts = (one.desired, one.idle, one.busy, one.starting, one.stale, one.waiting)
    return one.name + state, *map(str, counts), f"[{', '.join(one.labels)}]"


def _queue(view: StatusView, width: int) -> list[str]:
    if view.queue is None:
        return []
    queue = view.queue
    stuck = f", {queue.attention} although a fitting runner is idle" if queue.attention else ""
    lines = wrapped(f"jobs: {queue.queued} queued{stuck}, {queue.running} running", width=width)
    one = queue.oldest
    if one is None:
        return lines
    waits = (
        "" if one.since is None else f", waits for {format_duration(max(0.0, view.at - one.since))}"
    )
    name = f' "{one.name}"' if one.name else ""
    where = f" ({one.where})" if one.where else ""
    texts = [f"oldest: job {one.job} of {one.repository}{name}{waits}"]
    texts += [f"why: {one.constraint}{where}: {one.why}"] if one.why else []
    texts += [f"ends when: {one.ends}"] if one.ends else []
    texts += [f"all steps: runyard explain job {one.job}"]
    return [*lines, *(line for text in texts for line in wrapped(text, width=width, indent=2))]


def _problems(view: StatusView, width: int) -> list[str]:
    if not view.problems:
        return []
    return ["problems:", *(x for each in view.problems for x in _problem(each, view.at, width))]


def _problem(one: Problem, now: float, width: int) -> list[str]:
    since = "" if one.since is None else f", for {format_duration(max(0.0, now - one.since))}"
    message = f". {one.message}" if one.message else ""
    lines = wrapped(
        f"{one.severity} ({one.where}{since}): {one.title}{message}", width=width, indent=2
    )
    return [*lines, *(wrapped(f"fix: {one.fix}", width=width, indent=4) if one.fix else [])]


def _recovered(view: StatusView, width: int) -> list[str]:
    if not view.recovered_hour:
        return []
    lines = wrapped(f"recovered automatically in the last hour: {view.recovered_hour}", width=width)
    for each in view.recovered:
        text = f"{format_age(each.at, view.at)} ago: {each.what}"
        lines += wrapped(text, width=width, indent=2)
    more = view.recovered_hour - sum(each.at > view.at - _HOUR for each in view.recovered)
    return [*lines, f"  and {more} more: runyard dashboard"] if more > 0 else lines
