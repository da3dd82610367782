"""Tests how the tart driver reaches into guests, on the stand-in for tart: commands, ports, disks."""

import asyncio

import pytest
from tests.vm.tart_harness import NAME, TartHarness, run

from runyard.vm.contract import (
    DriverFailed,
    Stream,
    TerminalSize,
    Unreachable,
)

pytestmark = pytest.mark.slow  # each command of tart is a program
ROWS = TerminalSize(columns=90, rows=31)


async def output(harness: TartHarness, *argv: str, name: str = NAME) -> tuple[bytes, int]:
    found = b""
    async with harness.driver.exec(name, argv) as session:
        while (chunk := await session.read()) is not None:
            found += chunk[1]
        return found, await session.wait()


def test_a_command_in_the_guest_has_its_streams_its_code_and_its_terminal() -> None:
    async def scenario(harness: TartHarness) -> None:
        await harness.up()
        argv = ("sh", "-c", "read x; echo $x; echo e >&2; exit 9")
        async with harness.driver.exec(NAME, argv) as session:
            await session.write(b"hello\n")
            await session.close_input()
            found = {Stream.STDOUT: b"", Stream.STDERR: b""}
            while (chunk := await session.read()) is not None:
                found[chunk[0]] += chunk[1]
            assert await session.wait() == 9
        assert found == {Stream.STDOUT: b"hello\n", Stream.STDERR: b"e\n"}
        async with harness.driver.exec(NAME, ("sh", "-c", "stty size"), tty=ROWS) as session:
            chunk = await session.read()
            assert chunk is not None and chunk[0] is Stream.STDOUT and b"31 90" in chunk[1]
            assert await session.wait() == 0

    run(scenario)


@pytest.mark.parametrize("tty", [None, ROWS], ids=["pipes", "terminal"])
def test_a_guest_whose_agent_does_not_answer_is_unreachable(tty: TerminalSize | None) -> None:
    async def scenario(harness: TartHarness) -> None:
        harness.tart.set("no-agent")
        await harness.up()
        with pytest.raises(Unreachable):
            async with harness.driver.exec(NAME, ("true",), tty=tty) as session:
                while await session.read() is not None:
                    pass
        with pytest.raises(Unreachable):
            await harness.driver.disk_usage(NAME)
        await harness.driver.stop(NAME, grace=0)
        with pytest.raises(Unreachable):
            await output(harness, "true")
        assert await harness.driver.disk_usage(NAME) is None

    run(scenario)


def test_a_port_of_the_guest_is_reached_by_its_address() -> None:
    async def scenario(harness: TartHarness) -> None:
        address = (await harness.up()).address

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write((await reader.read()).upper())
            writer.close()

        server = await asyncio.start_server(serve, address, 0)
        port = server.sockets[0].getsockname()[1]
        async with server, harness.driver.dial(NAME, port) as connection:
            await connection.write(b"hello")
            await connection.close_write()
            assert await connection.read(100) == b"HELLO"
            assert await connection.read(100) == b""
        with pytest.raises(Unreachable, match=f"port {port}"):
            async with harness.driver.dial(NAME, port):
                pass

    run(scenario)


def test_a_guests_disk_is_measured_and_garbage_is_an_error() -> None:
    async def scenario(harness: TartHarness) -> None:
        await harness.up()
        usage = await harness.driver.disk_usage(NAME)
        assert usage is not None and 0 <= usage <= 100
        harness.tart.set("fail-exec", "0 garbage")
        with pytest.raises(DriverFailed, match="df"):
            await harness.driver.disk_usage(NAME)

    run(scenario)
