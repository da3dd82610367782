"""Breadth-first over every reachable world, then backwards from rest.

Forward: each new world is expanded once; a `Violation` ends the exploration with the shortest path
to it. Backward: from the worlds at rest along steps that are not disturbances; a world that cannot
come back to rest by itself is a leak.

Only names are stored. A path is told by walking it once more from the start with the Pods and jobs
keeping their numbers.
"""

from array import array
from collections import deque
from collections.abc import Iterator

import msgspec

from runyard.sim.proof.disturbances import disturbances
from runyard.sim.proof.guests import guest_steps
from runyard.sim.proof.hub import hub_steps
from runyard.sim.proof.naming import Namer
from runyard.sim.proof.promises import Violation, at_rest
from runyard.sim.proof.replicas import replica_steps
from runyard.sim.proof.scene import Scene, Step
from runyard.sim.proof.world import World, start

STUCK = "no way back to rest"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What an exploration found."""

    states: int
    steps: int
    at_rest: int
    violation: str = ""
    path: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Did every promise hold in every world?"""
        return not self.violation


class Explorer:
    """Explores every world that can follow, at most `bound` of them."""

    def __init__(self, scene: Scene, *, bound: int = 20_000_000) -> None:
        self._scene = scene
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
        """Explore everything that can follow from the start."""
        self._meet(self._start(), parent=-1)
        number = 0
        while number < len(self._names):
            try:
                self._expand(number)
            except Violation as broken:
                return self._outcome(violation=str(broken), path=self._path(number))
            number += 1
            if number > self._bound:
                return self._outcome(violation=f"more than {self._bound} states")
        stuck = self._stuck()
        if stuck is not None:
            return self._outcome(violation=STUCK, path=self._path(stuck))
        return self._outcome()

    def _start(self) -> World:
        size = self._scene.settings
        return start(jobs=size.jobs, pods=size.pods, disturbances=size.disturbances, held=size.held)

    def _outcome(self, *, violation: str = "", path: tuple[str, ...] = ()) -> Outcome:
        return Outcome(
            states=len(self._names),
            steps=self._steps,
            at_rest=len(self._rests),
            violation=violation,
            path=path,
        )

    def _expand(self, number: int) -> None:
        world = self._namer.world(self._names[number])
        for _, after in normal(self._scene, world):
            target = self._meet(after, parent=number)
            if target != number:
                self._sources.append(number)
                self._targets.append(target)
        if world.left:
            for _, after in disturbances(self._scene, world):
                self._meet(after, parent=number)

    def _meet(self, world: World, *, parent: int) -> int:
        self._steps += 1
        name = self._namer.name(world)
        fresh = len(self._names)
        number = self._seen.setdefault(name, fresh)
        if number == fresh:
            self._names.append(name)
            self._parents.append(parent)
            if at_rest(world):
                self._rests.append(fresh)
        return number

    def _stuck(self) -> int | None:
        """A world that cannot come back to rest by itself, the one nearest to the start."""
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

    # ------------------------------------------------------------------------------ telling the path

    def _path(self, number: int) -> tuple[str, ...]:
        """The labels of the steps from the start to that world, and of the step that breaks a promise."""
        names = []
        while number > 0:
            names.append(self._names[number])
            number = self._parents[number]
        world = self._start()
        labels = []
        for name in reversed(names):
            label, world = self._follow(world, name)
            labels.append(label)
        return (*labels, *self._last(world))

    def _follow(self, world: World, name: bytes) -> Step:
        for label, after in every(self._scene, world):
            if self._namer.name(after) == name:
                return label, after
        raise LookupError("a path that was explored cannot be walked again")

    def _last(self, world: World) -> tuple[str, ...]:
        """The step that breaks a promise, if one does (a world without a way back has none)."""
        tried = ""
        try:
            for label, after in every(self._scene, world):
                tried = label
                self._namer.name(after)
        except Violation as broken:
            return (broken.step or tried,)
        return ()


def normal(scene: Scene, world: World) -> Iterator[Step]:
    """Every step in which nothing goes wrong."""
    yield from hub_steps(scene, world)
    yield from guest_steps(scene, world)
    yield from replica_steps(scene, world)


def every(scene: Scene, world: World) -> Iterator[Step]:
    """Every step; those that go wrong are marked."""
    yield from normal(scene, world)
    for label, after in disturbances(scene, world):
        yield f"! {label}", after
