"""Runs one simulation from its seed to its verdict.

    start the fleet ─▶ work and faults for so many hours ─▶ no more of either ─▶ idle, or not

The verdict is *at rest*: everything that was started has ended, everything that was claimed was released.
A failure before that (a violated invariant, a component that died, a deadlock) ends the run with its reason; the
outcome has the command for the same run again.
"""

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Self, TextIO

from runyard.db import migrate
from runyard.embedded.github.identity import KeyPair, generate_key_pair
from runyard.embedded.postgres.databases import create_database, drop_database
from runyard.embedded.postgres.provide import provide
from runyard.sim.faults import Schedule
from runyard.sim.fleet import Fleet
from runyard.sim.liveness import not_at_rest
from runyard.sim.loop import SimulationError, run_virtual
from runyard.sim.report import Outcome, summary
from runyard.sim.shape import Shape
from runyard.sim.trace import Trace
from runyard.sim.violations import Violated, Violation
from runyard.sim.workload import Workload

KEPT_LINES = 200
REST_EVERY = 20.0
REST_LOOKS = 3  # consecutive checks, so that a moment between two steps does not count
Play = Callable[[Fleet], Awaitable[None]]
Progress = Callable[[Fleet], None]


class Stage:
    """What the runs of one command share: a database server with a migrated template, and a key.

    Use it as a context manager; it leaves nothing behind, also when it is interrupted.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._runs = 0
        self.key: KeyPair | None = None
        self.conninfo = ""
        self._directory = Path()
        self._template = f"runyard_sim_template_{os.getpid()}"

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            folder = tempfile.TemporaryDirectory(prefix="runyard-sim-", ignore_cleanup_errors=True)
            self._directory = Path(stack.enter_context(folder))
            self.conninfo = stack.enter_context(
                provide(self._directory / "postgres", durable=False)
            )
            migrate.apply(create_database(self.conninfo, self._template))
            stack.callback(drop_database, self.conninfo, self._template)
            self.key = generate_key_pair()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def play(
        self,
        shape: Shape,
        play: Play,
        *,
        file: TextIO | None = None,
        progress: Progress | None = None,
    ) -> Outcome:
        """Runs something on a new fleet; never raises for a failure of the fleet."""
        self._runs += 1
        name = f"runyard_sim_{os.getpid()}_{self._runs}"
        conninfo = create_database(self.conninfo, name, template=self._template)
        try:
            with tempfile.TemporaryDirectory(dir=self._directory) as folder:
                run = _Run(self, shape, play, Path(folder), conninfo, file, progress)
                return run.outcome()
        finally:
            drop_database(self.conninfo, name)

    def simulate(
        self, shape: Shape, *, file: TextIO | None = None, progress: Progress | None = None
    ) -> Outcome:
        """The standard run: work and faults, then rest."""
        return self.play(shape, usual, file=file, progress=progress)


class _Run:
    """One run."""

    def __init__(
        self,
        stage: Stage,
        shape: Shape,
        play: Play,
        directory: Path,
        conninfo: str,
        file: TextIO | None,
        progress: Progress | None,
    ) -> None:
        self._stage = stage
        self._shape = shape
        self._play = play
        self._directory = directory
        self._conninfo = conninfo
        self._file = file
        self._progress = progress
        self._fleet: Fleet | None = None

    def outcome(self) -> Outcome:
        """Runs it, and returns its outcome."""
        failure, reason = "", None
        try:
            run_virtual(self._main(), seed=self._shape.seed)
        except* SimulationError as errors:
            first = _first(errors)
            failure = _text(first)
            reason = first.reason if isinstance(first, Violation) else None
        if self._fleet is None:
            return Outcome(shape=self._shape, failure=failure or "nothing was started")
        self._fleet.close()
        return summary(self._fleet, failure, reason)

    async def _main(self) -> None:
        loop_time = asyncio.get_running_loop().time
        trace = Trace(loop_time, keep=KEPT_LINES, file=self._file)
        assert self._stage.key is not None
        self._fleet = fleet = Fleet(
            self._shape,
            conninfo=self._conninfo,
            directory=self._directory,
            key=self._stage.key,
            trace=trace,
        )
        async with asyncio.TaskGroup() as tasks:
            await fleet.start(tasks)
            # Always, even without a display: a task more or less would make it another run.
            fleet.background(self._show(fleet, self._progress or _no_display), "progress")
            await self._play(fleet)
            fleet.stop()

    async def _show(self, fleet: Fleet, progress: Progress) -> None:
        while True:
            progress(fleet)
            await fleet.clock.sleep(REST_EVERY)


def _no_display(_: Fleet) -> None:
    """Shows nothing."""


async def usual(fleet: Fleet) -> None:
    """Work and faults for the shape's hours, then quiet, then rest."""
    workload = Workload(fleet)
    schedule = Schedule(fleet)
    tasks = [
        fleet.background(workload.push(), "users push"),
        fleet.background(workload.roll(), "users roll"),
        fleet.background(workload.scale(), "users scale"),
    ]
    schedule.start()
    await fleet.clock.sleep(fleet.shape.hours * 3600.0)
    for task in tasks:
        task.cancel()
    schedule.heal()
    await rest(fleet)


async def rest(fleet: Fleet) -> None:
    """Waits until the fleet is at rest; too long is a violation."""
    fleet.report("no more work, no more faults")
    began = fleet.clock.monotonic()
    quiet = 0
    while quiet < REST_LOOKS:
        left = not_at_rest(fleet)
        quiet = 0 if left else quiet + 1
        if left and fleet.clock.monotonic() - began > fleet.shape.quiet_limit:
            text = "\n  ".join(left[:20])
            late = Violated.NOT_AT_REST.because(seconds=fleet.shape.quiet_limit)
            raise Violation(late, note=f":\n  {text}")
        await fleet.clock.sleep(REST_EVERY)
    fleet.rest_seconds = fleet.clock.monotonic() - began
    fleet.report(f"at rest after {fleet.rest_seconds:.0f} s")


def _first(errors: BaseExceptionGroup[SimulationError]) -> BaseException:
    first: BaseException = errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first


def _text(first: BaseException) -> str:
    cause = f"\ncaused by {first.__cause__!r}" if first.__cause__ is not None else ""
    return f"{type(first).__name__}: {first}{cause}"


def replay(shape: Shape) -> str:
    """The command that replays the run."""
    usual_shape = Shape()
    words = [f"runyard sim --seed {shape.seed} --hours {shape.hours:g}"]
    words.append(f"--faults {','.join(shape.faults) or 'none'}")
    if shape.hosts != usual_shape.hosts:
        words.append(f"--hosts {shape.hosts}")
    if shape.jobs_per_day != usual_shape.jobs_per_day:
        words.append(f"--jobs-per-day {shape.jobs_per_day:g}")
    return " ".join(words)
