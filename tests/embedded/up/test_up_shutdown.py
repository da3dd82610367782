"""A shutdown, requested at any time and any number of times, is quick and leaves no component and no VM."""

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.embedded.up.upsupport import (
    HAS_PROC,
    PATIENCE,
    Up,
    directory,
    machine,
    processes_of,
    until,
)

from runyard.clock import RealClock
from runyard.embedded.up.shutdown import (
    Shutdown,
    ShutdownRequested,
    uncancelled,
    unless,
    within_deadline,
)

real = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not HAS_PROC, reason="searches for processes in /proc"),
]
# Neither it nor what it starts ends when it is asked to.
STUBBORN = "trap '' TERM INT HUP; (trap '' TERM INT HUP; while :; do sleep 1; done) & while :; do sleep 1; done"


def each(*marks: Any) -> Callable[[Any], Any]:
    def marked(test: Any) -> Any:
        for mark in marks:
            test = mark(test)
        return test

    return marked


# The order of the shutdown, without processes


def play(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE):
            await scenario()

    asyncio.run(bounded())


def test_work_is_cancelled_at_a_shutdown_and_cleans_up_first() -> None:
    tidied = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            tidied.append(1)

    async def scenario() -> None:
        shutdown = Shutdown()
        asyncio.get_running_loop().call_soon(shutdown.request)
        with pytest.raises(ShutdownRequested):
            await unless(shutdown.begun, work())
        assert tidied == [1]

    play(scenario)


def test_finished_work_is_not_cancelled() -> None:
    async def work() -> str:
        return "done"

    async def scenario() -> None:
        assert await unless(asyncio.Event(), work()) == "done"

    play(scenario)


def test_a_deadline_ends_with_its_time_and_with_a_second_request() -> None:
    async def scenario() -> None:
        clock, shutdown = RealClock(), Shutdown()
        for_ever = asyncio.Event()
        assert not await within_deadline(
            for_ever.wait(), clock=clock, within=0.01, shutdown=shutdown
        )
        shutdown.request()
        assert not shutdown.forced.is_set()
        asyncio.get_running_loop().call_soon(shutdown.request)
        assert not await within_deadline(
            for_ever.wait(), clock=clock, within=3600.0, shutdown=shutdown
        )

    play(scenario)


def test_a_shutdown_runs_to_completion_although_it_is_cancelled() -> None:
    done, begun, go_on = [], asyncio.Event(), asyncio.Event()

    async def end() -> None:
        begun.set()
        await go_on.wait()
        done.append(1)

    async def scenario() -> None:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(uncancelled(end()))
            await begun.wait()
            task.cancel()
            asyncio.get_running_loop().call_soon(go_on.set)
        assert done == [1] and task.cancelled()

    play(scenario)


# The real program


def busy(up: Up, jobs: int) -> None:
    """Starts so many jobs that do not end by themselves or on TERM."""
    numbers = [up.queue(STUBBORN, f"stubborn {number}") for number in range(jobs)]
    for number in numbers:
        up.in_state(number, "in_progress", within=2 * PATIENCE)


def ended_without_a_trace(up: Up, code: int = 0) -> None:
    assert up.finish() == code, up.errors
    left = [(seen.pid, seen.words) for seen in processes_of(up.data)]
    assert left == [], "it returned before everything had ended"
    assert up.errors == ""


@each(*real)
def test_a_second_interrupt_kills_at_once_and_leaves_no_vm() -> None:
    with machine() as up:
        busy(up, 1)
        up.process.send_signal(signal.SIGINT)
        up.prints("stopping")
        up.process.send_signal(signal.SIGINT)
        ended_without_a_trace(up)
        assert up.took < 10.0


@each(*real)
def test_many_interrupts_leave_nothing_behind() -> None:
    with machine() as up:
        busy(up, 1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            up.process.send_signal(number)
        ended_without_a_trace(up)


@each(*real)
@pytest.mark.parametrize("words", ["starting the Kubernetes API", "starting the practice GitHub"])
@pytest.mark.parametrize("signals", [[signal.SIGINT], [signal.SIGTERM], [signal.SIGINT] * 2])
def test_an_interrupt_during_the_start_ends_it_at_once(
    words: str, signals: list[signal.Signals]
) -> None:
    with directory() as data, Up(data) as up:
        up.prints(words)
        for number in signals:
            up.process.send_signal(number)
        ended_without_a_trace(up)
        assert not any(" up. Dashboard" in line for line in up.lines), "it went on starting"
        assert up.took < 10.0
        with Up(data) as again:  # and what was half made is no obstacle
            again.ready()
            assert again.interrupt() == 0


@each(*real)
def test_an_interrupt_while_it_waits_for_orphans_ends_it() -> None:
    with directory() as data, Up(data) as first:
        first.ready()
        stuck = first.pid("server")
        os.kill(
            stuck, signal.SIGSTOP
        )  # it cannot notice that its owner is gone, and keeps the lock
        first.kill()
        try:
            with Up(data) as second:
                until(lambda: _holds(second.process.pid, data / "lock"), what="its waiting")
                second.process.send_signal(signal.SIGINT)
                assert second.process.wait(PATIENCE) == 0
                assert second.finish() == 0 and second.errors == ""
        finally:
            os.kill(stuck, signal.SIGKILL)


def _holds(pid: int, path: Path) -> bool:
    """Whether that process has the file open."""
    return path in [handle.readlink() for handle in Path(f"/proc/{pid}/fd").iterdir()]


@each(*real)
def test_a_closed_output_does_not_prevent_the_shutdown() -> None:
    """`runyard up | head -1`: the pipe is closed, and it must still end all that it started."""
    with machine() as up:
        busy(up, 1)
        assert up.process.stdout is not None
        up.process.stdout.close()
        up.process.send_signal(signal.SIGINT)
        assert up.process.wait(PATIENCE) == 0
        assert processes_of(up.data) == []
        assert up.errors == ""


@each(*real)
def test_the_vms_of_removed_hosts_end_too() -> None:
    with directory() as data, Up(data, "--hosts", "2") as first:
        first.ready()
        first.install()
        busy(first, 4)
        first.kill()
        with Up(data, "--hosts", "1") as second:
            second.ready()
            assert second.interrupt() == 0
            assert processes_of(data) == []


@each(*real)
def test_many_hosts_with_jobs_that_ignore_signals_end_in_time() -> None:
    with machine("--hosts", "6") as up:
        busy(up, 12)
        assert len(processes_of(up.data)) > 40
        up.process.send_signal(signal.SIGINT)
        ended_without_a_trace(up)
        assert up.took < 10.0


@each(*real)
def test_json_output_has_the_addresses_and_the_duration_of_the_shutdown() -> None:
    with directory() as data, Up(data, "--json") as up:
        printed = json.loads(up.prints('"event":"up"'))
        assert set(printed["urls"]) == {"kube", "server", "github", "operator", "host-1"}
        assert json.loads((data / "urls.json").read_text()) == printed["urls"]
        ports = json.loads((data / "ports.json").read_text())
        assert all(url.endswith(f":{ports[name]}") for name, url in printed["urls"].items())
        up.process.send_signal(signal.SIGINT)
        assert up.finish() == 0
        last = json.loads(up.lines[-1])
        assert last["event"] == "ended" and 0 < last["took"] < 10.0
        assert all(json.loads(line)["event"] for line in up.lines)
