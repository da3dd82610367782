"""Which uploads run, wait and are ended: the decision alone."""

from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runyard.blobs.plans.slots import (
    Action,
    Client,
    End,
    Limits,
    Refuse,
    Running,
    Start,
    Waiting,
    decide,
)
from runyard.blobs.rate import WINDOW, Rate
from runyard.wire.reasons_results import Yielded

LIMITS = Limits(slots=4, queue=4)
NOW = 1000.0
FAST, SLOW = 1e6, 10.0


def running(
    number: int,
    client: str = "a/x",
    *,
    rate: float = FAST,
    waited: float = 100.0,
    received: int = 0,
    reading: bool = True,
    ending: bool = False,
) -> Running:
    return Running(
        number=number,
        client=tuple(client.split("/")),
        rate=rate,
        waited=waited,
        received=received,
        reading=reading,
        ending=ending,
    )


def waiting(number: int, client: str = "b/x", *, waited: float = 6.0) -> Waiting:
    return Waiting(number=number, client=tuple(client.split("/")), since=NOW - waited)


def plan(
    have: Sequence[Running], want: Sequence[Waiting], served: dict[Client, float] | None = None
) -> list[tuple[str, int]]:
    actions = decide(have, want, served=served or {}, limits=LIMITS, now=NOW)
    return [(code(each), each.number) for each in actions]


def code(action: Action) -> str:
    return "start" if isinstance(action, Start) else action.reason.slug


FULL = [running(n) for n in range(1, 5)]
EVEN = [running(n, client) for n, client in enumerate(("a/x", "a/x", "b/x", "b/x"), start=1)]
SLOWEST, DISPLACED = Yielded.UPLOAD_SLOWEST, Yielded.UPLOAD_DISPLACED
CASES: dict[str, tuple[list[Running], list[Waiting], list[tuple[str, int]]]] = {
    "no other waits, the slow one goes on": ([running(1, rate=0.0)], [], []),
    "a slot is free": (FULL[:3], [waiting(9)], [("start", 9)]),
    "fast uploads of one client yield one slot": (FULL, [waiting(9)], [(DISPLACED, 1)]),
    "not at once": (FULL, [waiting(9, waited=4.0)], []),
    "not for the same client": (FULL, [waiting(9, "a/x")], []),
    "for another project of the account": (FULL, [waiting(9, "a/y")], [(DISPLACED, 1)]),
    "shares are equal": (EVEN, [waiting(9, "b/x"), waiting(10, "a/x")], []),
    "one that can displace none does not stand before one that can": (
        EVEN,
        [waiting(8, "a/x", waited=58.0), waiting(9, "b/y", waited=57.0)],
        [(DISPLACED, 3)],
    ),
    "a difference of one is equal": ([*EVEN[:3], running(4, "c/x")], [waiting(9, "c/x")], []),
    "a third client": (EVEN, [waiting(9, "c/x")], [(DISPLACED, 1)]),
    "the slow one goes first, at once, also for its own client": (
        [*FULL[:2], running(3, rate=SLOW), running(4, rate=SLOW + 1)],
        [waiting(9, "a/x", waited=0.0)],
        [(SLOWEST, 3)],
    ),
    "one slow one for each that waits": (
        [running(n, f"c{n}/x", rate=SLOW * n) for n in range(1, 5)],
        [waiting(8, "a/x"), waiting(9, "b/x")],
        [(SLOWEST, 1), (SLOWEST, 2)],
    ),
    "too new to be slow": (
        [running(n, f"c{n}/x", rate=SLOW, waited=9.0) for n in range(1, 5)],
        [waiting(9)],
        [],
    ),
    "the store is slow": (
        [running(n, f"c{n}/x", rate=SLOW, reading=False) for n in range(1, 5)],
        [waiting(9)],
        [],
    ),
    "a slot is free soon": ([*FULL[:3], running(4, rate=SLOW, ending=True)], [waiting(9)], []),
    "the slowest of the client that yields": (
        [running(1), running(2), running(3, rate=FAST / 2), running(4)],
        [waiting(9)],
        [(DISPLACED, 3)],
    ),
    "the least work is lost": (
        [running(n, received=100 - n) for n in range(1, 5)],
        [waiting(9)],
        [(DISPLACED, 4)],
    ),
    "waited too long": (FULL, [waiting(9, "a/x", waited=60.0)], [(Yielded.UPLOAD_NOT_STARTED, 9)]),
    "none is ended for one that is refused": (
        [running(n, rate=SLOW) for n in range(1, 5)],
        [waiting(9, waited=60.0)],
        [(Yielded.UPLOAD_NOT_STARTED, 9)],
    ),
    "a free slot comes before the end of the wait": (
        FULL[:3],
        [waiting(9, "a/x", waited=60.0)],
        [("start", 9)],
    ),
    "too many wait: the newest of the client with the most": (
        FULL,
        [waiting(5, waited=0.0), *(waiting(n, "a/x", waited=20.0 - n) for n in range(6, 10))],
        [(Yielded.UPLOADS_FULL, 9)],
    ),
    "fewest slots first": (FULL[:3], [waiting(8, "a/x", waited=50.0), waiting(9)], [("start", 9)]),
}


@pytest.mark.parametrize(("have", "want", "expected"), CASES.values(), ids=CASES)
def test_who_gets_a_slot_and_who_yields(
    have: list[Running], want: list[Waiting], expected: list[tuple[str, int]]
) -> None:
    assert plan(have, want) == expected


def test_clients_take_turns() -> None:
    want = [waiting(1, "a/x", waited=50.0), waiting(2, "a/x", waited=49.0), waiting(3, waited=10.0)]
    order = [number for _, number in plan([], want)]
    assert order == [1, 3, 2]
    lately = {("a",): NOW - 1, ("a", "x"): NOW - 1}
    assert [number for _, number in plan([], want, lately)] == [3, 1, 2]


Upload = TypeVar("Upload", Running, Waiting)


def numbered(upload: Upload, number: int) -> Upload:
    return msgspec.structs.replace(upload, number=number)


clients = st.sampled_from([("a", "x"), ("a", "y"), ("b", "x"), ("c", "x")])
rates = st.sampled_from([0.0, SLOW, 30_000.0, FAST, float("inf")])
uploads = st.builds(
    Running,
    number=st.just(0),
    client=clients,
    received=st.integers(0, 100),
    waited=st.sampled_from([0.0, 9.9, 10.0, 500.0]),
    rate=rates,
    reading=st.booleans(),
    ending=st.booleans(),
)
queued = st.builds(
    Waiting, number=st.just(0), client=clients, since=st.floats(NOW - 70, NOW, allow_nan=False)
)


@given(
    have=st.lists(uploads, max_size=LIMITS.slots),
    want=st.lists(queued, max_size=12),
    served=st.dictionaries(st.sampled_from([("a",), ("b",), ("b", "x")]), st.floats(0, NOW)),
)
def test_every_decision_keeps_the_promises(
    have: list[Running], want: list[Waiting], served: dict[Client, float]
) -> None:
    have = [numbered(each, number) for number, each in enumerate(have)]
    want = [numbered(each, 100 + number) for number, each in enumerate(want)]
    actions = decide(have, want, served=served, limits=LIMITS, now=NOW)
    assert len({each.number for each in actions}) == len(actions)
    by_number = {each.number: each for each in have}
    starts = [each for each in actions if isinstance(each, Start)]
    ends = [each for each in actions if isinstance(each, End)]
    refused = [each for each in actions if isinstance(each, Refuse)]
    assert len(starts) == min(LIMITS.slots - len(have), len(want))
    left = len(want) - len(starts)
    assert len(ends) <= max(0, left - sum(each.ending for each in have))
    assert left - len(refused) <= LIMITS.queue
    for end in ends:
        upload = by_number[end.number]
        assert not upload.ending
        assert end.received == upload.received
        if end.reason.code is SLOWEST:
            assert upload.reading and upload.waited >= 10.0 and upload.rate < LIMITS.least
        else:
            detail = end.reason.fields
            assert int(detail["held"]) >= int(detail["other"]) + 2
    over = {each.number for each in want if NOW - each.since >= LIMITS.wait}
    assert over <= {each.number for each in actions if not isinstance(each, End)}


@given(have=st.lists(clients, min_size=4, max_size=4), arriving=clients)
def test_displacing_ends_when_shares_are_even(have: list[Client], arriving: Client) -> None:
    """No client can end another's uploads for ever: each time one is displaced, the shares are closer."""
    held = [Running(number=n, client=each, waited=50.0, rate=FAST) for n, each in enumerate(have)]
    for number in range(50, 60):
        want = [Waiting(number=number, client=arriving, since=NOW - 6)]
        actions = decide(held, want, served={}, limits=LIMITS, now=NOW)
        ended = {each.number for each in actions if isinstance(each, End)}
        if not ended:
            break
        held = [each for each in held if each.number not in ended]
        held.append(Running(number=number, client=arriving, waited=50.0, rate=FAST))
    else:
        pytest.fail("still displacing")
    accounts = Counter(each.client[0] for each in held)
    assert accounts[arriving[0]] >= max(accounts.values()) - 1


@given(
    have=st.lists(clients, min_size=4, max_size=4),
    arriving=st.lists(clients, min_size=2, max_size=4),
)
def test_displacing_ends_while_several_clients_always_wait(
    have: list[Client], arriving: list[Client]
) -> None:
    held = [Running(number=n, client=each, waited=50.0, rate=FAST) for n, each in enumerate(have)]
    want = [Waiting(number=50 + n, client=each, since=NOW - 6) for n, each in enumerate(arriving)]
    served: dict[Client, float] = {}
    for moment in range(1, 30):
        actions = decide(held, want, served=served, limits=LIMITS, now=NOW + moment / 100)
        if not actions:
            return
        gone = {each.number for each in actions if isinstance(each, End)}
        held = [each for each in held if each.number not in gone]
        begun = {each.number for each in actions if isinstance(each, Start)}
        for each in [each for each in want if each.number in begun]:
            served |= {each.client[:1]: NOW + moment / 100, each.client: NOW + moment / 100}
            held.append(Running(number=each.number, client=each.client, waited=50.0, rate=FAST))
            want.remove(each)
            want.append(numbered(each, 50 + 10 * moment + len(want)))  # the client has another one
    pytest.fail("still displacing")


def test_a_fast_beginning_does_not_hide_a_trickle() -> None:
    rate = Rate()
    rate.add(1 << 30, 5.0)
    for _ in range(int(WINDOW)):
        rate.add(1, 1.0)
    assert rate.value() < 10.0
    assert (rate.received, rate.waited) == ((1 << 30) + int(WINDOW), WINDOW + 5.0)
    assert rate.value(pending=100.0) < rate.value()
    assert Rate().value() == float("inf")
