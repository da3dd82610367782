"""A lost request and a lost answer must look the same to the caller and differ at the peer."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from runyard.http.errors import NotSent, OutcomeUnknown, TransportError
from runyard.http.messages import Request, Response, Stream
from runyard.sim.clock import VirtualClock
from runyard.sim.loop import run_virtual
from runyard.sim.network import NO_FAULTS, Faults, Link
from runyard.sim.process import Process, wrap_transport
from runyard.sim.trace import Trace

Scenario = Callable[["Net"], Coroutine[Any, Any, None]]


class Net:
    """A peer that remembers what it did, behind a link."""

    def __init__(self, faults: Faults, seed: int) -> None:
        self.clock = VirtualClock()
        self.trace = Trace(self.clock.monotonic, keep=10_000)
        self.server = Process("server", trace=self.trace)
        self.server.start()
        self.seen: list[str] = []
        self.finished: list[str] = []
        self.closed: list[float] = []
        self.work = 0.0  # how long the peer takes
        self.chunks = 5
        self.link = Link(
            "link",
            self.handle,
            rng=random.Random(seed),
            trace=self.trace,
            server=self.server,
            faults=faults,
        )

    async def handle(self, request: Request) -> Response | Stream:
        self.seen.append(request.path)
        await self.clock.sleep(self.work)
        self.finished.append(request.path)
        if request.path == "/stream":
            return Stream(self.produce(), on_close=lambda: self.closed.append(self.clock.now()))
        return Response(status=200, body=str(len(self.finished)).encode())

    async def produce(self) -> AsyncIterator[bytes]:
        for number in range(self.chunks):
            yield b"%d" % number
            await self.clock.sleep(1)

    async def get(self, path: str = "/", *, timeout: float = 10.0) -> Response:
        answer = await self.link.send(Request(method="GET", path=path), timeout=timeout)
        assert isinstance(answer, Response)
        return answer

    async def open(self) -> Stream:
        answer = await self.link.send(Request(method="GET", path="/stream"), timeout=10)
        assert isinstance(answer, Stream)
        return answer

    async def read(self) -> list[bytes]:
        stream = await self.open()
        try:
            return [chunk async for chunk in stream]
        finally:
            await stream.aclose()


def simulate(scenario: Scenario, faults: Faults = NO_FAULTS, *, seed: int = 0) -> str:
    async def main() -> str:
        net = Net(faults, seed)
        await scenario(net)
        return net.trace.digest()

    return run_virtual(main(), seed=seed)


def test_a_good_link_carries_and_takes_its_time() -> None:
    async def scenario(net: Net) -> None:
        net.work = 3
        assert (await net.get()).body == b"1"
        assert net.clock.monotonic() == 7

    simulate(scenario, Faults(latency=(2, 2)))


def test_a_lost_request_is_unknown_to_the_caller_and_not_done() -> None:
    async def scenario(net: Net) -> None:
        with pytest.raises(OutcomeUnknown, match="timeout"):
            await net.get()
        assert net.clock.monotonic() == 10
        assert net.seen == []

    simulate(scenario, Faults(drop_request=1))


def test_a_lost_answer_is_unknown_to_the_caller_and_done() -> None:
    async def scenario(net: Net) -> None:
        with pytest.raises(OutcomeUnknown):
            await net.get()
        assert net.finished == ["/"]

    simulate(scenario, Faults(drop_response=1))


def test_a_slow_peer_goes_on_after_the_caller_gave_up() -> None:
    async def scenario(net: Net) -> None:
        net.work = 60
        with pytest.raises(OutcomeUnknown):
            await net.get()
        assert net.finished == []
        await net.clock.sleep(60)
        assert net.finished == ["/"]

    simulate(scenario)


def test_a_cancelled_caller_does_not_stop_the_peer() -> None:
    async def scenario(net: Net) -> None:
        net.work = 5
        with pytest.raises(TimeoutError):
            async with net.clock.timeout(1):
                await net.get()
        await net.clock.sleep(10)
        assert net.finished == ["/"]

    simulate(scenario)


def test_a_duplicate_is_done_twice_and_answered_once() -> None:
    async def scenario(net: Net) -> None:
        await net.get()
        await net.clock.sleep(1)
        assert net.finished == ["/", "/"]
        assert net.trace.counts["answer"] == 1

    simulate(scenario, Faults(duplicate=1))


def test_delays_let_requests_overtake_each_other() -> None:
    orders = []

    async def scenario(net: Net) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(5):
                group.create_task(net.get(f"/{number}"))
                await net.clock.sleep(0.1)
        orders.append(net.seen)
        assert sorted(net.seen) == [f"/{number}" for number in range(5)]

    for seed in range(5):
        simulate(scenario, Faults(latency=(0.01, 0.02), delay=0.5), seed=seed)
    assert any(order != sorted(order) for order in orders)


def test_a_severed_line_makes_what_is_under_way_unknown_and_refuses_the_rest() -> None:
    async def scenario(net: Net) -> None:
        net.work = 5

        async def caller() -> None:
            with pytest.raises(OutcomeUnknown, match="cut"):
                await net.get("/under-way")
            assert net.clock.monotonic() == 1

        async with asyncio.TaskGroup() as group:
            group.create_task(caller())
            await net.clock.sleep(1)
            net.link.sever()
            with pytest.raises(NotSent):
                await net.get("/refused")
        await net.clock.sleep(10)
        assert net.finished == ["/under-way"]  # the peer went on
        net.link.restore()
        assert (await net.get("/again")).status == 200
        assert net.seen == ["/under-way", "/again"]

    simulate(scenario)


def test_a_request_in_the_air_when_the_line_is_cut_may_or_may_not_arrive() -> None:
    arrived = []

    async def scenario(net: Net) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(caller(net))
            await net.clock.sleep(0.5)
            net.link.sever()
        await net.clock.sleep(10)
        arrived.append(len(net.seen))

    async def caller(net: Net) -> None:
        with pytest.raises(OutcomeUnknown):
            await net.get()

    for seed in range(12):
        simulate(scenario, Faults(latency=(1, 1)), seed=seed)
    assert sorted(dict.fromkeys(arrived)) == [0, 1]


@pytest.mark.parametrize("how", ["down", "dead", "no-handler"])
def test_a_peer_that_does_not_listen_was_certainly_not_reached(how: str) -> None:
    async def scenario(net: Net) -> None:
        if how == "down":
            net.link.down = True
        elif how == "dead":
            net.server.crash()
        else:
            net.link.serve(None)
        with pytest.raises(NotSent):
            await net.get()
        assert net.seen == []
        net.link.down = False
        net.link.serve(net.handle)
        net.server.restart()
        assert (await net.get()).status == 200

    simulate(scenario)


def test_a_peer_that_dies_at_work_leaves_the_work_undone_and_the_outcome_unknown() -> None:
    async def scenario(net: Net) -> None:
        net.work = 5

        async def caller() -> None:
            with pytest.raises(OutcomeUnknown, match="died"):
                await net.get()

        async with asyncio.TaskGroup() as group:
            group.create_task(caller())
            await net.clock.sleep(1)
            net.server.crash()
        await net.clock.sleep(10)
        assert (net.seen, net.finished) == (["/"], [])

    simulate(scenario)


def test_chunks_of_a_stream_keep_their_order_however_they_travel() -> None:
    async def scenario(net: Net) -> None:
        net.chunks = 30
        assert await net.read() == [b"%d" % number for number in range(30)]
        await net.clock.sleep(10)
        assert len(net.closed) == 1

    for seed in range(5):
        simulate(scenario, Faults(latency=(0, 4), delay=0.3), seed=seed)


def test_a_reader_that_leaves_ends_the_peers_stream() -> None:
    async def scenario(net: Net) -> None:
        net.chunks = 1_000_000
        stream = await net.open()
        async for chunk in stream:
            if chunk == b"3":
                break
        await stream.aclose()
        await stream.aclose()
        await net.clock.sleep(10)
        assert len(net.closed) == 1
        assert net.trace.counts["chunk"] < 20

    simulate(scenario, Faults(latency=(1, 1)))


def test_a_client_that_is_killed_ends_the_peers_stream() -> None:
    async def scenario(net: Net) -> None:
        net.chunks = 1_000_000
        client = Process("client", trace=net.trace)
        transport = wrap_transport(client, net.link)

        async def watch() -> None:
            answer = await transport.send(Request(method="GET", path="/stream"), timeout=10)
            assert isinstance(answer, Stream)
            async for _ in answer:
                pass

        client.start(watch)
        await net.clock.sleep(5)
        client.crash()
        await net.clock.sleep(10)
        assert len(net.closed) == 1

    simulate(scenario)


@pytest.mark.parametrize("how", ["cut", "sever", "crash"])
def test_a_stream_that_breaks_tells_its_reader(how: str) -> None:
    async def scenario(net: Net) -> None:
        net.chunks = 100
        got = []
        stream = await net.open()
        with pytest.raises(OutcomeUnknown):
            async for chunk in stream:
                got.append(chunk)
                if chunk == b"2":
                    break_it(net)
        with pytest.raises(OutcomeUnknown):
            await anext(aiter(stream))
        await stream.aclose()
        assert got == [b"0", b"1", b"2"]
        await net.clock.sleep(5)
        assert len(net.closed) == 1

    def break_it(net: Net) -> None:
        if how == "cut":
            net.link.faults = Faults(cut_stream=1)
        elif how == "sever":
            net.link.sever()
        else:
            net.server.crash()

    simulate(scenario)


@pytest.mark.parametrize("how", ["by-chance", "on-demand"])
def test_a_mute_stream_says_nothing_at_all(how: str) -> None:
    async def scenario(net: Net) -> None:
        net.chunks = 3
        stream = await net.open()
        chunks = aiter(stream)
        assert await anext(chunks) == b"0"
        if how == "by-chance":
            net.link.faults = Faults(mute_stream=1)
        else:
            net.link.mute()
        with pytest.raises(TimeoutError):
            async with net.clock.timeout(1000):
                await anext(chunks)
        await stream.aclose()

    simulate(scenario)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Faults(drop_chunk=1), []),
        (Faults(duplicate_chunk=1), [b"0", b"0", b"1", b"1"]),
    ],
    ids=["dropped", "duplicated"],
)
def test_single_chunks_can_be_lost_or_doubled(fault: Faults, expected: list[bytes]) -> None:
    async def scenario(net: Net) -> None:
        net.chunks = 2
        assert await net.read() == expected

    simulate(scenario, fault)


def test_a_stream_whose_answer_was_lost_or_doubled_is_closed_at_the_peer() -> None:
    async def lost(net: Net) -> None:
        with pytest.raises(OutcomeUnknown):
            await net.open()
        assert len(net.closed) == 1

    async def doubled(net: Net) -> None:
        net.chunks = 1_000_000
        stream = await net.open()
        await net.clock.sleep(5)
        assert len(net.closed) == 1
        await stream.aclose()
        await net.clock.sleep(5)
        assert len(net.closed) == 2

    simulate(lost, Faults(drop_response=1))
    simulate(doubled, Faults(duplicate=1))


def test_a_storm_replays_and_its_outcomes_are_honest() -> None:
    faults = Faults(
        latency=(0.01, 0.3),
        drop_request=0.1,
        drop_response=0.1,
        duplicate=0.1,
        delay=0.2,
        cut_stream=0.05,
        mute_stream=0.02,
    )

    async def scenario(net: Net) -> None:
        outcomes: dict[str, str] = {}

        async def caller(number: int) -> None:
            path = f"/{number}"
            await net.clock.sleep(number / 7)
            try:
                await net.get(path)
                outcomes[path] = "answer"
            except TransportError as error:
                outcomes[path] = type(error).__name__

        async def fault_layers() -> None:
            for _ in range(5):
                await net.clock.sleep(5)
                net.link.sever()
                await net.clock.sleep(1)
                net.link.restore()
                net.server.restart()

        async with asyncio.TaskGroup() as group:
            group.create_task(fault_layers())
            for number in range(200):
                group.create_task(caller(number))
        await net.clock.sleep(30)
        assert all(p in net.finished for p, outcome in outcomes.items() if outcome == "answer")
        assert not any(p in net.seen for p, outcome in outcomes.items() if outcome == "NotSent")
        assert sorted(dict.fromkeys(outcomes.values())) == ["NotSent", "OutcomeUnknown", "answer"]

    assert simulate(scenario, faults, seed=3) == simulate(scenario, faults, seed=3)
    assert simulate(scenario, faults, seed=3) != simulate(scenario, faults, seed=4)
