"""A write must not reach the peer after its caller gave up on it, whatever the kernel still holds of it."""

import asyncio
import contextlib
import signal
import socket
import struct
import sys
import time
from collections.abc import AsyncIterator, Callable

import pytest
from aiohttp.client_proto import ResponseHandler
from tests.http.peers import OK, carried, read_request, scripted

from runyard.clock import RealClock
from runyard.http import client
from runyard.http.client import HttpTransport
from runyard.http.errors import NotSent, OutcomeUnknown
from runyard.http.messages import Request, Response
from runyard.http.sockets import limit_sending
from runyard.kube.leadership import Leadership, LeaderTransport, NotLeading
from runyard.kube.plans.election import Timing

BODY = b"x" * (4 << 20)  # more than the kernel takes at once
SMALL_WINDOW = 4096


class Valve:
    """A peer that accepts a connection and reads nothing until `opened` is called."""

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_WINDOW)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.listen()
        self._socket.setblocking(False)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._accepted: socket.socket | None = None

    async def accept(self) -> None:
        loop = asyncio.get_running_loop()
        self._accepted, _ = await loop.sock_accept(self._socket)

    async def opened(self) -> tuple[int, bool]:
        """Read to the end: how many bytes arrived, and whether the connection was reset."""
        assert self._accepted is not None
        loop, size = asyncio.get_running_loop(), 0
        try:
            async with asyncio.timeout(20):
                while part := await loop.sock_recv(self._accepted, 65536):
                    size += len(part)
        except ConnectionResetError:
            return size, True
        return size, False

    def close(self) -> None:
        self._socket.close()
        if self._accepted is not None:
            self._accepted.close()


@contextlib.asynccontextmanager
async def held() -> AsyncIterator[tuple[Valve, HttpTransport]]:
    valve = Valve()
    async with carried(valve.url) as transport:
        try:
            yield valve, transport
        finally:
            valve.close()


def post(may_send: Callable[[], bool] | None = None, body: bytes = BODY) -> Request:
    return Request(method="POST", path="/pods", body=body, may_send=may_send)


@pytest.mark.parametrize("end", ["timeout", "cancelled"])
def test_bytes_that_the_peer_did_not_take_are_discarded_when_the_caller_gives_up(end: str) -> None:
    async def scenario() -> None:
        async with held() as (valve, transport):
            sending = asyncio.ensure_future(
                transport.send(post(), timeout=0.2 if end == "timeout" else 20)
            )
            await valve.accept()
            await asyncio.sleep(0.1)
            if end == "cancelled":
                sending.cancel()
            with pytest.raises((OutcomeUnknown, asyncio.CancelledError)):
                await sending
            size, reset = await valve.opened()
            assert reset and size < len(BODY)

    asyncio.run(scenario())


def test_a_leaders_write_that_is_held_back_is_discarded_before_the_lease_can_pass_on() -> None:
    async def scenario() -> None:
        timing = Timing(duration=2.0, renew_deadline=0.4, retry_period=0.1)
        leadership = Leadership(clock=RealClock(), timing=timing)
        async with held() as (valve, transport):
            gate = LeaderTransport(transport, leadership)
            leadership.renewed(leadership.sent_now())
            began = time.monotonic()
            sending = asyncio.ensure_future(gate.send(post(), timeout=30))
            await valve.accept()
            with pytest.raises(OutcomeUnknown):
                await sending
            assert time.monotonic() - began < timing.duration
            size, reset = await valve.opened()
            assert reset and size < len(BODY)
            with pytest.raises(NotLeading):
                await gate.send(post(), timeout=30)

    asyncio.run(scenario())


CHILD = """
import asyncio, sys
from runyard.http.client import HttpTransport
from runyard.http.messages import Request

async def main():
    transport = HttpTransport(sys.argv[1])
    await transport.send(Request(method="POST", path="/pods", body=b"x" * (4 << 20)), timeout=1.0)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel has no such limit")
@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL], ids=["stopped", "killed"])
def test_the_kernel_discards_the_write_of_a_stopped_or_killed_process(
    number: signal.Signals,
) -> None:
    async def scenario() -> None:
        valve = Valve()
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", CHILD, valve.url)
        try:
            await valve.accept()
            await asyncio.sleep(0.3)
            child.send_signal(number)
            await asyncio.sleep(3.0)
            size, reset = await valve.opened()
            assert reset and size < len(BODY)
        finally:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()
            valve.close()

    asyncio.run(scenario())


def test_a_process_that_was_stopped_after_connecting_writes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        got: list[bytes] = []

        async def script(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                got.append(await reader.read())

        loop = asyncio.get_running_loop()
        now, ahead = loop.time, 0.0

        def stopped(*_: object) -> None:
            nonlocal ahead
            ahead = 60.0  # the process was stopped after the connection was made

        monkeypatch.setattr(loop, "time", lambda: now() + ahead)
        monkeypatch.setattr(client, "limit_sending", stopped)
        async with scripted(script) as (url, _), carried(url) as transport:
            with pytest.raises(NotSent, match="the time to send it is over"):
                await transport.send(post(body=b"{}"), timeout=20)
        assert b"".join(got) == b""

    asyncio.run(scenario())


@pytest.mark.parametrize("body", [b"", b"{}"], ids=["without a body", "with a body"])
def test_a_write_that_is_not_permitted_any_more_after_connecting_is_not_sent(body: bytes) -> None:
    async def scenario() -> None:
        got: list[bytes] = []
        connected = asyncio.Event()

        async def script(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
            connected.set()
            with contextlib.suppress(ConnectionError):
                got.append(await reader.read())

        async with scripted(script) as (url, _), carried(url) as transport:
            with pytest.raises(NotSent, match="it may not be sent now"):
                await transport.send(post(lambda: False, body), timeout=20)
            await connected.wait()
        assert b"".join(got) == b""

    asyncio.run(scenario())


def test_a_write_that_loses_its_permission_half_way_is_an_unknown_outcome_and_never_whole() -> None:
    async def scenario() -> None:
        asked = iter([True, True])  # the head and the first piece of the body
        async with held() as (valve, transport):
            sending = asyncio.ensure_future(
                transport.send(post(lambda: next(asked, False)), timeout=20)
            )
            await valve.accept()
            reading = asyncio.ensure_future(valve.opened())
            with pytest.raises(OutcomeUnknown):
                await sending
            assert (await reading)[0] < len(BODY)

    asyncio.run(scenario())


def test_a_connection_is_used_again_after_a_write_that_was_answered() -> None:
    async def scenario() -> None:
        ends: list[bytes] = []

        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            for _ in range(3):
                assert await read_request(reader)
                writer.write(OK)
            ends.append(await reader.read())  # and it is closed in order

        async with scripted(script) as (url, peer):
            async with carried(url) as transport:
                for _ in range(3):
                    await transport.send(post(lambda: True, b"{}"), timeout=20)
            async with asyncio.timeout(20):
                while not ends:
                    await asyncio.sleep(0.01)
            assert peer.connections == 1
        assert ends == [b""]

    asyncio.run(scenario())


@pytest.mark.parametrize("end", ["answered", "cancelled"])
def test_the_end_of_a_write_does_not_affect_a_connection_that_another_write_uses(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool has the connection as soon as the answer is complete, before the first caller runs again."""
    head, body = OK[:-2], OK[-2:]
    limit, receive = limit_sending, ResponseHandler.data_received
    taken: list[socket.socket] = []

    def limiting(sock: socket.socket, seconds: float) -> None:
        taken.append(sock)
        limit(sock, seconds)

    async def scenario() -> None:
        waits_for_body, answer_is_complete = asyncio.Event(), asyncio.Event()
        first_has_ended = asyncio.Event()

        def receiving(handler: ResponseHandler, data: bytes) -> None:
            if data == body:
                answer_is_complete.set()  # the second write is scheduled ahead of the first one
            receive(handler, data)
            if data == head:
                waits_for_body.set()

        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            assert await read_request(reader)
            writer.write(head)
            await waits_for_body.wait()
            writer.write(body)
            assert await read_request(reader)
            await first_has_ended.wait()
            writer.write(OK)

        monkeypatch.setattr(client, "limit_sending", limiting)
        monkeypatch.setattr(ResponseHandler, "data_received", receiving)
        async with scripted(script) as (url, peer), carried(url) as transport:
            first = asyncio.ensure_future(transport.send(post(body=b"{}"), timeout=20))

            async def send_second() -> Response:
                await answer_is_complete.wait()
                assert not first.done()
                if end == "cancelled":
                    first.cancel()
                answer = await transport.send(post(body=b"{}"), timeout=20)
                assert isinstance(answer, Response)
                return answer

            second = asyncio.ensure_future(send_second())
            await asyncio.wait([first])
            assert first.cancelled() is (end == "cancelled")
            assert len(taken) == 2 and not second.done()
            linger = taken[1].getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)
            assert struct.unpack("ii", linger) == (1, 0), "the second write is not protected"
            first_has_ended.set()
            assert (await second).status == 200
            assert peer.connections == 1

    asyncio.run(scenario())


def test_a_read_is_sent_without_permission() -> None:
    async def scenario() -> None:
        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            writer.write(OK)

        async with scripted(script) as (url, _), carried(url) as transport:
            asked = Request(method="GET", path="/x", may_send=lambda: False)
            assert (await transport.send(asked, timeout=20)).status == 200

    asyncio.run(scenario())
