"""Summarises the fleet in one line: its worst problem, or what holds the most jobs.

Jobs are counted by the matcher's holds, over the waiting jobs and not only those that are shown. So one job with an
odd label does not hide that fifty others wait for a runner. All functions are pure.
"""

from collections import Counter

import msgspec

from runyard.dispatch.machine.values import JobState
from runyard.dispatch.matching.values import Matching
from runyard.web.explain.values import Constraint
from runyard.web.records import JobGroup
from runyard.web.values import Alarm, Host, Pool, Runner, Tone, Totals, Verdict
from runyard.wire import names
from runyard.wire.reasons import Code, Reason, render


class Headline(Code):
    """Summaries that are not about a hold or an alarm."""

    OVERDUE = "jobs-overdue", "{jobs} although a fitting runner is idle"
    HOSTS_NOT_READY = "hosts-not-ready", "{down:d} of {hosts:d} hosts {verb} not ready"
    POOL_STUCK = "pool-not-filled", "The pool {pool} cannot start its runners"
    HOST_STUCK = "host-starts-nothing", "The host {host} cannot start its runners"
    NO_POOLS = "no-pools", "There is no RunnerPool yet"
    NONE_WAITS = "no-job-waits", "No job is waiting"


class Unstarted(msgspec.Struct, frozen=True, kw_only=True):
    """A pool none of whose runners can start."""

    pool: str
    runners: int
    why: str  # of the first of them


class Stuck(msgspec.Struct, frozen=True, kw_only=True):
    """A host on which runners cannot start, of a pool that has others that work."""

    host: str
    runners: tuple[Runner, ...]  # the oldest first

    @property
    def why(self) -> str:
        """What the first of them says."""
        return self.runners[0].words

    @property
    def headline(self) -> Reason:
        """That nothing starts there."""
        return Headline.HOST_STUCK.because(host=self.host)


class _Held(msgspec.Struct, frozen=True):
    """How a hold is shown: the end of the title, the text below, and whether an operator must act."""

    end: str
    text: str = ""
    act: bool = False


PATIENCE = 60.0  # seconds: a VM that ends frees its slot sooner
_PATIENCE_FAILED = 15.0  # seconds, if an attempt has failed: what passes by itself has passed
# The operator's reasons for missing runners that do not pass by themselves as runners start and jobs end.
_STUCK = (names.REASON_BACKOFF, names.REASON_NO_HEALTHY_HOST)
_HOLDS = {
    Constraint.NO_POOL: _Held(
        " for a pool that does not exist",
        "The reasons below list the labels that no pool has.",
        act=True,
    ),
    Constraint.GITHUB: _Held(
        " until GitHub registers runners again", "The reasons below say why it does not.", act=True
    ),
    Constraint.EXCLUDED: _Held(
        " whose runners GitHub does not register for now",
        "The reasons below say what GitHub answered.",
        act=True,
    ),
    Constraint.NO_RUNNER: _Held(" for an idle runner"),
    Constraint.TENANT_CAP: _Held(
        " for budget of the tenant",
        "A job starts when another one of the tenant ends, or when its limit is raised (runyard tenant set).",
    ),
    Constraint.PAUSED: _Held(
        " until the tenant is resumed", "Resume it with runyard tenant resume."
    ),
    Constraint.APPROVAL: _Held(" for an approval at GitHub"),
    Constraint.ASKED_FIRST: _Held(" until GitHub confirms what is still queued"),
    Constraint.UNEXAMINED: _Held(" until the server has read the pools"),
    Constraint.NEXT: _Held(" to be matched"),
}


def count_holds(groups: tuple[JobGroup, ...], matching: Matching | None) -> Counter[Constraint]:
    """Count the waiting jobs by what holds them; nothing without a dispatcher."""
    found: Counter[Constraint] = Counter()
    if matching is None:
        return found
    held = {(e.tenant, e.repository, e.labels): e for e in reversed(matching.held)}
    for group in groups:
        hold = held.get((group.tenant, group.repository, group.labels))
        if group.state == JobState.WAITING:
            constraint = Constraint.APPROVAL
        elif not group.verified:
            constraint = Constraint.ASKED_FIRST
        elif not matching.pools_read:
            constraint = Constraint.UNEXAMINED
        else:
            constraint = Constraint.NEXT if hold is None else Constraint(hold.hold.value)
        found[constraint] += group.jobs
    return found


def verdict(
    alarms: tuple[Alarm, ...],
    totals: Totals,
    all_hosts: tuple[Host, ...],
    groups: tuple[Pool, ...],
    *,
    holds: Counter[Constraint],
    unstarted: tuple[Unstarted, ...] = (),
    stuck_hosts: tuple[Stuck, ...] = (),
) -> Verdict:
    """Summarise the fleet: errors, jobs that an operator must help, hosts, empty pools, warnings, pools, other jobs."""
    errors = [alarm for alarm in alarms if alarm.severity == "error"]
    if errors:
        more = f"{len(errors) - 1} more below." if len(errors) > 1 else ""
        return _of_alarm(errors[0], "bad", more)
    if totals.attention:
        text = "They wait longer than the matcher needs. Check the dispatch server's log."
        overdue = Headline.OVERDUE.because(jobs=_waiting(totals.attention))
        return _verdict("bad", overdue, text, jobs=totals.attention)
    most = _most(holds)
    if most is not None and _HOLDS[most].act:
        return _of_hold(most, holds, totals)
    down = len(all_hosts) - sum(host.tone in {"good", "warn"} for host in all_hosts)
    if down:
        return _of_hosts(down, all_hosts)
    if unstarted:
        return _of_unstarted(unstarted)
    if alarms:
        return _of_alarm(alarms[0], "warn")
    if stuck := next(filter(None, map(_stuck, groups)), None):
        return stuck
    if stuck_hosts:
        return _of_stuck(stuck_hosts)
    if most is not None:
        return _of_hold(most, holds, totals)
    if totals.waiting:
        text = f"{totals.busy} busy, {totals.starting} starting."
        return Verdict(tone="wait", title=_waiting(totals.waiting), text=text, jobs=totals.waiting)
    if not groups:
        text = "Create a RunnerPool; jobs wait until one matches their labels."
        return _verdict("off", Headline.NO_POOLS.because(), text)
    work = f"{totals.running} running, " if totals.running else ""
    return _verdict("good", Headline.NONE_WAITS.because(), f"{work}{totals.idle} idle.")


def _stuck(pool: Pool) -> Verdict | None:
    """That the operator cannot start the pool's runners, or None."""
    text = next((c.text for c in pool.conditions if not c.holds and c.reason in _STUCK), None)
    if text is None:
        return None
    return _verdict("warn", Headline.POOL_STUCK.because(pool=pool.name), f"{text}.")


def unstarted(
    groups: tuple[Pool, ...], runners: tuple[Runner, ...], *, now: float
) -> tuple[Unstarted, ...]:
    """The pools without a runner that works or may start, and for how long already: whether or not a job waits."""
    found = []
    for pool in groups:
        if not pool.known or pool.leaving or not pool.desired or pool.idle or pool.busy:
            continue
        blocked = [each for each in runners if each.pool == pool.name and each.blocked]
        since = min((each.since or now for each in blocked), default=now)
        may_start = pool.starting > sum(each.state == "starting" for each in blocked)
        failed = any(_has_failed(each) for each in blocked)
        if not may_start and now - since >= (_PATIENCE_FAILED if failed else PATIENCE):
            found.append(Unstarted(pool=pool.name, runners=len(blocked), why=blocked[0].words))
    return tuple(found)


def _has_failed(runner: Runner) -> bool:
    """Whether its host has tried to start it; one without a host, or without a slot of it, waits."""
    return bool(runner.blocked and runner.host) and runner.blocked != names.WAITING_SLOT


def stuck_hosts(
    groups: tuple[Pool, ...], runners: tuple[Runner, ...], *, now: float
) -> tuple[Stuck, ...]:
    """The hosts on which starts have failed for a while, although other runners of the pool work.

    A runner that waits for a slot of its host is not counted: another program uses it, which may be wanted.
    """
    serving = {each.name for each in groups if not each.leaving and (each.idle or each.busy)}
    found: dict[str, list[Runner]] = {}
    for each in sorted(runners, key=lambda runner: runner.since or now):
        if _has_failed(each) and each.pool in serving and now - (each.since or now) >= PATIENCE:
            found.setdefault(each.host, []).append(each)
    return tuple(Stuck(host=host, runners=tuple(some)) for host, some in found.items())


def _of_unstarted(pools: tuple[Unstarted, ...]) -> Verdict:
    first = pools[0]
    others = f" Also {', '.join(each.pool for each in pools[1:])}." if len(pools) > 1 else ""
    text = (
        f"None of its runners ({first.runners}) can start. The first: {_ended(first.why)}{others}"
    )
    return _verdict("warn", Headline.POOL_STUCK.because(pool=first.pool), text)


def _of_stuck(hosts: tuple[Stuck, ...]) -> Verdict:
    first = hosts[0]
    others = f" Also {', '.join(each.host for each in hosts[1:])}." if len(hosts) > 1 else ""
    text = f"{len(first.runners)} of them cannot. The first: {_ended(first.why)}{others}"
    return _verdict("warn", first.headline, text)


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith("…") else f"{sentence.rstrip('.')}."


def _most(holds: Counter[Constraint]) -> Constraint | None:
    """The hold of the most jobs; of equal ones that on which an operator must act."""
    order = list(_HOLDS)
    known = [each for each in order if holds[each]]
    return max(known, key=lambda each: (holds[each], -order.index(each)), default=None)


def _of_hold(most: Constraint, holds: Counter[Constraint], totals: Totals) -> Verdict:
    shown = _HOLDS[most]
    text = shown.text or f"{totals.busy} busy, {totals.starting} starting."
    others = [f"{holds[each]}{_HOLDS[each].end}" for each in _HOLDS if each != most and holds[each]]
    return Verdict(
        tone="warn" if shown.act else "wait",
        title=f"{_waiting(holds[most])}{shown.end}",
        text=f"{text} Also {', '.join(others)}." if others else text,
        reason=most.value,
        jobs=holds[most],
    )


def _of_hosts(down: int, all_hosts: tuple[Host, ...]) -> Verdict:
    first, verb = all_hosts[0], "is" if down == 1 else "are"
    reason = Headline.HOSTS_NOT_READY.because(down=down, hosts=len(all_hosts), verb=verb)
    return _verdict("warn", reason, f"First: {first.name}, {first.state}.")


def _verdict(tone: Tone, reason: Reason, text: str, *, jobs: int = 0) -> Verdict:
    return Verdict(tone=tone, title=render(reason), text=text, reason=reason.slug, jobs=jobs)


def _of_alarm(alarm: Alarm, tone: Tone, more: str = "") -> Verdict:
    text = f"{alarm.text} {more}".strip()
    return Verdict(tone=tone, title=alarm.title, text=text, reason=alarm.code)


def _waiting(count: int) -> str:
    return "1 job is waiting" if count == 1 else f"{count} jobs are waiting"
