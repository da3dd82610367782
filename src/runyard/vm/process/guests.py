"""Reaches into a running guest of the process driver: commands, and connections to its ports.

Both go through the program `session.py`. Over a pair of sockets it passes on what the guest answers, and notices if
this process is killed: then it ends, and the command with it.
"""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from runyard.clock import Clock
from runyard.vm import connections
from runyard.vm.contract import (
    Connection,
    ExecSession,
    TerminalSize,
    Unreachable,
)
from runyard.vm.process.layout import VmDirectory
from runyard.vm.sessions import program_session
from runyard.vm.shim.control import ENV, program_argv
from runyard.vm.shim.directory import ShimState

_PROGRAM = "runyard.vm.process.session"
_TIMEOUT = 30.0  # for the guest's first answer


def session_argv(directory: VmDirectory, request: dict[str, Any], *, answers: str) -> list[str]:
    """The command that carries out a request in a guest."""
    words = (str(directory.state), answers, json.dumps(request))
    return program_argv(_PROGRAM, *words)


def command_argv(directory: VmDirectory) -> list[str]:
    """The command that, followed by words, runs them in the guest and passes input and output on."""
    return program_argv(_PROGRAM, str(directory.state), "--")


@contextlib.asynccontextmanager
async def run_command(
    directory: VmDirectory, argv: tuple[str, ...], *, tty: TerminalSize | None, clock: Clock
) -> AsyncIterator[ExecSession]:
    """Runs a command in the guest as its job's user; raises `Unreachable`."""
    request = {"argv": list(argv), "tty": tty is not None}
    async with _asked(directory, request, tty=tty, clock=clock) as (session, answers):
        link, _ = await _first_answer(directory, answers, clock)
        assert link is None
        yield session


@contextlib.asynccontextmanager
async def connect(directory: VmDirectory, port: int, *, clock: Clock) -> AsyncIterator[Connection]:
    """Connects to a port of the guest, in its own network; raises `Unreachable`."""
    async with _asked(directory, {"port": port}, tty=None, clock=clock) as (_, answers):
        link, text = await _first_answer(directory, answers, clock)
    if link is None:
        raise Unreachable(f"{directory.name} gave no connection: {text}")
    async with connections.over(link) as connection:
        yield connection


@contextlib.asynccontextmanager
async def _asked(
    directory: VmDirectory, request: dict[str, Any], *, tty: TerminalSize | None, clock: Clock
) -> AsyncIterator[tuple[ExecSession, socket.socket]]:
    if directory.shim_state() is not ShimState.RUNNING:
        raise Unreachable(f"{directory.name} does not run")
    ours, theirs = socket.socketpair()
    with ours:
        ours.setblocking(False)
        with theirs:
            argv = session_argv(directory, request, answers=str(theirs.fileno()))
            opened = program_session(
                argv, clock=clock, tty=tty, env=ENV, handles=(theirs.fileno(),)
            )
            async with contextlib.AsyncExitStack() as stack:
                session = await stack.enter_async_context(opened)
                theirs.close()
                yield session, ours


async def _first_answer(
    directory: VmDirectory, answers: socket.socket, clock: Clock
) -> tuple[socket.socket | None, str]:
    """What the guest answers first, with the connection that it passes; raises `Unreachable`."""
    try:
        async with clock.timeout(_TIMEOUT):
            await _readable(answers)
            data, handles, _, _ = socket.recv_fds(answers, 65536, 1)
    except TimeoutError:
        raise Unreachable(
            f"{directory.name} did not answer within {_TIMEOUT:g} s: its guest may be stopped or overloaded"
        ) from None
    link = socket.socket(fileno=handles[0]) if handles else None
    words = data.splitlines()
    answer = msgspec.json.decode(words[0], type=dict[str, Any]) if words else {}
    if "error" in answer or not words:
        why = answer.get("error", "its guest has ended")
        raise Unreachable(f"{directory.name} cannot be reached: {why}")
    return link, data.decode(errors="replace")


async def _readable(link: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    there = asyncio.Event()
    loop.add_reader(link, there.set)
    try:
        await there.wait()
    finally:
        loop.remove_reader(link)
