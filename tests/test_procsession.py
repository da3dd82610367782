"""Tests talking to a program, through pipes and through a terminal of its own."""

import asyncio
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.proc_harness import SLEEP, Witness, witness

from runyard.clock import RealClock
from runyard.procgroup import ProgramMissing, SignalSteps
from runyard.procsession import HELD, Session, Size, session

__all__ = ["witness"]

CLOCK = RealClock()
FAST: SignalSteps = ((signal.SIGTERM, 0.05),)
SIZE = Size(columns=90, rows=31)
BOTH = pytest.mark.parametrize("terminal", [None, SIZE], ids=["pipes", "terminal"])


def do(scenario: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scenario

    asyncio.run(bounded())


async def rest(program: Session) -> bytes:
    found = b""
    while (chunk := await program.read()) is not None:
        found += chunk[1]
    return found


async def until(program: Session, wanted: bytes) -> bytes:
    found = b""
    while wanted not in found:
        chunk = await program.read()
        assert chunk is not None, found
        found += chunk[1]
    return found


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@BOTH
def test_input_output_and_exit_code_pass(terminal: Size | None) -> None:
    async def scenario() -> None:
        argv = ("sh", "-c", 'while read line; do echo "got $line"; done; echo end; exit 7')
        async with session(argv, clock=CLOCK, terminal=terminal) as program:
            await program.write(b"one\n")
            await until(program, b"got one")
            for _ in range(2):
                await program.close_input()
            assert b"end" in await rest(program)
            assert await program.wait() == 7

    do(scenario())


def test_streams_are_told_apart_without_a_terminal() -> None:
    async def scenario() -> None:
        argv = ("sh", "-c", "echo out; echo err >&2; kill -KILL $$")
        found = {1: b"", 2: b""}
        async with session(argv, clock=CLOCK) as program:
            await program.resize(SIZE)  # nothing to resize
            while (chunk := await program.read()) is not None:
                found[chunk[0]] += chunk[1]
            assert await program.wait() == -signal.SIGKILL
        assert found == {1: b"out\n", 2: b"err\n"}

    do(scenario())


def test_the_terminal_controls_the_program_and_changes_its_size() -> None:
    async def scenario() -> None:
        script = "trap 'stty size' WINCH; stty size; : </dev/tty && echo mine; while :; do sleep 0.01; done"
        async with session(("sh", "-c", script), clock=CLOCK, terminal=SIZE, steps=FAST) as program:
            assert b"31 90" in await until(program, b"mine")
            await program.resize(Size(columns=120, rows=40))
            await until(program, b"40 120")
            # ^C reaches it as a signal: the terminal is its controlling one. It is typed until the shell ends: one
            # had no effect on a busy machine, and why is not known.
            ended = asyncio.ensure_future(program.wait())
            while not ended.done():
                await program.write(b"\x03")
                await asyncio.wait((ended,), timeout=1.0)
            assert ended.result() in (-signal.SIGINT, 128 + signal.SIGINT)

    do(scenario())


@BOTH
def test_a_flood_waits_for_its_reader(terminal: Size | None) -> None:
    async def scenario() -> None:
        argv = ("head", "-c", "20000000", "/dev/zero")
        async with session(argv, clock=CLOCK, terminal=terminal) as program:
            total = 0
            while (chunk := await program.read()) is not None:
                total += len(chunk[1])
                await asyncio.sleep(0)
                assert program._group._held <= 2 * HELD
            assert total == 20_000_000

    do(scenario())


def test_a_reader_of_input_that_is_slow_makes_the_writer_wait() -> None:
    async def scenario() -> None:
        async with session(("cat",), clock=CLOCK, steps=FAST) as program:
            await program.write(b"x" * 1000)
            writing = asyncio.ensure_future(program.write(b"y" * 5_000_000))
            for _ in range(20):
                await asyncio.sleep(0)
            assert not writing.done()
            got = 0
            while got < 5_001_000:
                chunk = await program.read()
                assert chunk is not None
                got += len(chunk[1])
            await writing

    do(scenario())


@BOTH
def test_input_of_an_ended_program_is_dropped(terminal: Size | None) -> None:
    async def scenario() -> None:
        async with session(("true",), clock=CLOCK, terminal=terminal) as program:
            await rest(program)
            assert await program.wait() == 0
            await program.write(b"x" * 1_000_000)
            await program.close_input()
            await program.resize(SIZE)

    do(scenario())


@BOTH
def test_leaving_early_ends_the_whole_group(witness: Witness, terminal: Size | None) -> None:
    async def scenario() -> None:
        script = (
            f'trap "" TERM INT HUP; exec 9>"$WITNESS"; ({SLEEP}) & echo up; {SLEEP} >/dev/null 2>&1'
        )
        async with session(
            ("sh", "-c", script),
            clock=CLOCK,
            terminal=terminal,
            env=witness.environment(),
            steps=FAST,
        ) as program:
            await until(program, b"up")

    do(scenario())
    witness.all_gone()


@BOTH
def test_being_cancelled_ends_the_whole_group(witness: Witness, terminal: Size | None) -> None:
    async def scenario() -> None:
        up = asyncio.Event()

        async def talk() -> None:
            script = f'trap "" TERM INT HUP; exec 9>"$WITNESS"; echo up; {SLEEP}'
            async with session(
                ("sh", "-c", script),
                clock=CLOCK,
                terminal=terminal,
                env=witness.environment(),
                steps=FAST,
            ) as program:
                await until(program, b"up")
                up.set()
                await program.wait()

        task = asyncio.create_task(talk())
        await up.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    do(scenario())
    witness.all_gone()


@BOTH
def test_a_child_that_holds_the_output_does_not_hold_the_reader(
    witness: Witness, terminal: Size | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runyard.procsession.GRACE", 0.1)

    async def scenario() -> None:
        script = f'exec 9>"$WITNESS"; (trap "" TERM INT HUP; {SLEEP}) & echo out'
        async with session(
            ("sh", "-c", script),
            clock=CLOCK,
            terminal=terminal,
            env=witness.environment(),
            steps=FAST,
        ) as program:
            assert b"out" in await rest(program)
            assert await program.wait() == 0

    do(scenario())
    witness.all_gone()


@BOTH
def test_a_missing_program_is_reported_and_leaves_no_open_file(terminal: Size | None) -> None:
    async def scenario() -> None:
        before = open_files()
        with pytest.raises(ProgramMissing, match="no-such-program was not found"):
            async with session(("no-such-program",), clock=CLOCK, terminal=terminal):
                pass
        assert open_files() == before

    do(scenario())
