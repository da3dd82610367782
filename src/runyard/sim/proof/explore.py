"""Explores every reachable state breadth-first, then backwards from rest.

Forward: each new state is expanded once; a `Violation` ends the exploration with the shortest path
to it. Backward: from the states at rest along steps that are not disturbances; a state that cannot
return to rest by itself is a leak.

Only names are stored. A path is rebuilt by walking it again from the start with the Pods and jobs
keeping their numbers.
"""

from array import array
from collections import deque
from collections.abc import Iterator

import msgspec

from runyard.sim.proof.disturbances import disturbances
from runyard.sim.proof.fake_github import github_steps
from runyard.sim.proof.guests import guest_steps
from runyard.sim.proof.invariants import Broken, Violation, at_rest
from runyard.sim.proof.model import Model, Step
from runyard.sim.proof.naming import Namer
from runyard.sim.proof.replicas import replica_steps
from runyard.sim.proof.state import State, start
from runyard.wire.reasons import Reason


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What an exploration found."""

    states: int
    steps: int
    at_rest: int
    violation: Reason | None = None
    path: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether every invariant held in every state."""
        return self.violation is None


class Explorer:
    """Explores every state that can follow, at most `bound` of them."""

    def __init__(self, model: Model, *, bound: int = 20_000_000) -> None:
        self._scene = model
        self._bound = bound
        self._namer = Namer()
        self._seen: dict[bytes, int] = {}
        self._names: list[bytes] = []
        self._parents = array("i")
        self._rests = array("i")
        self._sources = array("i")  # of the steps that are not disturbances
        self._targets = array("i")
        self._steps = 0

    def run(self) -> Outcome:
        """Explores everything that can follow from the start."""
        self._meet(self._start(), parent=-1)
        number = 0
        while number < len(self._names):
            try:
                self._expand(number)
            except Violation as broken:
                return self._outcome(violation=broken.code.because(), path=self._path(number))
            number += 1
            if number > self._bound:
                return self._outcome(violation=Broken.TOO_MANY_STATES.because(bound=self._bound))
        stuck = self._stuck()
        if stuck is not None:
            return self._outcome(violation=Broken.STUCK.because(), path=self._path(stuck))
        return self._outcome()

    def _start(self) -> State:
        size = self._scene.settings
        return start(jobs=size.jobs, pods=size.pods, disturbances=size.disturbances, held=size.held)

    def _outcome(self, *, violation: Reason | None = None, path: tuple[str, ...] = ()) -> Outcome:
        return Outcome(
            states=len(self._names),
            steps=self._steps,
            at_rest=len(self._rests),
            violation=violation,
            path=path,
        )

    def _expand(self, number: int) -> None:
        state = self._namer.state(self._names[number])
        for _, after in normal(self._scene, state):
            target = self._meet(after, parent=number)
            if target != number:
                self._sources.append(number)
                self._targets.append(target)
        if state.left:
            for _, after in disturbances(self._scene, state):
                self._meet(after, parent=number)

    def _meet(self, state: State, *, parent: int) -> int:
        self._steps += 1
        name = self._namer.name(state)
        fresh = len(self._names)
        number = self._seen.setdefault(name, fresh)
        if number == fresh:
            self._names.append(name)
            self._parents.append(parent)
            if at_rest(state):
                self._rests.append(fresh)
        return number

    def _stuck(self) -> int | None:
        """A state that cannot return to rest by itself, the one nearest to the start."""
        size = len(self._names)
        first = array("i", bytes(4 * (size + 1)))
        for target in self._targets:
            first[target + 1] += 1
        for index in range(size):
            first[index + 1] += first[index]
        fill = array("i", first)
        sources = array("i", bytes(4 * len(self._targets)))
        for source, target in zip(self._sources, self._targets, strict=True):
            sources[fill[target]] = source
            fill[target] += 1
        good = bytearray(size)
        todo = deque(self._rests)
        for number in todo:
            good[number] = 1
        while todo:
            number = todo.pop()
            for source in sources[first[number] : first[number + 1]]:
                if not good[source]:
                    good[source] = 1
                    todo.append(source)
        stuck = good.find(0)
        return None if stuck < 0 else stuck

    # ------------------------------------------------------------------------------ rebuilding the path

    def _path(self, number: int) -> tuple[str, ...]:
        """The labels of the steps from the start to that state, and of the step that breaks an invariant."""
        names = []
        while number > 0:
            names.append(self._names[number])
            number = self._parents[number]
        state = self._start()
        labels = []
        for name in reversed(names):
            label, state = self._follow(state, name)
            labels.append(label)
        return (*labels, *self._last(state))

    def _follow(self, state: State, name: bytes) -> Step:
        for label, after in every(self._scene, state):
            if self._namer.name(after) == name:
                return label, after
        raise LookupError("a path that was explored cannot be rebuilt")

    def _last(self, state: State) -> tuple[str, ...]:
        """The step that breaks an invariant, if one does (a state without a way back has none)."""
        tried = ""
        try:
            for label, after in every(self._scene, state):
                tried = label
                self._namer.name(after)
        except Violation as broken:
            return (broken.step or tried,)
        return ()


def normal(model: Model, state: State) -> Iterator[Step]:
    """Every step without a fault."""
    yield from github_steps(model, state)
    yield from guest_steps(model, state)
    yield from replica_steps(model, state)


def every(model: Model, state: State) -> Iterator[Step]:
    """Every step; those with a fault are marked."""
    yield from normal(model, state)
    for label, after in disturbances(model, state):
        yield f"! {label}", after
