"""A slow reader does not delay the others, and no event can break out of its frame."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.http.peers import carried, serving, stream

from runyard.clock import RealClock
from runyard.http.messages import Request, Stream
from runyard.http.sse import HEARTBEAT, Broadcast, event
from runyard.sim.clock import VirtualClock
from runyard.sim.loop import run_virtual

EVENTS = Request(method="GET", path="/", headers=(("accept", "text/event-stream"),))


def parsed(text: bytes) -> list[tuple[str, str, str]]:
    """Events as a browser reads them: (name, id, data)."""
    found: list[tuple[str, str, str]] = []
    name, last, data = "", "", []
    for line in text.decode().replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line and data:
            found.append((name, last, "\n".join(data)))
        if not line:
            name, data = "", []
        elif field == "data":
            data.append(value)
        elif field == "event":
            name = value
        elif field == "id":
            last = value
    return found


@given(data=st.text(st.characters(exclude_categories=("Cs",))))
def test_an_event_carries_any_text(data: str) -> None:
    lines = data.replace("\r\n", "\n").replace("\r", "\n")
    assert parsed(event(data, event="change", id="7")) == [("change", "7", lines)]


def test_an_event_looks_as_the_format_says() -> None:
    assert event("a\nb") == b"data: a\ndata: b\n\n"
    assert event(b"x", event="e", id="1") == b"id: 1\nevent: e\ndata: x\n\n"


@pytest.mark.parametrize("word", ["a\nb", "a\r", "\0"])
def test_a_name_cannot_break_out_of_its_line(word: str) -> None:
    with pytest.raises(ValueError, match="not a name"):
        event("x", event=word)
    with pytest.raises(ValueError, match="not a name"):
        event("x", id=word)


def test_every_reader_gets_the_first_snapshot_and_all_later_events() -> None:
    async def main() -> None:
        broadcast = Broadcast(VirtualClock())
        early = broadcast.subscribe(b"snapshot;")
        broadcast.publish(b"1;")
        late = broadcast.subscribe()
        broadcast.publish(b"2;")
        assert await anext(early.__aiter__()) == b"snapshot;1;2;"
        assert await anext(late.__aiter__()) == b"2;"
        await early.aclose()
        broadcast.publish(b"3;")
        assert await anext(late.__aiter__()) == b"3;"
        await late.aclose()
        assert len(broadcast) == 0

    run_virtual(main())


def test_a_heartbeat_is_sent_without_events() -> None:
    async def main() -> None:
        clock = VirtualClock()
        broadcast = Broadcast(clock, heartbeat=15)
        reader = broadcast.subscribe()
        began = clock.monotonic()
        for beat in (1, 2):
            assert await anext(reader.__aiter__()) == HEARTBEAT
            assert clock.monotonic() - began == 15 * beat
        broadcast.publish(b"1;")
        assert await anext(reader.__aiter__()) == b"1;"
        await reader.aclose()

    run_virtual(main())


def test_only_a_slow_reader_is_disconnected() -> None:
    async def main() -> None:
        broadcast = Broadcast(VirtualClock(), backlog=3)
        slow, quick = broadcast.subscribe(), broadcast.subscribe()
        got = []
        for number in range(10):
            broadcast.publish(b"%d;" % number)
            got.append(await anext(quick.__aiter__()))
        assert b"".join(got) == b"0;1;2;3;4;5;6;7;8;9;"
        assert [chunk async for chunk in slow] == [b"0;1;2;"]
        assert len(broadcast) == 1
        broadcast.close()
        assert [chunk async for chunk in quick] == []

    run_virtual(main())


def test_closing_ends_present_and_later_readers() -> None:
    async def main() -> None:
        broadcast = Broadcast(VirtualClock())
        waiting = broadcast.subscribe()
        reading = asyncio.ensure_future(anext(waiting.__aiter__(), None))
        await asyncio.sleep(0)
        broadcast.close()
        assert await reading is None
        assert [chunk async for chunk in broadcast.subscribe(b"last")] == [b"last"]
        assert len(broadcast) == 0

    run_virtual(main())


def test_events_arrive_over_http_and_a_disconnected_reader_is_removed() -> None:
    async def scenario() -> None:
        broadcast = Broadcast(RealClock())
        joined = asyncio.Event()

        async def handler(_: Request) -> Stream:
            joined.set()
            return broadcast.subscribe(event("hello"))

        async with serving(handler) as server, carried(server.url) as transport:
            got = await stream(transport, EVENTS)
            assert await anext(got.__aiter__()) == event("hello")
            broadcast.publish(event("1"))
            assert await anext(got.__aiter__()) == event("1")
            await got.aclose()
            while len(broadcast):
                await asyncio.sleep(0)

    asyncio.run(scenario())
