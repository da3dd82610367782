"""The reflector against a server and a network that misbehave on cue."""

import asyncio
from typing import Any

import msgspec
import pytest
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

from runyard.http.errors import NotSent, OutcomeUnknown
from runyard.http.messages import Response
from runyard.kube.client import Kube
from runyard.kube.kinds import PODS, RUNNER_POOLS
from runyard.kube.objects import Pod, RunnerPool
from runyard.kube.reflector import Pace, Reflector, Scope, WatchDeps
from runyard.sim.loop import run_virtual
from runyard.telemetry.catalogue import RUNYARD_WATCH_AGE_SECONDS, RUNYARD_WATCH_RESTARTS_TOTAL
from runyard.telemetry.meter import Meter


class Outcome:
    """Runs a reflector against a script and records the result."""

    def __init__(self, lists: list[Answer], watches: list[Answer | list[Action]], **how: Any):
        self.script = Script(lists, watches)
        self.changes: list[tuple[str, str, str]] = []
        self.meter = Meter()
        self.seconds = how.pop("seconds", 20.0)
        self.script.slowness = how.pop("slowness", 0.0)
        self.how = {"resync": 1000.0, "mute_after": 75.0, **how}
        run_virtual(self._run())

    async def _run(self) -> None:
        how = {"clock": VirtualClock(), "on_change": self._changed, **self.how}
        self.reflector: Reflector[Pod] = Reflector(
            WatchDeps(kube=Kube(self.script), clock=how.pop("clock"), rng=dice(), meter=self.meter),
            PODS,
            Pod,
            pace=Pace(**{key: how.pop(key) for key in Pace.__struct_fields__ if key in how}),
            scope=Scope(**{key: how.pop(key) for key in Scope.__struct_fields__ if key in how}),
            **how,
        )
        await drive(self.reflector.run(), self.seconds)
        self.age = asyncio.get_running_loop().time() - self.reflector.last_contact

    def _changed(self, key: str, old: Pod | None, new: Pod | None) -> None:
        self.changes.append((key, _version(old), _version(new)))

    @property
    def known(self) -> dict[str, str]:
        return {p.metadata.name: p.metadata.resource_version for p in self.reflector.store.values()}

    def restarts(self, cause: str) -> float:
        return self.meter.get(RUNYARD_WATCH_RESTARTS_TOTAL, resource="pods", cause=cause) or 0.0


def _version(obj: Pod | None) -> str:
    return obj.metadata.resource_version if obj else ""


def test_events_change_the_store_and_are_announced_after_it() -> None:
    watch: list[Action] = [
        event("ADDED", pod("b", 11)),
        event("MODIFIED", pod("a", 12)),
        event("DELETED", pod("b", 13)),
        1e6,
    ]
    seen = Outcome([listing(10, pod("a", 5))], [watch])
    assert seen.reflector.synced.is_set()
    assert seen.known == {"a": "12"}
    assert seen.changes == [
        ("ns/a", "", "5"),
        ("ns/b", "", "11"),
        ("ns/a", "5", "12"),
        ("ns/b", "11", ""),
    ]


def test_a_watch_asks_for_bookmarks_and_bounds_its_own_life() -> None:
    seen = Outcome([listing(10)], [], labels="a=b", fields="spec.nodeName=n", namespace="ns")
    first, second = seen.script.requests
    assert first.path == second.path == "/api/v1/namespaces/ns/pods"
    for request in (first, second):
        assert request.param("labelSelector") == "a=b"
        assert request.param("fieldSelector") == "spec.nodeName=n"
    assert second.param("allowWatchBookmarks") == "true"
    assert 0 < int(second.param("timeoutSeconds")) <= 1101


def test_a_clean_close_resumes_at_the_bookmark_and_not_at_the_last_event() -> None:
    watch: list[Action] = [event("ADDED", pod("a", 11)), bookmark(40), 2.0]
    seen = Outcome([listing(10)], [watch])
    assert seen.script.watched == ["10", "40"]
    assert seen.script.listed == 1
    assert seen.restarts("closed") == 1


GONE_IN_STREAM: list[Action] = [event("ADDED", pod("c", 11)), gone_line()]


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(GONE_IN_STREAM, id="410 inside of the stream"),
        pytest.param(refusal(410, "Expired"), id="410 as the status"),
        pytest.param(Response(status=410, body=b"<html>"), id="410 without a Status object"),
    ],
)
def test_a_compacted_version_leads_to_a_list_that_shows_the_deletions_of_the_gap(
    first: Answer | list[Action],
) -> None:
    lists: list[Answer] = [
        listing(10, pod("a", 5), pod("b", 6), pod("c", 7)),
        listing(99, pod("b", 6), pod("c", 50), pod("d", 60)),
    ]
    seen = Outcome(lists, [first])
    assert seen.known == {"b": "6", "c": "50", "d": "60"}
    assert ("ns/a", "5", "") in seen.changes, "the deletion without an event"
    assert ("ns/b", "6", "6") not in seen.changes, "an unchanged object is not announced"
    assert seen.script.watched == ["10", "99"]
    assert seen.restarts("gone") == 1


def test_a_mute_watch_is_noticed_and_resumed() -> None:
    quiet: list[Action] = [event("ADDED", pod("a", 11)), 1e6]
    seen = Outcome([listing(10)], [quiet], mute_after=30.0, seconds=45.0)
    assert seen.script.watched == ["10", "11"]
    assert seen.restarts("silent") == 1
    assert seen.script.listed == 1


def test_silence_shows_as_the_age_of_the_watch() -> None:
    lists: list[Answer] = [listing(10), NotSent("down")]
    seen = Outcome(lists, [NotSent("down")] * 99, mute_after=40.0, seconds=200.0)
    assert seen.age == pytest.approx(200.0)
    assert (seen.meter.get(RUNYARD_WATCH_AGE_SECONDS, resource="pods") or 0) >= 190.0


def test_the_next_list_repairs_dropped_events() -> None:
    lists: list[Answer] = [listing(10, pod("a", 5), pod("b", 6)), listing(20, pod("b", 15))]
    seen = Outcome(lists, [[bookmark(20), 1e6]], resync=60.0, seconds=70.0)
    assert seen.known == {"b": "15"}
    assert seen.restarts("resync") == 1
    assert ("ns/a", "5", "") in seen.changes


def test_a_busy_watch_does_not_put_off_the_list_forever() -> None:
    chatter: list[Action] = [x for n in range(400) for x in (1.0, event("ADDED", pod("a", 11 + n)))]
    seen = Outcome([listing(10), listing(500)], [chatter], resync=60.0, seconds=80.0)
    assert seen.script.listed == 2
    assert seen.known == {}


class Hasty(VirtualClock):
    """Half a second passes with every read of it, as if the reader were that slow."""

    def __init__(self) -> None:
        self._looks = 0

    def monotonic(self) -> float:
        self._looks += 1
        return super().monotonic() + self._looks * 0.5


def test_a_flood_of_events_does_not_prevent_the_list() -> None:
    flood: list[Action] = [event("ADDED", pod("a", 11 + n)) for n in range(1000)]
    seen = Outcome([listing(10), listing(5000)], [flood], resync=60.0, seconds=1.0, clock=Hasty())
    assert seen.restarts("resync") == 1
    assert 20 < len(seen.changes) < 100


def test_the_first_410_after_a_long_outage_is_answered_with_a_list_at_once() -> None:
    watches: list[Answer | list[Action]] = [*[NotSent("down")] * 9, refusal(410)]
    seen = Outcome([listing(10), listing(99)], watches, seconds=100.0)
    listed = [
        at
        for at, request in zip(seen.script.times, seen.script.requests, strict=True)
        if not request.param("watch")
    ]
    gone = seen.script.times[10]
    assert seen.restarts("transport") == 9
    assert 0.05 <= listed[1] - gone <= 0.1


def test_duplicate_and_reordered_events_change_nothing() -> None:
    watch: list[Action] = [
        event("MODIFIED", pod("a", 12)),
        event("MODIFIED", pod("a", 12)),
        event("MODIFIED", pod("a", 11)),
        event("DELETED", pod("b", 14)),
        event("MODIFIED", pod("b", 13)),  # late, of the deleted Pod's life
        event("ADDED", pod("b", 20)),
        event("DELETED", pod("b", 14)),  # again, but b is another b now
        1e6,
    ]
    seen = Outcome([listing(10, pod("a", 5), pod("b", 6))], [watch])
    assert seen.known == {"a": "12", "b": "20"}
    assert seen.changes[2:] == [("ns/a", "5", "12"), ("ns/b", "6", ""), ("ns/b", "", "20")]


def test_a_version_that_is_no_number_is_only_compared_for_equality() -> None:
    watch: list[Action] = [
        event("MODIFIED", pod("a", "zz")),
        event("MODIFIED", pod("a", "aa")),
        event("MODIFIED", pod("a", "aa")),
        2.0,
    ]
    seen = Outcome([listing("x", pod("a", "mm"))], [watch])
    assert [change[2] for change in seen.changes] == ["mm", "zz", "aa"]
    assert seen.script.watched == ["x", "aa"]


@pytest.mark.parametrize("cut", range(1, len(event("MODIFIED", pod("a", 12)))))
def test_a_connection_cut_anywhere_in_a_line_resumes_before_that_line(cut: int) -> None:
    whole = event("ADDED", pod("b", 11))
    line = event("MODIFIED", pod("a", 12))
    first: list[Action] = [whole + line[:cut]]
    second: list[Action] = [line, 1e6]
    seen = Outcome([listing(10, pod("a", 5))], [first, second])
    assert seen.known == {"a": "12", "b": "11"}
    complete = cut == len(line) - 1  # only the line break is missing: nothing was lost
    assert seen.script.watched == ["10", "12" if complete else "11"]
    assert seen.restarts("cut") == (0 if complete else 1)
    assert seen.changes.count(("ns/a", "5", "12")) == 1


@pytest.mark.parametrize("size", [1, 2, 7, 64, 1000])
def test_lines_arrive_in_pieces_of_any_size(size: int) -> None:
    text = (
        b"".join(event("ADDED", pod(f"p{n}", 11 + n)) for n in range(9)) + b"\n \n" + bookmark(50)
    )
    pieces: list[Action] = [text[at : at + size] for at in range(0, len(text), size)]
    seen = Outcome([listing(10)], [[*pieces, 2.0]])
    assert len(seen.known) == 9
    assert seen.script.watched == ["10", "50"]


@pytest.mark.parametrize(
    "error",
    [NotSent("refused"), OutcomeUnknown("cut"), ConnectionResetError("cut"), EOFError()],
    ids=lambda error: type(error).__name__,
)
def test_an_error_in_the_middle_of_the_stream_loses_nothing(error: Exception) -> None:
    watches: list[Answer | list[Action]] = [[event("ADDED", pod("a", 11)), error]]
    seen = Outcome([listing(10), listing(12, pod("a", 11))], watches)
    assert seen.known == {"a": "11"}
    assert seen.changes == [("ns/a", "", "11")]


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"<html>502</html>\n", id="html"),
        pytest.param(b"{\n", id="half an object"),
        pytest.param(b"[]\n", id="not an object"),
        pytest.param(b'{"object":{}}\n', id="no type"),
        pytest.param(b'{"type":"ADDED"}\n', id="no object"),
        pytest.param(b'{"type":"ADDED","object":{"metadata":{}}}\n', id="no name"),
        pytest.param(b'{"type":"ERROR","object":[]}\n', id="error without a Status"),
        pytest.param(b'{"type":"BOOKMARK","object":7}\n', id="bookmark without an object"),
        pytest.param(b"\xff\xfe\n", id="not text"),
    ],
)
def test_a_malformed_line_leads_to_a_list(line: bytes) -> None:
    lists: list[Answer] = [listing(10, pod("a", 5)), listing(30, pod("b", 20))]
    seen = Outcome(lists, [[event("MODIFIED", pod("a", 11)), line]])
    assert seen.known == {"b": "20"}
    assert seen.script.watched == ["10", "30"]
    assert seen.restarts("malformed") == 1


def test_an_endless_line_is_refused_before_it_fills_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("runyard.kube.frames.MAX_LINE", 1000)
    flood: list[Action] = [b"x" * 100] * 1000
    seen = Outcome([listing(10)], [flood])
    assert seen.restarts("malformed") == 1


def test_an_unknown_type_of_event_is_skipped() -> None:
    watch: list[Action] = [event("CONFUSED", pod("a", 11)), event("ADDED", pod("b", 12)), 1e6]
    seen = Outcome([listing(10)], [watch])
    assert seen.known == {"b": "12"}


@pytest.mark.parametrize(
    ("failure", "cause"),
    [
        (refusal(500), "refused"),
        (refusal(503), "refused"),
        (refusal(403, "Forbidden"), "refused"),
        (refusal(429), "throttled"),
        (Response(status=200, body=b"not json"), "refused"),
        (NotSent("down"), "transport"),
        (OutcomeUnknown("slow"), "transport"),
        (RuntimeError("a bug"), "error"),
    ],
    ids=["500", "503", "403", "429", "garbage", "not sent", "unknown", "bug"],
)
def test_failures_of_the_first_list_are_retried(failure: Answer, cause: str) -> None:
    seen = Outcome([failure, failure, failure, listing(10, pod("a", 5))], [])
    assert seen.known == {"a": "5"}
    assert seen.restarts(cause) == 3


def test_a_failed_list_never_empties_the_store() -> None:
    lists: list[Answer] = [listing(10, pod("a", 5)), refusal(500)]
    seen = Outcome(lists, [refusal(410)], seconds=500.0)
    assert seen.known == {"a": "5"}


def test_a_list_that_keeps_failing_does_not_stop_the_watch() -> None:
    lists: list[Answer] = [listing(10, pod("a", 5)), *[refusal(500)] * 3, listing(40, pod("c", 30))]
    watches: list[Answer | list[Action]] = [[1e6], [event("ADDED", pod("b", 11)), 1e6]]
    seen = Outcome(lists, watches, resync=60.0, seconds=80.0)
    assert seen.known == {"a": "5", "b": "11"}
    assert seen.script.listed == 2
    seen = Outcome(
        [listing(10, pod("a", 5)), *[refusal(500)] * 3, listing(40, pod("c", 30))],
        [[1e6], [event("ADDED", pod("b", 11)), 1e6]],
        resync=60.0,
        seconds=190.0,
    )
    assert seen.known == {"c": "30"}


def test_retry_after_is_waited_for() -> None:
    seen = Outcome([refusal(429, retry_after="12"), listing(10)], [], seconds=11.0)
    assert seen.script.listed == 1
    seen = Outcome([refusal(429, retry_after="12"), listing(10)], [], seconds=13.0)
    assert seen.script.listed == 2


ENDLESS = 4000


@pytest.mark.parametrize(
    "watch",
    [
        pytest.param([], id="closes at once"),
        pytest.param([bookmark(10)], id="one bookmark, then closes"),
        pytest.param([gone_line()], id="410 in the stream"),
        pytest.param(refusal(410), id="410"),
        pytest.param(refusal(500), id="500"),
        pytest.param(refusal(429), id="429 without a time"),
        pytest.param([b"?\n"], id="malformed"),
        pytest.param([b'{"type"'], id="cut"),
        pytest.param(NotSent("down"), id="down"),
    ],
)
def test_no_failure_becomes_a_hot_loop(watch: Answer | list[Action]) -> None:
    watches = [list(watch) if isinstance(watch, list) else watch for _ in range(ENDLESS)]
    seen = Outcome([listing(10)], watches, seconds=300.0)
    assert 10 <= len(seen.script.watched) <= 60


def test_clients_that_were_cut_together_do_not_reconnect_together() -> None:
    cut: list[Action] = [2.0, OutcomeUnknown("cut")]
    closed: list[Action] = [2.0]
    seen = Outcome([listing(10)], [cut, closed])
    _, first, second, third = seen.script.times
    assert 0.05 <= second - first - 2.0 <= 0.1
    assert third - second == pytest.approx(2.0), "a clean close after a while is resumed at once"


def test_every_stream_that_was_opened_is_closed() -> None:
    watches: list[Answer | list[Action]] = [
        [gone_line()],
        [b"?\n"],
        [bookmark(11), 2.0],
        [OutcomeUnknown("cut")],
        [1e6],
        [1e6],
    ]
    seen = Outcome([listing(10)], watches, mute_after=5.0, seconds=30.0)
    assert seen.script.opened > 5
    assert seen.script.opened == seen.script.closed


@pytest.mark.parametrize("slowness", [0.0, 3.0], ids=["at once", "after some seconds"])
def test_a_version_that_the_server_refuses_is_dropped(slowness: float) -> None:
    watches: list[Answer | list[Action]] = [refusal(504, "Timeout")] * 4
    lists: list[Answer] = [listing(900, pod("a", 899)), listing(10, pod("a", 5))]
    seen = Outcome(lists, watches, slowness=slowness)
    assert seen.known == {"a": "5"}, "the list of a restored server is believed"
    assert seen.script.watched == ["900"] * 4 + ["10"]


def test_a_failing_listener_affects_only_its_own_call() -> None:
    calls: list[str] = []

    def listener(key: str, old: Pod | None, new: Pod | None) -> None:
        calls.append(key)
        raise ZeroDivisionError

    seen = Outcome([listing(10, pod("a", 5), pod("b", 6))], [], on_change=listener)
    assert calls == ["ns/a", "ns/b"]
    assert len(seen.known) == 2
    assert len(seen.script.watched) == 1


def test_indexes_follow_the_objects() -> None:
    watch: list[Action] = [
        event("MODIFIED", pod("a", 11, pool="y")),
        event("DELETED", pod("b", 12, pool="x")),
        1e6,
    ]
    first = listing(10, pod("a", 5, pool="x"), pod("b", 6, pool="x"), pod("c", 7))
    pools = {"pool": lambda p: [v for k, v in p.metadata.labels.items() if k == "pool"]}
    seen = Outcome([first], [watch], indexes=pools)
    store = seen.reflector.store
    assert store.by_index("pool", "x") == ()
    assert [p.metadata.name for p in store.by_index("pool", "y")] == ["a"]
    with pytest.raises(KeyError):
        store.by_index("node", "x")


def _pool(name: str, version: int, **spec: Any) -> dict[str, Any]:
    full = {"image": "i", "fleetSelector": "f", "dispatchLabel": "d", "runnerLabels": ["r"], **spec}
    return {
        "metadata": {"name": name, "namespace": "ns", "resourceVersion": str(version)},
        "spec": full,
    }


def test_an_unreadable_object_is_not_treated_as_deleted() -> None:
    lists: list[Answer] = [
        listing(10, _pool("a", 5), _pool("b", 6, replicas=-1, image=7)),
        listing(20, _pool("a", 12, replicas="three"), _pool("b", 13)),
        listing(30, _pool("b", 13)),
    ]
    script = Script(lists, [[event("MODIFIED", _pool("a", 11, replicas=[])), gone_line()]])
    changes: list[tuple[str, bool]] = []
    states: list[tuple[tuple[str, ...], tuple[str, ...]]] = []

    async def scenario() -> None:
        reflector: Reflector[RunnerPool] = Reflector(
            WatchDeps(kube=Kube(script), clock=VirtualClock(), rng=dice(), meter=Meter()),
            RUNNER_POOLS,
            RunnerPool,
            pace=Pace(resync=60.0),
            on_change=lambda key, old, new: changes.append((key, new is not None)),
        )

        async def inspect_store() -> None:
            for wait in (0.01, 5.0, 75.0):
                await asyncio.sleep(wait)
                states.append((reflector.store.keys(), tuple(sorted(reflector.unreadable))))

        async with asyncio.TaskGroup() as group:
            group.create_task(drive(reflector.run(), 90.0))
            group.create_task(inspect_store())

    run_virtual(scenario())
    assert states == [
        (("ns/a",), ("ns/a", "ns/b")),
        (("ns/a", "ns/b"), ("ns/a",)),
        (("ns/b",), ()),
    ]
    assert changes == [("ns/a", True), ("ns/b", True), ("ns/a", False)]


def test_the_same_seed_gives_the_same_requests() -> None:
    def requests() -> list[bytes]:
        watches = [refusal(500), [b"?\n"], [bookmark(12), 3.0]] * 5
        seen = Outcome([listing(10)], list(watches), resync=40.0, seconds=300.0)
        return [msgspec.json.encode(request) for request in seen.script.requests]

    assert requests() == requests()
