"""After any sequence of faults between a reflector and the API, the store equals the API.

A state machine that writes to the API, lets time pass and breaks things. After every step: no contradiction in what the
listener received, no stream left open, no storm of requests. After the last one the link is repaired, and within
`BOUND` virtual seconds (`BOUND_AFTER_LOSS`, if an event vanished without a trace) the store equals the API, and every
deletion was reported.
"""

import asyncio
import os
import tempfile
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.kube.faultsupport import (
    BOUND,
    BOUND_AFTER_LOSS,
    HANG,
    LIST,
    TOKEN_SECONDS,
    WATCH,
    Answer,
    Cluster,
    overloaded,
    throttled,
)
from tests.kube.kubesupport import refusal
from tests.tiers import examples

from runyard.http.errors import NotSent, OutcomeUnknown
from runyard.http.messages import Response
from runyard.sim.loop import VirtualLoop

T = TypeVar("T")

NAMES = st.sampled_from([f"m{number}" for number in range(9)])
COLOURS = st.sampled_from(["red", "green", "blue"])
ASKED = st.sampled_from([LIST, WATCH])
FATES = st.sampled_from(["drop", "double", "late", "cut", "end", "pieces", "garbage"])
TURNS = ("change", "end", "replace")  # what happens to an object in two events
PAIRS = [
    *(("", "late"), ("double", "late"), ("", "double"), ("", "cut"), ("", "end"), ("", "drop")),
    *(("cut", "late"), ("end", ""), ("drop", ""), ("drop", "late"), ("pieces", "garbage")),
]
CHANGES = ("put", "delete", "replace")
SOME_CHANGES = st.lists(st.tuples(st.sampled_from(CHANGES), NAMES), max_size=4)
LOSSES = ("mute", "restart", "410")
ANSWERS: dict[str, Answer] = {
    "410": refusal(410, "Expired"),
    "410 of a proxy": Response(status=410, body=b"<html>"),
    "500": refusal(500),
    "503 with a time": overloaded(3),
    "504, from the future": refusal(504, "Timeout"),
    "429": refusal(429),
    "429 with a time": throttled(7),
    "429 with an absurd time": throttled(86_400),
    "401": refusal(401, "Unauthorized"),
    "403": refusal(403, "Forbidden"),
    "html": Response(status=200, body=b"<html>"),
    "half a list": Response(status=200, body=b'{"metadata":{"resourceVersion":"9"},"items":[{"met'),
    "down": NotSent("refused"),
    "cut": OutcomeUnknown("cut"),
    "hang": HANG,
}


class FaultMachine(RuleBasedStateMachine):
    """The rules."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = VirtualLoop(seed=0)
        self._folder = tempfile.TemporaryDirectory()
        self.cluster = self._run(self._begin())

    async def _begin(self) -> Cluster:
        cluster = Cluster(Path(self._folder.name))
        await cluster.begin()
        self._reflecting = asyncio.get_running_loop().create_task(cluster.reflector.run())
        return cluster

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(self._loop.create_task(work))

    # ---- changes of objects

    @initialize()
    def populate(self) -> None:
        self.put_all("red")
        self.wait(1.5)

    @rule(name=NAMES, colour=COLOURS)
    def put(self, name: str, colour: str) -> None:
        self._run(self.cluster.put(name, colour))

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        self._run(self.cluster.delete(name))

    @rule(name=NAMES)
    def replace(self, name: str) -> None:
        self._run(self.cluster.replace(name))

    @rule(colour=COLOURS)
    def put_all(self, colour: str) -> None:
        for number in range(9):
            self._run(self.cluster.put(f"m{number}", colour))

    @rule(seconds=st.sampled_from([0.0, 0.05, 0.3, 1.5, 12.0, 40.0, 100.0]))
    def wait(self, seconds: float) -> None:
        self._run(asyncio.sleep(seconds))

    # ---- faults

    @rule(fate=FATES, lines=st.integers(1, 4))
    def break_lines(self, fate: str, lines: int) -> None:
        self.cluster.link.lines.extend([fate] * lines)

    @rule(name=NAMES, how=st.sampled_from(TURNS), fates=st.sampled_from(PAIRS))
    def change_twice(self, name: str, how: str, fates: tuple[str, str]) -> None:
        """Two events of one object, which the network may reorder, repeat or lose."""
        self.wait(12.0)
        self.cluster.link.lines.extend(fates)
        if how != "replace":
            self.put(name, "green")
        (self.replace if how == "replace" else self.delete if how == "end" else self._repaint)(name)
        self.wait(0.3)

    def _repaint(self, name: str) -> None:
        self.put(name, "blue")

    @rule(asked=ASKED, answer=st.sampled_from(sorted(ANSWERS)), times=st.integers(1, 6))
    def refuse(self, asked: str, answer: str, times: int) -> None:
        self.cluster.link.answers[asked].extend([ANSWERS[answer]] * times)

    @rule()
    def mute(self) -> None:
        self.cluster.link.mute()

    @rule(how=st.sampled_from(LOSSES), changes=SOME_CHANGES, forget=st.booleans())
    def change_unseen(self, how: str, changes: list[tuple[str, str]], forget: bool) -> None:
        """Change objects while no watch is open; with `forget` the server has dropped its history."""
        self.wait(12.0)
        self.cluster.link.answers[WATCH].extend([ANSWERS["down"]] * (how != "mute"))
        {
            "mute": self.cluster.link.mute,
            "restart": self.cluster.core.close_watches,
            "410": self.cluster.core.expire_watches,
        }[how]()
        for change, name in changes:
            if change == "put":
                self.put(name, "green")
            else:
                (self.delete if change == "delete" else self.replace)(name)
        if forget:
            self.cluster.core.compact()

    @rule()
    def expire_in_the_stream(self) -> None:
        self.cluster.core.expire_watches()

    @rule()
    def restart_the_server(self) -> None:
        self.cluster.core.close_watches()

    @rule()
    def compact(self) -> None:
        self.cluster.core.compact()

    @rule(pages=st.integers(1, 2))
    def forget_between_pages(self, pages: int) -> None:
        self.cluster.link.forgetful_pages += pages

    @rule()
    def let_the_token_expire(self) -> None:
        self._run(asyncio.sleep(TOKEN_SECONDS + 1.0))

    @rule()
    def rotate_the_token(self) -> None:
        self._run(self.cluster.rotate())

    # ---- what must hold

    @invariant()
    def makes_sense(self) -> None:
        self.cluster.check()
        assert not self._reflecting.done()

    @rule()
    def settle(self) -> None:
        bound = BOUND_AFTER_LOSS if self.cluster.link.lost else BOUND
        self.cluster.link.repair()
        self._run(self.cluster.rotate())
        self._run(asyncio.sleep(bound))
        self.cluster.check_settled()

    def teardown(self) -> None:
        try:
            self.settle()
        finally:
            self._reflecting.cancel()
            self._loop.drain()
            self._loop.close()
            self._folder.cleanup()
        assert self._loop.fatal is None
        assert self.cluster.link.open == 0
        assert self.cluster.core.watcher_count("configmaps") == 0


# In CI the same examples each time; elsewhere new ones, and a failure prints how to repeat it.
TestFire = FaultMachine.TestCase
TestFire.settings = settings(
    max_examples=int(os.environ.get("RUNYARD_FIRE_EXAMPLES", examples(100))),
    stateful_step_count=30,
    derandomize="CI" in os.environ,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)


# ---- each fault by itself


@contextmanager
def fault_machine() -> Iterator[FaultMachine]:
    machine = FaultMachine()
    try:
        machine.populate()
        yield machine
        machine.makes_sense()
    finally:
        machine.teardown()


@pytest.mark.parametrize(
    "fates", PAIRS, ids=lambda pair: " then ".join(each or "fine" for each in pair)
)
@pytest.mark.parametrize("how", TURNS)
def test_two_events_of_one_object_on_a_bad_line(how: str, fates: tuple[str, str]) -> None:
    with fault_machine() as machine:
        machine.change_twice(name="m1", how=how, fates=fates)


@pytest.mark.parametrize("forget", [False, True], ids=["resumed", "history is gone"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("how", LOSSES)
def test_a_change_that_no_watch_saw(how: str, change: str, forget: bool) -> None:
    with fault_machine() as machine:
        machine.change_unseen(how=how, changes=[(change, "m1"), ("delete", "m2")], forget=forget)


@pytest.mark.parametrize("answer", sorted(ANSWERS))
@pytest.mark.parametrize("asked", [LIST, WATCH])
def test_an_invalid_answer_is_survived(asked: str, answer: str) -> None:
    with fault_machine() as machine:
        machine.refuse(asked=asked, answer=answer, times=4)
        machine.expire_in_the_stream()
        machine.delete(name="m1")
        machine.compact()
        machine.wait(12.0)


def test_pages_that_expire_while_objects_change() -> None:
    with fault_machine() as machine:
        machine.forget_between_pages(pages=1)
        machine.change_unseen(how="410", changes=[("delete", "m7")], forget=True)
        machine.wait(12.0)
        assert not machine.cluster.link.forgetful_pages


def test_an_expired_token_is_renewed() -> None:
    with fault_machine() as machine:
        machine.let_the_token_expire()
        machine.change_unseen(how="restart", changes=[("replace", "m1")], forget=False)
        machine.wait(40.0)
        assert machine.cluster.stored() != machine.cluster.truth(), "an expired token must not work"
