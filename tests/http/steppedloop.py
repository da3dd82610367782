"""An event loop with real sockets whose time a test moves ahead, so that no test waits for a deadline."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

TURNS = 40  # rounds of the loop after each step: more than any reaction to a timer takes


class SteppedLoop(asyncio.SelectorEventLoop):
    """The machine's time, plus what a test has added."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


def run_stepped(main: Callable[["SteppedLoop"], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario on a loop of this kind."""
    with asyncio.Runner(loop_factory=SteppedLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, SteppedLoop)
        runner.run(main(loop))


async def turn() -> None:
    """Let everything react that is ready; no time passes."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def step(seconds: float) -> None:
    """Move the time ahead; timers that are due then run."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SteppedLoop)
    loop.ahead += seconds
    await turn()


async def until(true: Callable[[], bool]) -> None:
    """Wait for something that needs no time of the loop, such as a thread of the store."""
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0)


class Client:
    """A connection to the server that sends what a test tells it to send."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.got = b""
        self._reading = asyncio.ensure_future(self._read(reader))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            while part := await reader.read(1 << 16):
                self.got += part

    def send(self, text: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(text)

    @property
    def status(self) -> int:
        """The status of the answer; 0 while there is none, 100 once the server reads the body."""
        heads = [part for part in self.got.split(b"\r\n\r\n") if part.startswith(b"HTTP/1.1 ")]
        return int(heads[-1].split()[1]) if heads else 0

    async def answered(self) -> int:
        await until(lambda: self.status > 100)
        return self.status

    async def close(self) -> None:
        self._writer.transport.abort()
        await self._reading


@contextlib.asynccontextmanager
async def connections(port: int) -> AsyncIterator[Callable[[], Coroutine[Any, Any, Client]]]:
    """Opens connections, and closes them at the end."""
    opened: list[Client] = []

    async def connect() -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", port))
        opened.append(client)
        return client

    try:
        yield connect
    finally:
        for client in opened:
            await client.close()
