"""Renders pools as text: a table of all, or everything about one."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from runyard.cli.poolplan import runs_on
from runyard.cli.poolreport import PoolReport
from runyard.cli.screen import table, wrapped
from runyard.web.durations import format_age, format_duration

Format = Literal["table", "wide", "json", "yaml"]
_COLUMNS = ("name", "desired", "ready", "busy", "starting", "image", "runs-on")
_WIDE = (*_COLUMNS, "rolling", "stopping", "fleet", "os", "runtime", "cpu", "memory", "age")


def encoded(value: object, format: Format) -> str:
    """The value as JSON or YAML."""
    if format == "json":
        return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    import yaml  # not for --help: it is slow to load

    text: str = yaml.safe_dump(
        msgspec.to_builtins(value), sort_keys=False, allow_unicode=True, width=110
    )
    return text.rstrip()


def pool_table(reports: Sequence[PoolReport], *, wide: bool, now: float, width: int) -> list[str]:
    """All pools, one line each."""
    rows = [_cells(each, now) for each in reports]
    if wide:
        return table(_WIDE, rows, width=width)
    return table(_COLUMNS, [row[: len(_COLUMNS)] for row in rows], width=width)


def _cells(one: PoolReport, now: float) -> tuple[str, ...]:
    spec = one.spec
    return (
        f"{one.name} (being deleted)" if one.deleting else one.name,
        str(one.desired),
        str(one.ready),
        str(one.busy),
        str(one.starting),
        one.image,
        runs_on(one.runs_on).removeprefix("runs-on: "),
        str(one.rolling),
        str(one.stopping),
        spec.fleet_selector,
        spec.os,
        spec.agent_runtime or spec.runtime_class,
        f"{spec.pod_cpu_milli / 1000:g}",
        f"{spec.pod_memory_mb}Mi",
        format_age(one.created_at, now),
    )


def pool_page(one: PoolReport, *, now: float, width: int) -> list[str]:
    """One pool: what its runners do, where, why not more, and what a workflow writes."""
    return [
        *_head(one, now, width),
        *_conditions(one, now, width),
        *_hosts(one, width),
        *_events(one, now, width),
        *(line for each in one.unread for line in wrapped(f"not read: {each}", width=width)),
    ]


def _head(one: PoolReport, now: float, width: int) -> list[str]:
    spec = one.spec
    counts = (
        (one.ready, "ready"),
        (one.busy, "busy"),
        (one.starting, "starting"),
        (one.stopping, "stopping"),
        (one.rolling, "of an older image or runtime"),
    )
    runners = ", ".join(f"{count} {what}" for count, what in counts if count) or "none"
    runtime = spec.agent_runtime or spec.runtime_class or "stock kubelet"
    state = " (being deleted; running jobs finish first)" if one.deleting else ""
    lines = (
        f"pool {one.name}{state}",
        f"runners: {one.desired} desired; {runners}",
        f"image: {one.image}",
        f"hosts of: {spec.fleet_selector} ({spec.os}, {runtime})",
        f"each runner: {spec.pod_cpu_milli / 1000:g} cores, {spec.pod_memory_mb} MiB",
        f"a roll may replace {spec.rollout.max_concurrent_percent} % at a time",
        f"age: {format_age(one.created_at, now)}",
        f"in a workflow: {runs_on(one.runs_on)}",
    )
    first, *rest = lines
    return [
        *wrapped(first, width=width),
        *(line for text in rest for line in wrapped(text, width=width, indent=2)),
    ]


def _conditions(one: PoolReport, now: float, width: int) -> list[str]:
    lines = ["conditions:"] if one.conditions else []
    for each in one.conditions:
        since = "" if each.since is None else f", for {format_duration(max(0.0, now - each.since))}"
        what = "yes" if each.holds else "no"
        text = f"{each.type}: {what}, {each.reason}{since}. {each.text}"
        lines += wrapped(text, width=width, indent=2)
    if not all(each.holds for each in one.conditions):
        lines += wrapped(
            f"why, step by step: runyard explain pool {one.name}", width=width, indent=2
        )
    return lines


def _hosts(one: PoolReport, width: int) -> list[str]:
    if not one.hosts:
        return ["hosts: none can run it"]
    lines = ["hosts:"]
    for each in one.hosts:
        able = "" if each.able else "; takes no new ones"
        runners = f"{each.runners} runner{'' if each.runners == 1 else 's'}"
        lines += wrapped(f"{each.name}: {runners}{able}", width=width, indent=2)
    return lines


def _events(one: PoolReport, now: float, width: int) -> list[str]:
    lines = ["events, newest first:"] if one.events else []
    for each in one.events:
        times = f" ({each.count} times)" if each.count > 1 else ""
        warning = "warning: " if each.warning else ""
        text = f"{format_age(each.at, now)} ago, {warning}{each.reason}{times}: {each.text}"
        lines += wrapped(text, width=width, indent=2)
    return lines
