"""Breadth-first over every reachable world, then backwards from rest.

Forward: each new world is expanded once; a `Violation` ends the exploration with the shortest path
to it. Backward: from the worlds at rest along steps that are not faults; a world that cannot come
back to rest by itself is a leak.
"""

from array import array
from collections import deque

import msgspec

from runyard.sim.proof.steps import Steps, Violation, at_rest
from runyard.sim.proof.world import World, key


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
    """Explores the worlds behind `steps`, at most `bound` of them."""

    def __init__(self, steps: Steps, *, bound: int = 20_000_000) -> None:
        self._steps = steps
        self._bound = bound
        self._seen: dict[bytes, int] = {}
        self._parent = array("q")
        self._label: list[str] = []
        self._labels: dict[str, str] = {}
        self._rests: list[int] = []
        self._edges_from = array("q")  # of the steps that are not faults
        self._edges_to = array("q")
        self._count = 0

    def run(self, start: World) -> Outcome:
        """Explore everything that can follow from `start`."""
        queue: deque[tuple[int, bytes]] = deque()
        self._meet(start, parent=-1, label="", queue=queue)
        while queue:
            number, name = queue.popleft()
            world: World = _decode(name)
            try:
                for label, after, is_fault in self._steps.out_of(world):
                    self._count += 1
                    target = self._meet(after, parent=number, label=label, queue=queue)
                    if not is_fault and target != number:
                        self._edges_from.append(number)
                        self._edges_to.append(target)
            except Violation as broken:
                return self._broken(str(broken), number)
            if len(self._seen) > self._bound:
                return self._broken(f"more than {self._bound} states", number)
        stuck = self._stuck()
        if stuck is not None:
            return self._broken("no way back to rest", stuck)
        return Outcome(states=len(self._seen), steps=self._count, at_rest=len(self._rests))

    def _meet(
        self, world: World, *, parent: int, label: str, queue: deque[tuple[int, bytes]]
    ) -> int:
        name = key(world)
        number = self._seen.get(name)
        if number is not None:
            return number
        number = len(self._seen)
        self._seen[name] = number
        self._parent.append(parent)
        self._label.append(self._labels.setdefault(label, label))
        if at_rest(world):
            self._rests.append(number)
        queue.append((number, name))
        return number

    def _stuck(self) -> int | None:
        """A world that cannot come back to rest without luck, the one nearest to the start."""
        size = len(self._seen)
        first = array("q", bytes(8 * (size + 1)))
        for target in self._edges_to:
            first[target + 1] += 1
        for index in range(size):
            first[index + 1] += first[index]
        fill = array("q", first)
        sources = array("q", bytes(8 * len(self._edges_to)))
        for source, target in zip(self._edges_from, self._edges_to, strict=True):
            sources[fill[target]] = source
            fill[target] += 1
        good = bytearray(size)
        todo = list(self._rests)
        for number in todo:
            good[number] = 1
        while todo:
            number = todo.pop()
            for at in range(first[number], first[number + 1]):
                source = sources[at]
                if not good[source]:
                    good[source] = 1
                    todo.append(source)
        stuck = good.find(0)
        return None if stuck < 0 else stuck

    def _broken(self, violation: str, number: int) -> Outcome:
        path = []
        while number > 0:
            path.append(self._label[number])
            number = self._parent[number]
        return Outcome(
            states=len(self._seen),
            steps=self._count,
            at_rest=len(self._rests),
            violation=violation,
            path=tuple(reversed(path)),
        )


_decode = msgspec.msgpack.Decoder(World).decode
