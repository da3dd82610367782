"""One Pod's life on a host, with one process killed at one of its effects, and what is wrong afterwards."""

import contextlib
from collections.abc import Callable
from typing import Any, Literal

import msgspec
from tests.node.crashes import checks, effects
from tests.node.crashes.effects import AGENT, SHIM
from tests.node.crashes.host import Host, Mode

WITHIN = 30.0  # seconds from a kill until the Pod has its result, and from its deletion until nothing is left
_LIFE = 90.0  # for a life in which nothing is killed, on a busy machine
Part = Literal["life", "first", "repair", "restart"]
PARTS: tuple[Part, ...] = ("life", "first", "repair", "restart")
_KILLED_BEFORE: dict[Part, str] = {"repair": SHIM, "restart": AGENT}  # while the job ran
JOB = "job"  # the effect of neither agent nor shim: the job has begun


class Effect(msgspec.Struct, frozen=True, order=True):
    """Where to kill: before the `nth` effect of that name in a life."""

    role: str
    name: str
    nth: int = 1

    def __str__(self) -> str:
        return f"{self.role}: {self.name}" + (f" #{self.nth}" if self.nth > 1 else "")


class Case(msgspec.Struct, frozen=True, order=True):
    """One kill, in one part of lives.

    life      of a usual life
    first     no VM was made from the image before
    repair    the shim was killed while the job ran; this is the second kill
    restart   the same with the agent
    """

    mode: Mode
    effect: Effect
    victim: str
    part: Part = "life"

    def __str__(self) -> str:
        return f"{self.mode} | {self.part} | {self.effect} | {self.victim}"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a life ended."""

    case: Case | None
    reached: bool = True
    wrong: tuple[str, ...] = ()
    to_result: float = 0.0  # seconds after the kill
    to_gone: float = 0.0  # seconds after the deletion, or after the kill if that was later
    journal: tuple[dict[str, Any], ...] = ()


class Life:
    """The life of one Pod."""

    def __init__(
        self,
        host: Host,
        pod: str,
        *,
        usual: frozenset[str],
        within: float = WITHIN,
    ) -> None:
        self.host, self.pod, self.usual, self.within = host, pod, usual, within
        self.case: Case | None = None
        self.part: Part = "life"
        self.killed_at: float | None = None
        self.wrong: list[str] = []
        self._noted = False  # the ordered kill was noticed
        self._held = False  # the job has begun and was looked at
        self._vm = ""
        self._lists: int | None = (
            None  # lists of VMs by then: the job is held until there are so many
        )

    async def run(
        self,
        mode: Mode,
        case: Case | None = None,
        *,
        part: Part = "life",
        off: tuple[str, ...] = (),
    ) -> Outcome:
        """Live it from the Pod's creation to its end."""
        host, self.case, self.part = self.host, case, part if case is None else case.part
        self._order("" if self.part in _KILLED_BEFORE else self.pod, off)
        if off:  # guards are switched off at a start
            await host.kill()
        if self.part == "first":
            await host.forget_image(mode)
        await host.keep_running()
        await host.add_pod(self.pod, mode)
        to_result = await self._until(lambda: host.terminal(self.pod), "the Pod has no result")
        await host.delete_pod(self.pod)
        to_gone = await self._until(lambda: not host.present(self.pod), "the Pod is not gone")
        if not host.present(self.pod):
            await self._until(lambda: not self._left(), "something is left")
        self.wrong += self._left()
        self._check()
        return Outcome(
            case=case,
            reached=case is None or self._fired(),
            wrong=tuple(dict.fromkeys(self.wrong)),
            to_result=to_result,
            to_gone=to_gone,
            journal=tuple(host.journal(self._life)),
        )

    @property
    def _life(self) -> str:
        """The name by which effects are counted."""
        return f"{self.pod}-{self.part}" if self.part in _KILLED_BEFORE else self.pod

    def _order(self, life: str, off: tuple[str, ...] = ()) -> None:
        effect = self.case.effect if self.case and life else Effect("", "")
        self.host.order(
            life=life,
            pod=self.pod,
            discover=self.case is None,
            role=effect.role,
            name=effect.name,
            nth=effect.nth,
            victim=self.case.victim if self.case else "",
            off=off,
        )

    def _fired(self) -> bool:
        """Whether the ordered kill has happened."""
        if self.case and self.case.effect.role == JOB:
            return self.killed_at is not None
        return (self.host.folder / f"fired-{self._life}").exists()

    def _why(self) -> str:
        """What the agent's log says about a Pod that does not end."""
        if not self.host.present(self.pod):
            return ""
        return f"; the agent's log ends with:\n{self.host.log.read_text()[-2000:]}"

    def _left(self) -> list[str]:
        return checks.nothing_left(self.host, self.usual) if self.usual else []

    def _check(self) -> None:
        host = self.host
        killed = self.case.victim if self.case and self._fired() else ""
        if self.part in _KILLED_BEFORE and killed in ("", AGENT):
            killed = _KILLED_BEFORE[self.part]
        self.wrong += checks.ran_once(host, self.pod, self._vm)
        self.wrong += checks.one_result(host, self.pod, killed)
        self.wrong += checks.no_secret(host)
        self.wrong += checks.others_untouched(host)

    async def _until(self, holds: Callable[[], bool], otherwise: str) -> float:
        """Wait, restart the agent, serve the job; returns the seconds since the kill or since now."""
        clock = self.host.clock
        began = clock.monotonic()
        while not holds():
            await self._serve()
            since = began if self.killed_at is None else max(began, self.killed_at)
            limit = self.within if self.case else _LIFE
            if self.killed_at is None and self.case and not self.host.terminal(self.pod):
                limit = _LIFE
            if clock.monotonic() > since + limit:
                self.wrong.append(f"{otherwise} after {limit:g} s{self._why()}")
                break
            await clock.sleep(0.05)
        await self._serve()
        since = began if self.killed_at is None else max(began, self.killed_at)
        return clock.monotonic() - since

    async def _serve(self) -> None:
        host = self.host
        if not self._noted and self._fired():
            self._noted, self.killed_at = True, host.clock.monotonic()
            self._await_the_next_agent()
        if found := host.pods.get(self.pod):
            self._vm = f"{self.pod}-{found.metadata.uid}"
        if not self._held and self._vm and host.lines("begin", self._vm):
            self._held = True
            self.wrong += checks.no_token_in_reach(host)
            if self.part in _KILLED_BEFORE:
                self._order(self._life)
                self._kill_in_the_job(_KILLED_BEFORE[self.part])
            elif self.case and self.case.effect.role == JOB:
                self._kill_in_the_job(self.case.victim)
        if self._held and (self._lists is None or host.lists() >= self._lists):
            host.go_on(self._vm)
        await host.keep_running()

    def _kill_in_the_job(self, victim: str) -> None:
        """The job is no effect of agent or shim: so the kill comes from here."""
        host = self.host
        self.killed_at = host.clock.monotonic()
        pids = effects.machine(str(host.root), self.pod)
        for role in (AGENT, SHIM):
            with contextlib.suppress(OSError, ValueError):
                pids[role] = int((host.folder / f"{role}.pid").read_text())
        effects.kill(pids[victim])
        self._await_the_next_agent()

    def _await_the_next_agent(self) -> None:
        """Hold the job until the next agent has seen its VM: it begins a list after it has used the one before."""
        if self.part == "restart" or (self.case and self.case.victim == AGENT):
            self._lists = self.host.lists() + 2
