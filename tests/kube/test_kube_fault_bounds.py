"""Waits, requests and memory stay bounded however long faults last."""

import asyncio
import gc
import random
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.kube.faultsupport import BOUND_AFTER_LOSS, WATCH, Cluster, overloaded, throttled
from tests.kube.kubesupport import (
    Action,
    Answer,
    Script,
    VirtualClock,
    bookmark,
    dice,
    drive,
    event,
    gone_line,
    listing,
    pod,
    refusal,
)

from runyard.http.messages import Response
from runyard.kube.client import Kube
from runyard.kube.controller import Controller, Result
from runyard.kube.errors import KubeError, ServerFailed, Throttled, error_for
from runyard.kube.frames import Event, Frames
from runyard.kube.kinds import PODS
from runyard.kube.mirror import Mirror
from runyard.kube.objects import Pod, Reader
from runyard.kube.reflector import MAX_RETRY_AFTER, Pace, Reflector, WatchDeps
from runyard.kube.workqueue import WorkQueue
from runyard.sim.loop import run_virtual
from runyard.telemetry.log import get_logger
from runyard.telemetry.meter import Meter


def reflect(script: Script, *, seconds: float, seed: int = 7, **how: Any) -> Reflector[Pod]:
    async def main() -> Reflector[Pod]:
        how.setdefault("resync", 1000.0)
        kube, clock = Kube(script), VirtualClock()
        reflector: Reflector[Pod] = Reflector(
            WatchDeps(kube=kube, clock=clock, rng=random.Random(seed), meter=Meter()),
            PODS,
            Pod,
            pace=Pace(**{key: how.pop(key) for key in Pace.__struct_fields__ if key in how}),
            **how,
        )
        await drive(reflector.run(), seconds)
        return reflector

    return run_virtual(main())


# ---- waiting


def _status(code: int, seconds: object) -> dict[str, Any]:
    return {"kind": "Status", "code": code, "details": {"retryAfterSeconds": seconds}}


ASKS_FOR_TWELVE: list[Any] = [
    pytest.param(refusal(429, retry_after="12"), id="429, in the header"),
    pytest.param(refusal(503, retry_after="12"), id="503, in the header"),
    pytest.param(overloaded(12), id="503, in the Status"),
    pytest.param(throttled(12), id="429, in both"),
]


@pytest.mark.parametrize("answer", ASKS_FOR_TWELVE)
def test_a_retry_after_is_respected(answer: Response) -> None:
    script = Script([answer, listing(10)], [])
    reflect(script, seconds=20.0)
    assert 12.0 <= script.times[1] - script.times[0] <= 13.2


@pytest.mark.parametrize("code", [429, 503, 410])
def test_a_retry_after_inside_of_a_watch_is_respected(code: int) -> None:
    line = event("ERROR", _status(code, 12))
    script = Script([listing(10), listing(10)], [[line]])
    reflect(script, seconds=20.0)
    assert 12.0 <= script.times[2] - script.times[1] <= 13.2


def test_clients_with_the_same_retry_after_do_not_return_together() -> None:
    back = []
    for seed in range(20):
        script = Script([throttled(30), listing(10)], [])
        reflect(script, seconds=40.0, seed=seed)
        back.append(script.times[1])
    assert max(back) - min(back) > 1.5
    assert min(back) >= 30.0


@pytest.mark.parametrize("asked", ["86400", "9" * 400], ids=["a day", "an absurd number"])
def test_a_huge_retry_after_is_bounded(asked: str) -> None:
    script = Script([refusal(429, retry_after=asked), listing(10)], [])
    reflect(script, seconds=MAX_RETRY_AFTER * 1.2)
    assert script.listed == 2


@pytest.mark.parametrize("reported", [-5, "soon", None, 1.5, [], 2**80])
def test_an_invalid_retry_after_is_ignored(reported: object) -> None:
    answer = Response(status=503, body=msgspec.json.encode(_status(503, str(reported))))
    assert error_for(answer, what="x").retry_after == 0.0
    assert error_for(refusal(429, retry_after="soon"), what="x").retry_after == 0.0
    if not isinstance(reported, int) or reported < 2**63:
        answer = Response(status=503, body=msgspec.json.encode(_status(503, reported)))
        assert error_for(answer, what="x").retry_after == 0.0


def test_a_failed_reconcile_waits_for_the_retry_after() -> None:
    calls: list[float] = []

    async def scenario() -> None:
        clock = VirtualClock()
        queue = WorkQueue(clock=clock, rng=dice(), cap=30.0)

        async def reconcile(key: str) -> Result:
            calls.append(clock.monotonic())
            asked = {1: 20.0, 2: 86_400.0}.get(len(calls))
            if asked is not None:
                raise Throttled(429, "TooManyRequests", "x", retry_after=asked)
            return Result()

        controller = Controller(
            "pod-controller",
            reconcile,
            queue=queue,
            clock=clock,
            meter=Meter(),
            log=get_logger("t"),
        )
        queue.add("a")
        await drive(controller.run(), 100.0)

    run_virtual(scenario())
    first, second, third = calls
    assert 20.0 <= second - first <= 22.0
    assert 30.0 <= third - second <= 33.0, (
        "the reconcile's own cap also bounds a server's Retry-After"
    )


# ---- requests


@pytest.mark.parametrize("lasted", [0.0, 1.5, 10.0])
@pytest.mark.parametrize(
    "end",
    [pytest.param(gone_line(), id="410"), pytest.param(b"?\n", id="malformed")],
)
def test_lists_are_not_repeated_as_often_as_watches_end(end: bytes, lasted: float) -> None:
    # A server whose history is shorter than its own second: each watch ends with 410.
    watches: list[Answer | list[Action]] = [[lasted, end] for _ in range(4000)]
    script = Script([listing(10)], watches)
    reflect(script, seconds=600.0, resync=10_000.0)
    assert 20 <= script.listed <= 600 / 7


def test_the_backoff_is_reset_after_a_minute_without_failures() -> None:
    bad: list[Action] = [0.0, gone_line()]
    calm: list[Action] = [*([30.0, bookmark(11)] * 4), gone_line()]
    script = Script([listing(10)], [list(bad) for _ in range(9)] + [calm])
    reflect(script, seconds=400.0, resync=10_000.0)
    lists = [
        at for at, r in zip(script.times, script.requests, strict=True) if not r.param("watch")
    ]
    watched_calmly = lists[9] + 120.0
    assert 0.04 <= lists[10] - watched_calmly <= 0.11, "this 410 is a first one again"


def _page(token: str) -> Response:
    return listing(10, pod("a", 5), token=token)


@pytest.mark.parametrize("endless", ["same", "new"])
def test_a_list_without_an_end_is_given_up(endless: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runyard.kube.paging.MOST_PAGES", 50)
    numbers = iter(range(10**6))

    class Endless:
        asked = 0

        async def send(self, request: Any, *, timeout: float) -> Response:
            self.asked += 1
            return _page("t" if endless == "same" else f"t{next(numbers)}")

    wire = Endless()
    with pytest.raises(ServerFailed, match="EndlessList"):
        run_virtual(Kube(wire).list(PODS))
    assert wire.asked == (2 if endless == "same" else 50)


# ---- what is reported


def _mirror(reported: list[tuple[str, str]]) -> Mirror[Pod]:
    def changed(key: str, old: Pod | None, new: Pod | None) -> None:
        reported.append((old.metadata.uid if old else "", new.metadata.uid if new else ""))

    return Mirror(Reader(Pod), log=get_logger("t"), on_change=changed, indexes={})


def _raw(name: str, version: int, uid: str) -> msgspec.Raw:
    obj = pod(name, version)
    obj["metadata"]["uid"] = uid
    return msgspec.Raw(msgspec.json.encode(obj))


@pytest.mark.parametrize("how", ["list", "ADDED", "MODIFIED"])
def test_an_object_that_was_replaced_without_events_is_a_deletion_and_a_creation(how: str) -> None:
    reported: list[tuple[str, str]] = []
    mirror = _mirror(reported)
    mirror.replace([_raw("a", 5, "one")])
    if how == "list":
        mirror.replace([_raw("a", 9, "two")])
    else:
        mirror.step(Event(how, _raw("a", 9, "two")))
    assert reported == [("", "one"), ("one", ""), ("", "two")]


def test_the_same_version_of_another_object_is_not_taken_for_the_known_one() -> None:
    reported: list[tuple[str, str]] = []
    mirror = _mirror(reported)
    mirror.replace([_raw("a", 5, "one")])
    mirror.replace([_raw("a", 5, "two")])  # a server that was set up anew and counts from the start
    assert reported[1:] == [("one", ""), ("", "two")]


def test_a_list_with_one_object_that_has_no_name_changes_nothing() -> None:
    reported: list[tuple[str, str]] = []
    mirror = _mirror(reported)
    mirror.replace([_raw("a", 5, "one"), _raw("b", 6, "two")])
    with pytest.raises(msgspec.ValidationError):
        mirror.replace([_raw("a", 8, "one"), msgspec.Raw(b'{"metadata":{}}')])
    assert len(reported) == 2
    assert len(mirror.store) == 2


# ---- memory


def test_a_list_of_known_objects_keeps_none_of_them_twice() -> None:
    mirror = _mirror([])
    mirror.replace([_raw(f"p{n}", 5, f"u{n}") for n in range(100)])
    before = mirror.store.values()
    entries = [mirror.entry(_raw(f"p{n}", 5, f"u{n}")) for n in range(100)]
    assert all(entry.obj is obj for entry, obj in zip(entries, before, strict=True))


def test_deletions_are_not_remembered_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runyard.kube.mirror.MOST_REMEMBERED", 10)
    mirror = _mirror([])
    for number in range(100):
        mirror.step(Event("DELETED", _raw(f"p{number}", number, f"u{number}")))
    assert len(mirror._deleted) == 10
    mirror.step(Event("ADDED", _raw("p99", 98, "u99")))
    assert len(mirror.store) == 0, "the newest ones are remembered"


def test_a_line_in_many_pieces_is_joined_once() -> None:
    line = event("ADDED", pod("a", 5, text="x" * 1_000_000))
    frames = Frames()
    found = [each for at in range(0, len(line), 16) for each in frames.feed(line[at : at + 16])]
    assert len(found) == 1
    assert bytes(found[0].object) == line[len(b'{"type":"ADDED","object":') : -2]


ROUNDS = 12


def test_repeated_faults_do_not_grow_the_memory(tmp_path: Path) -> None:
    """The same faults again and again; after the first rounds the memory does not grow."""
    sizes: list[int] = []

    async def faults(cluster: Cluster, number: int) -> None:
        link = cluster.link
        for name in range(8):
            await cluster.put(f"m{name}", "red")
        await asyncio.sleep(2.0)
        link.lines.extend(["drop", "double", "late", "cut", "pieces", "garbage"])
        for name in range(8):
            await cluster.replace(f"m{name}")
            await cluster.put(f"of round {number}".replace(" ", "-"), "blue")
        await asyncio.sleep(20.0)
        await cluster.delete(f"of round {number}".replace(" ", "-"))
        link.answers[WATCH].extend([refusal(500), throttled(3), refusal(401), refusal(410)])
        cluster.core.expire_watches()
        await asyncio.sleep(30.0)
        link.mute()
        await cluster.put("m1", "green")
        await asyncio.sleep(100.0)
        cluster.core.compact()
        cluster.core.close_watches()
        await cluster.rotate()
        await asyncio.sleep(BOUND_AFTER_LOSS)
        cluster.check_settled()
        del link.times[:]
        cluster.listener.dead.clear()  # allocated for the client's listener

    async def scenario() -> None:
        cluster = Cluster(tmp_path, history=100)
        await cluster.begin()
        async with asyncio.TaskGroup() as group:
            running = group.create_task(cluster.reflector.run())
            for number in range(ROUNDS):
                await faults(cluster, number)
                gc.collect()
                sizes.append(_held_by_the_client())
            assert cluster.restarts() > ROUNDS * 8
            running.cancel()

    gc.freeze()  # objects of other tests need not be scanned again and again
    tracemalloc.start()
    try:
        run_virtual(scenario())
    finally:
        tracemalloc.stop()
        gc.unfreeze()
    early, late = max(sizes[2:5]), min(sizes[-3:])
    assert late - early < 256, f"{late - early} bytes more after {ROUNDS - 5} rounds"


def _held_by_the_client() -> int:
    """The bytes that were allocated by the code of this package and are still held.

    Except for the paths of requests: the server of this test caches the latest ones.
    """
    ours = tracemalloc.Filter(inclusive=True, filename_pattern="*/runyard/kube/*")
    paths = tracemalloc.Filter(inclusive=False, filename_pattern="*/runyard/kube/kinds.py")
    snapshot = tracemalloc.take_snapshot().filter_traces([ours, paths])
    return sum(each.size for each in snapshot.statistics("filename"))


def test_an_error_of_any_kind_can_be_made_with_a_time() -> None:
    made = KubeError(500, "R", "m", retry_after=3.0)
    assert (made.retry_after, str(made)) == (3.0, "500 R: m")
