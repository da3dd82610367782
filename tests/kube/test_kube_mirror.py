"""After lost, repeated and reordered events, the store and its listeners equal the API."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.kube.kubesupport import pod

from runyard.kube.frames import Event
from runyard.kube.mirror import Mirror
from runyard.kube.objects import Pod, Reader
from runyard.kube.versions import is_stale, latest
from runyard.telemetry.log import get_logger

NAMES = ("a", "b", "c")
Step = tuple[str, str]  # what happened: (name, "put" or "delete")

worlds = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(["put", "delete"])), max_size=30
)


class Cluster:
    """The objects of an API, and the events that it would send."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.events: list[Event] = []
        self._version = 100

    def play(self, steps: list[Step]) -> None:
        for name, what in steps:
            self._version += 1
            there = name in self.objects
            if what == "put":
                self.objects[name] = pod(name, self._version)
                self._emit("MODIFIED" if there else "ADDED", self.objects[name])
            elif there:
                del self.objects[name]
                self._emit("DELETED", pod(name, self._version))

    def _emit(self, kind: str, obj: dict[str, Any]) -> None:
        self.events.append(Event(kind, msgspec.Raw(msgspec.json.encode(obj))))

    def items(self) -> list[msgspec.Raw]:
        return [msgspec.Raw(msgspec.json.encode(obj)) for obj in self.objects.values()]

    def versions(self) -> dict[str, str]:
        return {f"ns/{n}": o["metadata"]["resourceVersion"] for n, o in self.objects.items()}


class Follower:
    """Knows only the reported changes, and checks that they are consistent."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}
        self.mirror: Mirror[Pod] = Mirror(
            Reader(Pod), log=get_logger("test"), on_change=self.changed, indexes={"all": _all}
        )
        self.problems: list[str] = []

    def changed(self, key: str, old: Pod | None, new: Pod | None) -> None:
        before = old.metadata.resource_version if old else None
        if self.known.get(key) != before:
            self.problems.append(f"{key}: reported {before} after {self.known.get(key)}")
        if new is None:
            self.known.pop(key, None)
        else:
            self.known[key] = new.metadata.resource_version

    def check(self, truth: dict[str, str]) -> None:
        store = self.mirror.store
        assert self.problems == []
        assert self.known == truth
        stored = dict(zip(store.keys(), store.values(), strict=True))
        assert {key: obj.metadata.resource_version for key, obj in stored.items()} == truth
        assert sorted(p.metadata.name for p in store.by_index("all", "x")) == sorted(
            p.metadata.name for p in store.values()
        )


def _all(_: Pod) -> list[str]:
    return ["x"]


@given(worlds, worlds, st.randoms(use_true_random=False))
def test_a_list_repairs_lost_repeated_and_shuffled_events(
    before: list[Step], during: list[Step], dice: Any
) -> None:
    cluster, follower = Cluster(), Follower()
    cluster.play(before)
    follower.mirror.replace(cluster.items())
    follower.check(cluster.versions())
    cluster.events.clear()
    cluster.play(during)
    arrived = [event for event in cluster.events for _ in range(dice.randrange(3))]
    dice.shuffle(arrived)
    for event in arrived:
        follower.mirror.step(event)
    follower.mirror.replace(cluster.items())
    follower.check(cluster.versions())


@given(worlds, worlds, st.randoms(use_true_random=False))
def test_repeated_and_shuffled_events_alone_reach_the_state_of_the_api(
    before: list[Step], during: list[Step], dice: Any
) -> None:
    cluster, follower = Cluster(), Follower()
    cluster.play(before)
    follower.mirror.replace(cluster.items())
    cluster.events.clear()
    cluster.play(during)
    arrived = [event for event in cluster.events for _ in range(dice.randrange(1, 3))]
    dice.shuffle(arrived)
    for event in arrived:
        follower.mirror.step(event)
    follower.check(cluster.versions())


@given(worlds)
def test_replaying_everything_after_it_was_seen_announces_nothing(steps: list[Step]) -> None:
    cluster, follower = Cluster(), Follower()
    cluster.play(steps)
    for event in cluster.events:
        follower.mirror.step(event)
    follower.check(cluster.versions())
    calls: list[str] = []
    follower.mirror._on_change = lambda key, old, new: calls.append(key)
    for event in cluster.events:
        follower.mirror.step(event)
    follower.mirror.replace(cluster.items())
    assert calls == []


def test_versions_are_numbers_only_if_both_are() -> None:
    assert is_stale("9", "10")
    assert not is_stale("10", "9")
    assert is_stale("x", "x")
    assert not is_stale("a", "b")
    assert not is_stale("b", "a")
    assert not is_stale("9", "x10")
    assert not is_stale("", "10")
    assert not is_stale("", "")
    assert latest("10", "9") == "10"
    assert latest("9", "10") == "10"
    assert latest("10", "") == "10"
    assert latest("", "9") == "9"
    assert latest("a", "b") == "b"
