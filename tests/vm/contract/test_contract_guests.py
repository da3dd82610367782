"""Tests the driver contract: commands, logs and ports of running guests. The same for each driver."""

import asyncio
import sys
from pathlib import Path

import pytest
from tests.vm.contract.offers import FLOOD, NAME, Capability, Command, DriverHarness
from tests.vm.contract.running import Run, need, until, up

from runyard.vm.contract import ExecSession, Stream, TerminalSize, Unreachable, VmState

FLAT = 24 << 20  # bytes by which this process may grow while 100 MB pass


async def output(session: ExecSession) -> bytes:
    found = b""
    while (piece := await session.read()) is not None:
        found += piece[1]
    return found


async def log(harness: DriverHarness) -> bytes:
    return b"".join([piece async for piece in harness.driver.logs(NAME)])


def resident() -> int:
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096


def test_a_commands_output_and_exit_code_are_its_own(run: Run) -> None:
    async def scenario(harness: DriverHarness) -> None:
        await up(harness)
        async with harness.driver.exec(NAME, harness.commands[Command.ECHO]) as session:
            await session.write(b"some input\n")
            await session.close_input()
            await session.close_input()
            assert await output(session) == b"some input\n"
            assert await session.wait() == 7
            await session.write(b"too late")
            await session.resize(TerminalSize(columns=10, rows=10))

    run(scenario)


def test_output_and_errors_are_two_streams(run: Run) -> None:
    async def scenario(harness: DriverHarness) -> None:
        await up(harness)
        found = {Stream.STDOUT: b"", Stream.STDERR: b""}
        async with harness.driver.exec(NAME, harness.commands[Command.ERRORS]) as session:
            while (piece := await session.read()) is not None:
                found[piece[0]] += piece[1]
            assert await session.wait() == 0
        assert found == {Stream.STDOUT: b"out\n", Stream.STDERR: b"err\n"}

    run(scenario)


def test_a_command_that_does_not_exist_fails_and_says_so(run: Run) -> None:
    async def scenario(harness: DriverHarness) -> None:
        await up(harness)
        async with harness.driver.exec(NAME, harness.commands[Command.MISSING]) as session:
            assert b"not found" in await output(session)
            assert await session.wait() != 0

    run(scenario)


@pytest.mark.slow
def test_a_flood_passes_a_slow_reader_in_flat_memory(run: Run) -> None:
    async def scenario(harness: DriverHarness) -> None:
        await up(harness)
        before, size = resident(), 0
        async with harness.driver.exec(NAME, harness.commands[Command.FLOOD]) as session:
            most = 0
            for number in range(1_000_000):
                if number < 40:
                    await harness.clock.sleep(
                        0.01
                    )  # the command has time to fill what there is to fill
                piece = await session.read()
                if piece is None:
                    break
                size += len(piece[1])
                if number % 50 == 0:
                    most = max(most, resident() - before)
            assert (size, await session.wait()) == (FLOOD, 0)
        assert most < FLAT

    run(scenario)


def test_a_terminal_has_the_size_that_it_is_given(run: Run) -> None:
    async def scenario(harness: DriverHarness) -> None:
        need(harness, Capability.TERMINAL_SIZE)
        await up(harness)
        size = TerminalSize(columns=101, rows=33)
        async with harness.driver.exec(NAME, harness.commands[Command.SIZE], tty=size) as session:
            await says(session, b"33 101")
            await session.resize(TerminalSize(columns=77, rows=22))
            await session.write(b"a line\n")
            await says(session, b"22 77")
            await session.close_input()
            await output(session)
            assert await session.wait() == 0

    run(scenario)


async def says(session: ExecSession, words: bytes) -> None:
    found = b""
    while words not in found:
        piece = await session.read()
        assert piece is not None and piece[0] is Stream.STDOUT, found
        found += piece[1]


def test_a_command_whose_session_is_left_ends(run: Run) -> None:
    async def scenario(harness: DriverHarness) -> None:
        await up(harness)
        async with harness.driver.exec(NAME, harness.commands[Command.STAY]) as session:
            piece = await session.read()
            assert piece is not None
        pid = piece[1].decode().strip()
        if pid == "0":  # a simulated program: leaving its session has cancelled it
            return
        look = ("sh", "-c", f"kill -0 {pid} 2>/dev/null && echo alive; true")
        async with harness.clock.timeout(30):
            while True:
                async with harness.driver.exec(NAME, look) as session:
                    if not await output(session):
                        return

    run(scenario)


def test_a_guest_that_does_not_run_is_unreachable(run: Run) -> None:
    async def scenario(harness: DriverHarness) -> None:
        with pytest.raises(Unreachable):
            async with harness.driver.exec("absent", ("true",)):
                pass
        with pytest.raises(Unreachable):
            async with harness.driver.dial("absent", 80):
                pass

    run(scenario)


def test_a_port_of_the_guest_is_reached(run: Run) -> None:
    serve = (
        'import socket; s = socket.create_server(("0.0.0.0", 0)); '
        "print(s.getsockname()[1], flush=True); c = s.accept()[0]; "
        'c.sendall(c.makefile("rb").read()[::-1]); c.close()'
    )

    async def scenario(harness: DriverHarness) -> None:
        need(harness, Capability.SERVICE)
        await up(harness)
        argv = ("sh", "-c", f"exec \"${{RUNYARD_PYTHON:-{sys.executable}}}\" -I -S -c '{serve}'")
        async with harness.driver.exec(NAME, argv) as session:
            piece = await session.read()
            assert piece is not None
            async with harness.driver.dial(NAME, int(piece[1])) as link:
                await link.write(b"abc")
                await link.close_write()
                assert await link.read(10) == b"cba"
                assert await link.read(10) == b""
            assert await session.wait() == 0

    run(scenario)


def test_a_port_that_nothing_serves_is_unreachable(run: Run) -> None:
    async def scenario(harness: DriverHarness) -> None:
        need(harness, Capability.SERVICE)
        await up(harness)
        with pytest.raises(Unreachable):
            async with harness.driver.dial(NAME, 9):
                pass

    run(scenario)


def test_a_log_stays_after_the_vm_was_deleted_until_it_is_forgotten(run: Run) -> None:
    async def scenario(harness: DriverHarness) -> None:
        await up(harness)
        written = harness.write_log(NAME)
        async with harness.clock.timeout(30):
            while written not in await log(harness):
                await harness.clock.sleep(0.05)
        await harness.driver.stop(NAME, grace=0)
        await harness.driver.delete(NAME)
        harness.driver = harness.reopened()
        assert written in await log(harness)
        for _ in range(2):
            await harness.driver.forget(NAME)
        assert await log(harness) == b""

    run(scenario)


def test_a_log_is_followed_to_the_end_of_the_vm(run: Run) -> None:
    async def scenario(harness: DriverHarness) -> None:
        await up(harness)
        found = bytearray()
        received = asyncio.Event()

        async def follow() -> None:
            async for piece in harness.driver.logs(NAME, follow=True):
                found.extend(piece)
                received.set()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(follow())
            harness.write_log(NAME)
            async with harness.clock.timeout(30):
                await received.wait()
            await harness.driver.stop(NAME, grace=30)
        assert bytes(found) == await log(harness)
        ended = await until(harness, lambda vm: vm is not None)
        assert ended is not None and ended.state is VmState.EXITED

    run(scenario)
