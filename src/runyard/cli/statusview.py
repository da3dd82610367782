"""What `runyard status` knows, as values, and the one verdict that follows from it.

`StatusView` is the JSON of `--json`: fields are added and never renamed. Hosts and pools are those of the dashboard's
overview, unchanged. All functions are pure.

Invariants:
- The verdict is the dashboard's own. Only what the server cannot see is added: a component of this machine that does
  not respond or not work makes a fleet degraded that the server finds healthy.
- What could not be read is in `unread` and never counts as healthy: without the server's verdict the state is
  `unknown`, or `critical` if the server is a process of this machine that does not respond.
"""

from typing import Literal

import msgspec

from runyard.web.explain.reasons import Ends
from runyard.web.explain.values import Constraint
from runyard.web.explain.views import ExplanationView
from runyard.web.values import Host, Overview, Pool, Tone
from runyard.web.verdict import PATIENCE, stuck_hosts
from runyard.wire.reasons import render

State = Literal["healthy", "degraded", "critical", "unknown"]
ComponentState = Literal["works", "degraded", "down", "unknown"]
EXIT: dict[State, int] = {"healthy": 0, "degraded": 1, "critical": 1, "unknown": 2}
_STATES: dict[Tone, State] = {"bad": "critical", "warn": "degraded"}
_DAY = 86400.0
# By the code of what would end it.
_FIXES = {
    Ends.DISK_FREED.value: "Free space on the disk of {host}; images of runyard that no Pod uses go by themselves",
    Ends.IMAGE_CORRECTED.value: "Correct its image: runyard pool create {pool} --image REF --replace",
    Ends.REGISTRY_LOGIN.value: "On {host}, log in to the registry: tart login HOST",
    Ends.REGISTRY_ANSWERS.value: "Check the network of {host} and the registry; it is tried again by itself",
    Ends.SLOT_FREE.value: "Stop VMs of other tools on its host: tart list, tart stop NAME",
}
_FIX = "Correct what the message says, for example its image: runyard pool create {pool} --image REF --replace"


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is wrong, with its fix. `where` is a component, host or pool."""

    where: str
    code: str
    severity: Literal["note", "warning", "error"]
    title: str
    message: str = ""
    fix: str = ""
    since: float | None = None


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """One process of the fleet. `restarts` counts 24 hours; `restarted…` says when and why the last one was."""

    name: str
    state: ComponentState
    text: str = ""
    version: str = ""  # empty: it does not say
    restarts: int = 0
    restarted_at: float | None = None
    restarted: str = ""
    problems: tuple[Problem, ...] = ()


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """A component that was restarted."""

    component: str
    at: float
    what: str


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """The oldest waiting job, what it waits for (a constraint of `runyard explain`), and what ends that."""

    job: int
    repository: str
    name: str
    since: float | None
    constraint: str
    why: str
    ends: str = ""
    where: str = ""  # the object of the chain that holds it: a pool, a host, GitHub


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs. `attention` wait although a fitting runner is idle."""

    queued: int
    running: int
    attention: int
    oldest: Waiting | None = None


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A fault that was recovered automatically."""

    at: float
    what: str


class StatusView(msgspec.Struct, frozen=True, kw_only=True):
    """The whole fleet at one moment. Moments are seconds since the epoch; None is "could not be read"."""

    at: float
    where: str
    state: State
    title: str
    text: str = ""
    reason: str = ""
    components: tuple[Component, ...] = ()
    hosts: tuple[Host, ...] | None = None
    hidden_hosts: int = 0
    pools: tuple[Pool, ...] | None = None
    queue: Queue | None = None
    problems: tuple[Problem, ...] = ()
    recovered_hour: int | None = None
    recovered: tuple[Event, ...] = ()
    unread: tuple[str, ...] = ()


class Readings(msgspec.Struct, frozen=True, kw_only=True):
    """What was read. `failure` says why there is no overview, `fix` what to do."""

    at: float
    where: str
    version: str  # of this command
    local: bool = False  # a machine of `runyard up` that runs here
    overview: Overview | None = None
    failure: str = ""
    fix: str = ""
    oldest: ExplanationView | None = None
    starting: tuple[ExplanationView, ...] = ()  # of `starting_pools`
    components: tuple[Component, ...] = ()
    restarts: tuple[Ended, ...] | None = None  # None: not known on this machine
    unread: tuple[str, ...] = ()


def status_of(read: Readings) -> StatusView:
    """The screen's content."""
    components = tuple(_with_restarts(each, read) for each in _components(read))
    state, title, text, reason = _verdict(read, components)
    view = read.overview
    base = StatusView(
        at=read.at,
        where=read.where,
        state=state,
        title=title,
        text=text,
        reason=reason,
        components=components,
        problems=(
            *_problems(view, read.starting, components),
            *_versions(components, read.version),
        ),
        unread=read.unread,
    )
    if view is None:
        return base
    seen = view.sources[1].as_of is not None if len(view.sources) > 1 else True
    known = any(source.as_of is not None for source in view.sources[:1])
    return msgspec.structs.replace(
        base,
        hosts=view.hosts if seen else None,
        hidden_hosts=view.hidden_hosts,
        pools=view.pools if seen or view.pools else None,
        queue=_queue(read, view) if known else None,
        recovered_hour=view.totals.healed_hour,
        recovered=tuple(Event(at=each.at, what=each.what) for each in view.healed[:3]),
        unread=(*read.unread, *_unread(view)),
    )


def _unread(view: Overview) -> list[str]:
    """The sources that the server itself could not read, or has not for a while."""
    found = []
    for source in view.sources:
        if source.state == "off":
            found.append(f"{source.name}: the server has no access to it")
        elif source.state == "down":
            old = "never read" if source.as_of is None else "what is shown of it is old"
            found.append(f"{source.name}: {old} ({source.message})")
    return found


def _verdict(read: Readings, components: tuple[Component, ...]) -> tuple[State, str, str, str]:
    if read.overview is None:
        down = any(each.name == "server" and each.state == "down" for each in components)
        if read.local and down:  # elsewhere, the way to the server may be what is broken
            return "critical", read.failure, read.fix, "component-down"
        return "unknown", read.failure, read.fix, ""
    found = read.overview.verdict
    state = _STATES.get(found.tone, "healthy")
    broken = [each for each in components if each.state in ("down", "degraded")]
    if state != "healthy" or not broken:
        return state, found.title, found.text, found.reason
    first = broken[0]
    what = "does not respond" if first.state == "down" else "does not do all of its work"
    more = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
    text = f"{first.text or 'See the problems below'}. Jobs: {found.title}"
    return "degraded", f"The component {first.name} {what}{more}", text, f"component-{first.state}"


def _components(read: Readings) -> tuple[Component, ...]:
    """The components that were asked, and the database as the server sees it."""
    if read.overview is None:
        return read.components
    named = {each.name for each in read.components}
    found = list(read.components)
    for source in read.overview.sources:
        name = {"Postgres": "postgres", "Kubernetes": "kube"}.get(source.name, source.name.lower())
        if name in named or source.state == "off":
            continue
        state: ComponentState = "works" if source.state == "ok" else "down"
        found.append(Component(name=name, state=state, text=source.message))
    return tuple(found)


def _with_restarts(component: Component, read: Readings) -> Component:
    ended = read.restarts
    if ended is None and read.overview is not None:
        healed = read.overview.healed
        ended = tuple(
            Ended(component=e.component, at=e.at, what=e.what) for e in healed if e.component
        )
    own = [
        each
        for each in ended or ()
        if each.component == component.name and each.at > read.at - _DAY
    ]
    if not own:
        return component
    last = max(own, key=lambda each: each.at)
    return msgspec.structs.replace(
        component, restarts=len(own), restarted_at=last.at, restarted=last.what
    )


def _problems(
    view: Overview | None, starting: tuple[ExplanationView, ...], components: tuple[Component, ...]
) -> tuple[Problem, ...]:
    """Everything that is wrong, errors first; one that the server reports is not repeated from its probe."""
    found = (
        [] if view is None else [*_alarms(view), *_hosts(view), *_stuck_hosts(view), *_pools(view)]
    )
    found += [_failed_start(each) for each in starting if _cannot_start(each)]
    known = {(each.where, each.code) for each in found}
    found += [
        problem
        for component in components
        for problem in component.problems
        if (problem.where, problem.code) not in known
    ]
    order = {"error": 0, "warning": 1, "note": 2}
    return tuple(sorted(found, key=lambda each: order[each.severity]))


def _alarms(view: Overview) -> list[Problem]:
    return [
        Problem(
            where="server",
            code=each.code,
            severity=each.severity,
            title=each.title,
            message=each.message,
            fix=each.text,
            since=each.since,
        )
        for each in view.alarms
    ]


def _hosts(view: Overview) -> list[Problem]:
    return [
        Problem(
            where=f"host {host.name}",
            code=f"host-{host.state.replace(' ', '-')}",
            severity="error" if host.tone == "bad" else "warning",
            title=f"The host {host.name} is {host.state}",
            message=host.reason,
            fix=_host_fix(host),
            since=host.heartbeat_at if host.tone == "bad" else None,
        )
        for host in view.hosts
        if host.tone in ("bad", "warn")
    ]


def _stuck_hosts(view: Overview) -> list[Problem]:
    """Hosts that are ready, and on which runners cannot start."""
    return [
        Problem(
            where=f"host {each.host}",
            code=each.headline.slug,
            severity="warning",
            title=render(each.headline),
            message=each.why,
            fix=f"Correct what the message names; all steps: runyard explain pod {each.runners[0].name}",
            since=each.runners[0].since,
        )
        for each in stuck_hosts(view.pools, view.runners, now=view.at)
    ]


def _host_fix(host: Host) -> str:
    if host.pressure:
        return "Free disk or memory on it; runyard's own images are collected already"
    if host.state == "cordoned":
        return f"When it may run jobs again: runyard host undrain {host.name}"
    return "Check that it is on and reaches this fleet, and read its agent's log"


def _pools(view: Overview) -> list[Problem]:
    """Conditions of pools that do not hold; a roll that advances is not a problem."""
    return [
        Problem(
            where=f"pool {pool.name}",
            code=each.reason,
            severity="warning",
            title=f"The pool {pool.name} is not as wanted ({each.type}: no)",
            message=each.text,
            fix=f"Follow the causes: runyard explain pool {pool.name}",
            since=each.since,
        )
        for pool in view.pools
        for each in pool.conditions
        if not each.holds and each.type == "Filled" and not pool.leaving
    ]


def starting_pools(view: Overview) -> tuple[str, ...]:
    """The pools whose runners all start: whether they cannot is in their explanation."""
    return tuple(
        pool.name
        for pool in view.pools
        if pool.known and pool.starting and not (pool.idle or pool.busy or pool.leaving)
    )


def _cannot_start(pool: ExplanationView) -> bool:
    """Whether the VMs of this pool, which has no runner, cannot be created or started."""
    step = pool.binding
    if step.constraint is Constraint.SLOTS_FULL:
        return step.since is not None and pool.at - step.since >= PATIENCE
    return step.constraint is Constraint.START_FAILED


def _failed_start(pool: ExplanationView) -> Problem:
    """The problem of such a pool, whether or not a job waits for it; the fix is of its kind."""
    step = pool.binding
    named = {"pool": pool.id, "host": str(step.ends_detail.get("host", "its host"))}
    cause = "start" if step.constraint is Constraint.SLOTS_FULL else "be created"
    return Problem(
        where=f"pool {pool.id}",
        code=step.constraint.value,
        severity="warning",
        title=f"The pool {pool.id} has no runner, and its VMs cannot {cause}",
        message=step.what,
        fix=_FIXES.get(step.ends_code, _FIX).format_map(named),
        since=step.since,
    )


def _versions(components: tuple[Component, ...], own: str) -> tuple[Problem, ...]:
    others = [each for each in components if own and each.version not in ("", own)]
    return tuple(
        Problem(
            where=each.name,
            code="other-version",
            severity="note",
            title=f"{each.name} runs version {each.version}, and this command is {own}",
            fix="Restart it to use the installed version; jobs continue meanwhile",
        )
        for each in others
    )


def oldest_waiting(view: Overview) -> int | None:
    """The number of the job that waits longest; None if none waits."""
    waits = [each for each in view.waiting if each.state == "waiting"]
    found = min(waits, key=lambda each: each.since or 0.0, default=None)
    return None if found is None else found.job_id


def _queue(read: Readings, view: Overview) -> Queue:
    totals = view.totals
    return Queue(
        queued=totals.waiting,
        running=totals.running,
        attention=totals.attention,
        oldest=_oldest(read, view),
    )


def _oldest(read: Readings, view: Overview) -> Waiting | None:
    number = oldest_waiting(view)
    if number is None:
        return None
    job = next(each for each in view.waiting if each.job_id == number)
    found = read.oldest
    shown = Waiting(
        job=number,
        repository=job.repository,
        name=job.name,
        since=job.since,
        constraint=job.reason,
        why=job.text,
    )
    if found is None or found.id != str(number):
        return shown
    binding = found.binding
    return msgspec.structs.replace(
        shown,
        constraint=binding.constraint.value,
        why=binding.what,
        ends=binding.ends,
        where=binding.subject,
    )
