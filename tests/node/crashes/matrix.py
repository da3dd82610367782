"""The crash matrix of a Mac: finds every effect of agent and shim in a Pod's life, and kills each process at each.

Runs without a fault find the effects: those of the Pod's life are those that happen in each of them, and the journal
says which processes live at each. Several hosts in one cluster run their cases side by side.
"""

import asyncio
import contextlib
import random
import tempfile
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import msgspec
from tests.conformance.kube import clusters
from tests.node.crashes import checks
from tests.node.crashes.effects import AGENT, VICTIMS
from tests.node.crashes.host import MODES, SPACE, Host, Mode, admin, open_host, prepare
from tests.node.crashes.lives import (
    JOB,
    PARTS,
    WITHIN,
    Case,
    Effect,
    Life,
    Outcome,
    Part,
)
from tests.node.crashes.polls import Jobs

from runyard.clock import RealClock
from runyard.kube.kinds import PODS
from runyard.kube.reflector import Reflector, Scope, WatchDeps
from runyard.node.facts import HostPod
from runyard.telemetry.meter import Meter

TIMES = 2  # lives without a fault in each mode
_OFTEN = 6  # an effect of the Pod's life that happens more often is repeated until something else happens


class Matrix:
    """Hosts in one cluster."""

    def __init__(self, hosts: tuple[Host, ...]) -> None:
        self.hosts = hosts
        self._number = 0
        self._usual: dict[str, frozenset[str]] = {}

    async def live(
        self,
        host: Host,
        mode: Mode,
        case: Case | None = None,
        *,
        part: Part = "life",
        off: tuple[str, ...] = (),
        within: float = WITHIN,
    ) -> Outcome:
        """Run one Pod's life on a host; the first ones show what a host at rest has."""
        if host.node not in self._usual:
            self._usual[host.node] = frozenset()
            for each in MODES:
                first = await self.live(host, each)
                assert not first.wrong, f"without a fault: {first.wrong}"
            self._usual[host.node] = checks.files(host)
        self._number += 1
        life = Life(host, f"job-{self._number}", usual=self._usual[host.node], within=within)
        outcome = await life.run(mode, case, part=part, off=off)
        if outcome.wrong and self._usual[host.node]:  # what is left is reported once
            self._usual[host.node] = checks.files(host)
        return outcome

    async def discover(self, host: Host, modes: tuple[Mode, ...] = MODES) -> tuple[Case, ...]:
        """Find the effects, and at each the processes that can be killed."""
        found: list[Case] = []
        for mode in modes:
            usual: tuple[Effect, ...] = ()
            for part in PARTS:
                runs = [await self.live(host, mode, part=part) for _ in range(TIMES)]
                assert not [run.wrong for run in runs if run.wrong], runs
                cases = [each for each in cases_of(mode, part, runs) if each.effect not in usual]
                usual += tuple(each.effect for each in cases)
                found += cases
            found += [Case(mode, Effect(JOB, "begun"), victim) for victim in VICTIMS]
        return tuple(found)

    async def run(self, todo: Iterable[Case]) -> AsyncIterator[Outcome]:
        """Run cases side by side, one after another on each host."""
        waiting = deque(todo)
        done: asyncio.Queue[Outcome | None] = asyncio.Queue()

        async def work(host: Host) -> None:
            with contextlib.suppress(IndexError):
                while True:
                    case = waiting.popleft()
                    outcome = await self.live(host, case.mode, case)
                    if not outcome.reached:  # its moment depends on chance: once more
                        outcome = await self.live(host, case.mode, case)
                    await done.put(outcome)
            await done.put(None)

        async with asyncio.TaskGroup() as group:
            for host in self.hosts:
                group.create_task(work(host))
            working = len(self.hosts)
            while working:
                outcome = await done.get()
                if outcome is None:
                    working -= 1
                else:
                    yield outcome


def cases_of(mode: Mode, part: Part, runs: list[Outcome]) -> list[Case]:
    """The cases of the effects that happened in every run, with the victims that lived then in every run."""
    lives: list[dict[Effect, frozenset[str]]] = []
    for run in runs:
        counted = Counter((each["role"], each["name"]) for each in run.journal)
        lives.append(
            {
                Effect(each["role"], each["name"], each["nth"]): frozenset(each["victims"])
                for each in run.journal
                if each["nth"] == 1
                or (_is_own(each) and counted[each["role"], each["name"]] <= _OFTEN)
            }
        )
    common = [effect for effect in lives[0] if all(effect in life for life in lives)]
    return [
        Case(mode, effect, victim, part)
        for effect in common
        for victim in VICTIMS
        if all(victim in life[effect] for life in lives)
    ]


def _is_own(effect: dict[str, Any]) -> bool:
    """Whether it belongs to the Pod's life; the others are those of the agent's loops."""
    return effect["role"] != AGENT or "POD" in effect["name"] or "uid" in effect["name"]


@contextlib.asynccontextmanager
async def open_matrix(side_by_side: int) -> AsyncIterator[Matrix]:
    """Start a cluster with so many hosts."""
    with tempfile.TemporaryDirectory(prefix="runyard-crashes-") as name:
        folder = Path(name).resolve()
        nodes = tuple(f"mini-{number}" for number in range(1, side_by_side + 1))
        async with contextlib.AsyncExitStack() as stack:
            cluster = await stack.enter_async_context(clusters.embedded(folder))
            kube, transport = admin(cluster)
            stack.push_async_callback(transport.close)
            await prepare(cluster, folder, nodes)
            jobs = Jobs()
            stack.callback(jobs.close)
            hosts = [
                await stack.enter_async_context(open_host(node, folder / node, cluster, kube, jobs))
                for node in nodes
            ]
            by_node = {host.node: host for host in hosts}

            def changed(key: str, old: HostPod | None, new: HostPod | None) -> None:
                pod = new or old
                assert pod is not None, "a change has a Pod"
                by_node[pod.spec.node_name].seen(key, old, new)

            deps = WatchDeps(kube=kube, clock=RealClock(), rng=random.Random(1), meter=Meter())
            pods = Reflector(deps, PODS, HostPod, scope=Scope(namespace=SPACE), on_change=changed)
            watching = asyncio.create_task(pods.run())
            try:
                yield Matrix(tuple(hosts))
            finally:
                watching.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await watching


class Summary(msgspec.Struct, kw_only=True):
    """What a run of the matrix has shown."""

    cases: int = 0
    missed: int = 0  # whose moment did not come
    failures: list[str] = []
    to_result: float = 0.0
    to_gone: float = 0.0

    def add(self, outcome: Outcome) -> None:
        """Count one case."""
        self.cases += 1
        self.missed += not outcome.reached
        self.to_result = max(self.to_result, outcome.to_result)
        self.to_gone = max(self.to_gone, outcome.to_gone)
        if outcome.wrong:
            self.failures.append(f"{outcome.case}\n    " + "\n    ".join(outcome.wrong))

    def __str__(self) -> str:
        return (
            f"{self.cases} cases, {len(self.failures)} failed, {self.missed} not reached; at most"
            f" {self.to_result:.1f} s to a result and {self.to_gone:.1f} s until all was gone"
        )
