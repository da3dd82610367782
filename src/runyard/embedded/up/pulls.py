"""Follows the image pulls of all hosts while `runyard up` runs: a first pull of tens of gigabytes takes a while.

The hosts of this machine record their pulls in numbers (`pullrecord`). Hosts that joined publish a sentence in the
status of the Pods that wait for the image.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from runyard.clock import Clock
from runyard.embedded.up.layout import Layout
from runyard.embedded.up.pullrecord import PullState, read_pulls
from runyard.http.errors import TransportError
from runyard.kube.client import Kube
from runyard.kube.errors import KubeError
from runyard.kube.kinds import PODS
from runyard.kube.objects import Pod
from runyard.wire import names

_EVERY = 1.0
_PODS_EVERY = 5  # rounds
_WINDOW = 60.0  # seconds over which the rate is measured
_MB, _GB = 1e6, 1e9


class PullView(msgspec.Struct, frozen=True, kw_only=True):
    """One pull, now. Numbers are 0 while they are unknown; of a joined host there is only `text`."""

    host: str
    image: str
    percent: float = 0.0
    bytes_done: int = 0
    bytes_total: int = 0
    rate: float = 0.0  # bytes a second
    seconds_left: float | None = None
    text: str = ""
    advances: bool = True  # False: it may only have asked the registry

    def line(self) -> str:
        """What a terminal or a log shows."""
        numbers = ", ".join(filter(None, (self.amount(), self.speed(), self.left())))
        return f"{self.host} pulls {self.image}: {self.text or numbers}"

    def amount(self) -> str:
        """`12.3 of 23.6 GB (52 %)`."""
        if not self.bytes_total:
            return f"{self.percent:.0f} %"
        unit, name = (_GB, "GB") if self.bytes_total >= _GB else (_MB, "MB")
        return f"{self.bytes_done / unit:.1f} of {self.bytes_total / unit:.1f} {name} ({self.percent:.0f} %)"

    def speed(self) -> str:
        """`110 MB/s`; empty while it is unknown."""
        if not self.rate:
            return ""
        rate = self.rate / _MB
        return f"{rate:.0f} MB/s" if rate >= 10 else f"{rate:.1f} MB/s"

    def left(self) -> str:
        """`about 2 min left`; empty while it is unknown."""
        return "" if self.seconds_left is None else f"about {duration(self.seconds_left)} left"


class PullListener(Protocol):
    """Shows pulls."""

    def pulls(self, views: tuple[PullView, ...]) -> None:
        """The pulls that are under way now; called every second, and once when none is left."""
        ...

    def report(self, text: str) -> None:
        """Something has ended."""
        ...


def duration(seconds: float) -> str:
    """`40 s`, `3 min`, `1 h 10 min`."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


class Progress:
    """Turns what hosts record into views with rates, and into lines about what has ended."""

    def __init__(self) -> None:
        self._samples: dict[tuple[str, str], deque[tuple[float, float]]] = {}
        self._began: dict[tuple[str, str], float] = {}
        self._ended: dict[tuple[str, str], tuple[str, str]] = {}  # how, as it was returned

    def views(
        self, recorded: Mapping[str, tuple[PullState, ...]], now: float
    ) -> tuple[PullView, ...]:
        """The pulls that are under way."""
        return tuple(
            self._view(host, each, now)
            for host, states in recorded.items()
            for each in states
            if each.state == "pulling"
        )

    def ended(self, recorded: Mapping[str, tuple[PullState, ...]], now: float) -> tuple[str, ...]:
        """Lines about images that are here now, or cannot be pulled; each is returned once."""
        lines = []
        for host, states in recorded.items():
            for each in states:
                if each.state != "pulling" and (line := self._end(host, each, now)):
                    lines.append(line)
        return tuple(lines)

    def _view(self, host: str, state: PullState, now: float) -> PullView:
        key = (host, state.image)
        self._began.setdefault(key, now)
        samples = self._samples.setdefault(key, deque())
        if samples and state.percent < samples[-1][1]:
            samples.clear()  # it began anew: the agent was restarted, or tart tries again
        if not samples or samples[-1][1] != state.percent:
            samples.append((now, state.percent))
        while len(samples) > 2 and samples[1][0] < now - _WINDOW:
            samples.popleft()
        (since, first), last = samples[0], samples[-1][1]
        pace = (last - first) / (now - since) if now > since else 0.0  # percent a second
        return PullView(
            host=host,
            image=state.image,
            percent=state.percent,
            bytes_done=state.bytes_done,
            bytes_total=state.bytes_total,
            rate=pace / 100 * state.bytes_total,
            seconds_left=(100 - state.percent) / pace if pace > 0 else None,
        )

    def _end(self, host: str, state: PullState, now: float) -> str:
        key, how = (host, state.image), (state.state, state.error)
        self._samples.pop(key, None)
        began = self._began.pop(key, None)
        # A failure that is the same at each attempt is one failure; a second pull is another one.
        if self._ended.get(key) == how and (began is None or state.state == "failed"):
            return ""
        self._ended[key] = how
        if state.state == "failed":
            error = " ".join(state.error.split())  # a log is read line by line
            return f"{host} cannot get the image of its runners, and tries again: {error}"
        took = "" if began is None else f" in {duration(now - began)}"
        return f"{host} has pulled {state.image}{took}"


def joined_pulls(pods: tuple[Pod, ...], local: tuple[str, ...]) -> tuple[PullView, ...]:
    """What each host that joined says about each image that it pulls."""
    found: dict[tuple[str, str], PullView] = {}
    for pod in pods:
        host = pod.spec.node_name
        for status in pod.status.container_statuses:
            waiting = status.state.waiting
            pulls = waiting is not None and waiting.reason == names.WAITING_PULL
            if waiting is not None and pulls and pod.spec.containers and host not in local:
                image = pod.spec.containers[0].image
                found[host, image] = PullView(
                    host=host,
                    image=image,
                    text=waiting.message or "it has begun",
                    advances=bool(waiting.message),
                )
    return tuple(found.values())


def lasting(before: tuple[PullView, ...], now: tuple[PullView, ...]) -> tuple[PullView, ...]:
    """The pulls with progress, and those that the list before had too.

    A host that only asks the registry what a tag means now says for a moment that it pulls.
    """
    known = {(each.host, each.image) for each in before}
    return tuple(each for each in now if each.advances or (each.host, each.image) in known)


async def watch(
    layout: Layout, hosts: tuple[str, ...], kube: Kube, *, clock: Clock, listener: PullListener
) -> None:
    """Show each pull and its end, until cancelled."""
    progress, rounds = Progress(), 0
    listed: tuple[PullView, ...] = ()
    joined: tuple[PullView, ...] = ()
    shown = False
    while True:
        await clock.sleep(_EVERY)
        recorded = {host: read_pulls(layout, host) for host in hosts}
        now = clock.monotonic()
        if rounds % _PODS_EVERY == 0:
            earlier, listed = listed, await _joined(kube, hosts, before=listed)
            before, joined = joined, lasting(earlier, listed)
            for each in before:
                if all((each.host, each.image) != (other.host, other.image) for other in joined):
                    listener.report(
                        f"{each.host} has finished pulling {each.image}, or gave up: see 'runyard status'"
                    )
        views = (*progress.views(recorded, now), *joined)
        if views or shown:
            listener.pulls(views)
        shown = bool(views)
        for line in progress.ended(recorded, now):
            listener.report(line)
        rounds += 1


async def _joined(
    kube: Kube, hosts: tuple[str, ...], *, before: tuple[PullView, ...]
) -> tuple[PullView, ...]:
    try:
        listed = await kube.list(PODS, namespace=names.RUNNERS_NAMESPACE)
    except (KubeError, TransportError, OSError):
        return before  # the API is being restarted
    return joined_pulls(tuple(kube.reader(Pod).of(raw) for raw in listed.items), hosts)


class Lines:
    """Chooses the moments at which a log gets a line: at most about forty for a whole pull."""

    _STEP = 2.5  # percent
    _AT_MOST_EVERY = 60.0  # for pulls without numbers

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._last: dict[tuple[str, str], tuple[float, float, str]] = {}

    def due(self, views: tuple[PullView, ...]) -> tuple[PullView, ...]:
        """Those of which a line is due now."""
        keys = {(view.host, view.image) for view in views}
        self._last = {key: last for key, last in self._last.items() if key in keys}
        return tuple(view for view in views if self._is_due(view))

    def _is_due(self, view: PullView) -> bool:
        key, now = (view.host, view.image), self._monotonic()
        at, percent, text = self._last.get(key, (float("-inf"), -100.0, ""))
        moved = view.percent - percent >= self._STEP or view.percent < percent
        if view.text:
            moved = view.text != text and now - at >= self._AT_MOST_EVERY
        if moved:
            self._last[key] = (now, view.percent, view.text)
        return moved
