"""Tests reading a program's output by line: what floods, hangs, stands still or ignores signals is ended.

Where the stall time matters, the clock advances by each wait at once, so no test depends on the machine's speed.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.proc_harness import SLEEP, Witness, witness

from runyard.clock import RealClock
from runyard.procgroup import ProgramMissing, SignalSteps, Stalled, TooLong
from runyard.proclines import Line, Lines, Stall, bytes_on_disk, stream

__all__ = ["witness"]

CLOCK = RealClock()
FAST: SignalSteps = ((signal.SIGINT, 0.05), (signal.SIGTERM, 0.05))
ENV = {"PATH": os.environ["PATH"]}


def python(script: str) -> tuple[str, ...]:
    return ("python3", "-I", "-S", "-c", script)


async def texts(lines: Lines) -> list[str]:
    return [line.text async for line in lines]


def collect(script: str, **options: object) -> tuple[list[Line], int]:
    async def scenario() -> tuple[list[Line], int]:
        settings = {"clock": CLOCK, "env": ENV, "steps": FAST, **options}
        async with stream(("sh", "-c", script), **settings) as lines:  # type: ignore[arg-type]  # a table of options
            found = [line async for line in lines]
        return found, lines.code

    return asyncio.run(scenario())


def do(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def test_lines_of_both_streams_and_the_exit_code_arrive() -> None:
    found, code = collect("printf '1%%\\r2%%\\n\\nlast'; exec >&-; echo oh >&2; exit 3")
    assert [line.text for line in found if not line.error] == ["1%", "2%", "last"]
    assert [line.text for line in found if line.error] == ["oh"]
    assert code == 3


def test_a_line_arrives_while_the_program_runs() -> None:
    async def scenario() -> None:
        script = f"echo first; {SLEEP}"
        async with stream(("sh", "-c", script), clock=CLOCK, steps=FAST) as lines:
            assert await anext(lines) == Line("first")

    do(scenario())


def test_the_end_of_a_line_beyond_the_limit_is_dropped() -> None:
    found, _ = collect("head -c 3000000 /dev/zero | tr '\\0' x; echo; echo after", limit=100)
    assert [line.text for line in found] == ["x" * 100, "after"]


def test_bytes_that_are_no_text_are_replaced() -> None:
    found, _ = collect("printf 'a\\377b\\n'")
    assert found == [Line("a�b")]


def test_a_flood_waits_for_its_reader_and_loses_nothing() -> None:
    async def scenario() -> None:
        async with stream(("seq", "200000"), clock=CLOCK) as lines:
            first = await anext(lines)
            for _ in range(50):
                await asyncio.sleep(0)
            # What one read may return, 256 KiB: a program fills its pipe again while it is being read.
            assert len(lines._group.lines) < 50_000
            found = [first.text, *await texts(lines)]
        assert found == [str(number) for number in range(1, 200_001)]

    do(scenario())


def test_a_flood_that_is_left_early_is_ended(witness: Witness) -> None:
    async def scenario() -> None:
        argv = ("sh", "-c", 'exec 9>"$WITNESS"; yes')
        async with stream(argv, clock=CLOCK, env=witness.environment(), steps=FAST) as lines:
            await anext(lines)

    do(scenario())
    witness.all_gone()


class Ticking(RealClock):
    """Each wait passes at once; `tick` happens with it."""

    def __init__(self, tick: Callable[[int], None] = lambda _: None) -> None:
        self.time, self.ticks, self._tick = 0.0, 0, tick

    def monotonic(self) -> float:
        return self.time

    def timeout(self, seconds: float) -> asyncio.Timeout:
        self.time += seconds
        self.ticks += 1
        self._tick(self.ticks)
        return asyncio.timeout(0.002)


def test_a_program_that_says_nothing_is_ended_with_the_grandchild_that_holds_its_output(
    witness: Witness,
) -> None:
    script = f'exec 9>"$WITNESS"; echo up; (trap "" INT TERM; {SLEEP}) & {SLEEP}'
    with pytest.raises(Stalled, match=r"sh made no progress for 0\.3 s"):
        collect(script, stall=Stall(seconds=0.3), env=witness.environment())
    assert witness.all_gone() == b""


@pytest.mark.parametrize("script", ["yes 50%", f"yes 50% | head -5; {SLEEP}"])
def test_lines_that_are_no_progress_do_not_keep_a_program_alive(script: str) -> None:
    stall = Stall(seconds=0.3, advances=lambda line: line.text != "50%")
    with pytest.raises(Stalled):
        collect(script, stall=stall)


@pytest.mark.parametrize("progress", [True, False])
def test_only_progress_keeps_a_program_alive_for_longer_than_the_stall_time(
    *, progress: bool
) -> None:
    async def scenario() -> int:
        clock, count = Ticking(), 0
        stall = Stall(seconds=300, advances=lambda _: progress)
        async with stream(("seq", "8"), clock=clock, stall=stall) as lines:
            async for _ in lines:
                clock.time += 200
                count += 1
        return count

    if progress:
        assert asyncio.run(scenario()) == 8
    else:
        with pytest.raises(Stalled):
            asyncio.run(scenario())


def test_growth_on_disk_keeps_a_silent_program_alive_until_it_ends(tmp_path: Path) -> None:
    folder = tmp_path / "pulled"
    folder.mkdir()

    def grow(tick: int) -> None:
        if tick <= 30:
            (folder / str(tick)).write_bytes(b"x" * 9000)

    clock = Ticking(grow)
    with pytest.raises(Stalled):
        collect(
            SLEEP,
            clock=clock,
            stall=Stall(seconds=300, growing=(folder, tmp_path / "absent")),
        )
    assert 30 * 30 + 300 <= clock.time <= 30 * 30 + 400


def test_without_growth_a_silent_program_is_ended_after_the_stall_time() -> None:
    clock = Ticking()
    with pytest.raises(Stalled):
        collect(SLEEP, clock=clock, stall=Stall(seconds=300))
    assert 300 <= clock.time < 400


def test_a_sparse_file_counts_as_what_was_written(tmp_path: Path) -> None:
    with (tmp_path / "disk.img").open("wb") as file:
        file.truncate(1 << 30)
    assert bytes_on_disk((tmp_path,)) < 1 << 20


def test_the_deadline_ends_a_program_that_advances_for_ever(witness: Witness) -> None:
    script = 'exec 9>"$WITNESS"; while :; do echo line; done'
    with pytest.raises(TooLong, match=r"sh did not end within 0\.1 s"):
        collect(script, timeout=0.1, stall=Stall(seconds=60), env=witness.environment())
    witness.all_gone()


def test_a_silent_program_meets_its_deadline() -> None:
    with pytest.raises(TooLong):
        collect(SLEEP, timeout=0.05)


def ignoring_script(ignored: str) -> tuple[str, ...]:
    """A program that writes which signals reach it, and ignores some of them."""
    return python(f"""
import os, signal, sys, time
def on(number, frame):
    os.write(9, (signal.Signals(number).name + " ").encode())
    if signal.Signals(number).name not in {ignored.split()!r}:
        sys.exit(0)
os.dup2(os.open(os.environ["WITNESS"], os.O_WRONLY), 9)
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, on)
print("up", flush=True)
while True:
    time.sleep(1000)
""")


@pytest.mark.parametrize(
    ("ignored", "expected"),
    [
        pytest.param("", b"SIGINT ", id="ends on INT"),
        pytest.param("SIGINT", b"SIGINT SIGTERM ", id="ends on TERM"),
        pytest.param("SIGINT SIGTERM", b"SIGINT SIGTERM ", id="is killed"),
    ],
)
def test_a_program_is_asked_before_it_is_killed(
    witness: Witness, ignored: str, expected: bytes
) -> None:
    async def scenario() -> None:
        last = 0.2 if "SIGTERM" in ignored else 60.0
        first = 0.2 if "SIGINT" in ignored else 60.0
        steps: SignalSteps = ((signal.SIGINT, first), (signal.SIGTERM, last))
        async with stream(
            ignoring_script(ignored), clock=CLOCK, env=witness.environment(), steps=steps
        ) as lines:
            await anext(lines)

    do(scenario())
    assert witness.all_gone() == expected


def test_cancelling_the_reader_ends_the_whole_group(witness: Witness) -> None:
    script = f'trap "" INT TERM; exec 9>"$WITNESS"; {SLEEP} & echo up; {SLEEP}'

    async def scenario() -> None:
        up = asyncio.Event()

        async def read() -> None:
            argv = ("sh", "-c", script)
            async with stream(argv, clock=CLOCK, env=witness.environment(), steps=FAST) as lines:
                async for _ in lines:
                    up.set()

        reader = asyncio.create_task(read())
        await up.wait()
        for _ in range(3):  # also while it cleans up
            reader.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await reader

    do(scenario())
    witness.all_gone()


def test_a_child_that_holds_the_output_does_not_hold_the_reader(
    witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runyard.proclines.GRACE", 0.1)
    script = f'exec 9>"$WITNESS"; (trap "" INT TERM HUP; {SLEEP}) & echo done'
    found, code = collect(script, env=witness.environment())
    assert (found, code) == ([Line("done")], 0)
    witness.all_gone()


def test_a_missing_program_is_reported() -> None:
    async def scenario() -> None:
        with pytest.raises(ProgramMissing):
            async with stream(("no-such-program",), clock=CLOCK):
                pass

    do(scenario())
