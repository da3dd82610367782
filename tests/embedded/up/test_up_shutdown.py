"""A shutdown, requested at any time and any number of times, is quick and leaves no component and no VM."""

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.embedded.up.upworld import (
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
    pytest.mark.skipif(not HAS_PROC, reason="looks for processes in /proc"),
]
# Neither it nor what it starts ends when it is asked to.
STUBBORN = "trap '' TERM INT HUP; (trap '' TERM INT HUP; while :; do sleep 1; done) & while :; do sleep 1; done"


def each(*marks: Any) -> Callable[[Any], Any]:
    def marked(test: Any) -> Any:
        for mark in marks:
            test = mark(test)
        return test

    return marked


# The order of things, without processes


def play(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE):
            await scenario()

    asyncio.run(bounded())


def test_work_is_given_up_when_the_end_is_asked_for_and_tidies_up_first() -> None:
    tidied = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            tidied.append(1)

    async def scenario() -> None:
        shutdown = Shutdown()
        asyncio.get_running_loop().call_soon(shutdown.ask)
        with pytest.raises(ShutdownRequested):
            await unless(shutdown.begun, work())
        assert tidied == [1]

    play(scenario)


def test_work_that_is_done_is_not_given_up() -> None:
    async def work() -> str:
        return "done"

    async def scenario() -> None:
        assert await unless(asyncio.Event(), work()) == "done"

    play(scenario)


def test_patience_ends_with_its_time_and_with_a_hurry() -> None:
    async def scenario() -> None:
        clock, shutdown = RealClock(), Shutdown()
        for_ever = asyncio.Event()
        assert not await within_deadline(
            for_ever.wait(), clock=clock, within=0.01, shutdown=shutdown
        )
        shutdown.ask()
        assert not shutdown.hurried.is_set()
        asyncio.get_running_loop().call_soon(shutdown.ask)
        assert not await within_deadline(
            for_ever.wait(), clock=clock, within=3600.0, shutdown=shutdown
        )

    play(scenario)


def test_an_end_that_has_begun_is_carried_through_although_it_is_cancelled() -> None:
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
def test_a_second_interrupt_hurries_and_leaves_no_vm_behind() -> None:
    with machine() as up:
        busy(up, 1)
        up.process.send_signal(signal.SIGINT)
        up.says("stopping")
        up.process.send_signal(signal.SIGINT)
        ended_without_a_trace(up)
        assert up.took < 10.0


@each(*real)
def test_impatience_beyond_measure_changes_nothing() -> None:
    with machine() as up:
        busy(up, 1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            up.process.send_signal(number)
        ended_without_a_trace(up)


@each(*real)
@pytest.mark.parametrize("words", ["starting the Kubernetes API", "starting the practice GitHub"])
@pytest.mark.parametrize("signals", [[signal.SIGINT], [signal.SIGTERM], [signal.SIGINT] * 2])
def test_told_to_end_while_it_starts_it_does_so_at_once(
    words: str, signals: list[signal.Signals]
) -> None:
    with directory() as data, Up(data) as up:
        up.says(words)
        for number in signals:
            up.process.send_signal(number)
        ended_without_a_trace(up)
        assert not any(" up. Dashboard" in line for line in up.lines), "it went on starting"
        assert up.took < 10.0
        with Up(data) as again:  # and what was half made is no obstacle
            again.ready()
            assert again.interrupt() == 0


@each(*real)
def test_told_to_end_while_it_waits_for_the_orphans_of_a_killed_one() -> None:
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
def test_that_nobody_reads_what_it_says_does_not_keep_it_from_ending() -> None:
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
def test_the_vms_of_hosts_that_are_no_longer_played_end_too() -> None:
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
def test_many_hosts_with_jobs_that_do_not_listen_end_in_time() -> None:
    with machine("--hosts", "6") as up:
        busy(up, 12)
        assert len(processes_of(up.data)) > 40
        up.process.send_signal(signal.SIGINT)
        ended_without_a_trace(up)
        assert up.took < 10.0


@each(*real)
def test_scripts_are_told_in_json_where_things_are_and_how_long_the_end_took() -> None:
    with directory() as data, Up(data, "--json") as up:
        said = json.loads(up.says('"event":"up"'))
        assert set(said["urls"]) == {"kube", "server", "github", "operator", "host-1"}
        assert json.loads((data / "urls.json").read_text()) == said["urls"]
        ports = json.loads((data / "ports.json").read_text())
        assert all(url.endswith(f":{ports[name]}") for name, url in said["urls"].items())
        up.process.send_signal(signal.SIGINT)
        assert up.finish() == 0
        last = json.loads(up.lines[-1])
        assert last["event"] == "ended" and 0 < last["took"] < 10.0
        assert all(json.loads(line)["event"] for line in up.lines)
