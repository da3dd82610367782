"""Runs `runyard sim`: one run, many runs in a few processes, or a named incident."""

import multiprocessing
import queue
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any, TextIO

import click
import msgspec

from runyard.cli.child_processes import end_with_parent
from runyard.sim.faults import parse
from runyard.sim.report import Outcome
from runyard.sim.run import Stage, replay
from runyard.sim.scenarios.catalogue import BY_NAME
from runyard.sim.scenarios.scenario import Scenario, lacking
from runyard.sim.shape import Shape

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

    from runyard.sim.fleet import Fleet

PLAIN_EVERY = 5.0  # seconds of real time between two lines of progress


class SimOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to run, as the flags say it."""

    seed: int
    hours: float
    faults: str
    hosts: int
    jobs_per_day: float
    scenario: str | None
    without: str | None
    seeds: int | None
    workers: int


def run(options: SimOptions, *, as_json: bool, trace: TextIO | None, demo: bool) -> bool:
    """Run the simulation; returns whether all invariants held."""
    if options.scenario is not None:
        scenario = BY_NAME[options.scenario]
        return _play(scenario, options.seed, without=options.without, as_json=as_json, trace=trace)
    shape = Shape(
        seed=options.seed,
        hours=options.hours,
        faults=_faults(options.faults),
        hosts=options.hosts,
        jobs_per_day=options.jobs_per_day,
    )
    if options.seeds is not None:
        return _many(shape, options.seeds, workers=options.workers, as_json=as_json)
    return _one(shape, as_json=as_json, trace=trace, demo=demo)


def _faults(value: str) -> tuple[str, ...]:
    try:
        return parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--faults") from None


def _one(shape: Shape, *, as_json: bool, trace: TextIO | None, demo: bool) -> bool:
    with ExitStack() as stack:
        stage = stack.enter_context(Stage())
        began = time.perf_counter()
        progress = stack.enter_context(_progress(demo=demo, quiet=as_json))
        outcome = stage.simulate(shape, file=trace, progress=progress)
        wall = time.perf_counter() - began
    _print(outcome, wall, as_json=as_json, again=replay(shape))
    return outcome.ok


@contextmanager
def _progress(*, demo: bool, quiet: bool) -> Iterator[Any]:
    """How to show progress: a live screen, plain lines, or nothing."""
    if quiet:
        yield None
    elif demo and sys.stdout.isatty():
        from runyard.cli.sim_screen import screen

        with screen() as show:
            yield show
    else:
        yield _lines(every=1.0 if demo else PLAIN_EVERY)


def _lines(*, every: float) -> Any:
    last = time.perf_counter()

    def show(fleet: "Fleet") -> None:
        nonlocal last
        now = time.perf_counter()
        if now - last < every:
            return
        last = now
        jobs = fleet.github.jobs()
        over = sum(job.status == "completed" for job in jobs.values())
        recent = [what for _, what in fleet.story][-1:] or ["no fault"]
        clock = _clock(fleet.clock.monotonic())
        click.echo(f"  {clock}  {over} of {len(jobs)} jobs done, last: {recent[0]}", err=True)

    return show


def _play(
    scenario: Scenario, seed: int, *, without: str | None, as_json: bool, trace: TextIO | None
) -> bool:
    shapes = scenario.shapes(seed)
    again = f"runyard sim --scenario {scenario.name} --seed {seed}"
    if without is not None:
        shapes = tuple(lacking(shape, without) for shape in shapes)
        again += f" --without {without}"
    if not as_json:
        click.echo(f"{scenario.name}: {scenario.summary} ({len(shapes)} runs)")
    with Stage() as stage:
        for shape in shapes:
            began = time.perf_counter()
            outcome = stage.play(shape, scenario.play, file=trace)
            wall = time.perf_counter() - began
            if not outcome.ok or as_json:
                _print(outcome, wall, as_json=as_json, again=again)
            if not outcome.ok:
                return False
            if not as_json and len(shapes) == 1:
                for at, what in outcome.story:
                    click.echo(f"  {_clock(at)}  {what}")
    if not as_json:
        click.echo(f"{len(shapes)} runs, all invariants held")
    return True


# ── many runs ───────────────────────────────────────────────────────────────────────────────────


def _many(shape: Shape, seeds: int, *, workers: int, as_json: bool) -> bool:
    """Run `seeds` seeds, starting with the shape's, in a few processes; stops at the first failure."""
    context = multiprocessing.get_context("spawn")
    tasks: Queue[Shape | None] = context.Queue()
    results: Queue[tuple[Outcome, float]] = context.Queue()
    for number in range(shape.seed, shape.seed + seeds):
        tasks.put(msgspec.structs.replace(shape, seed=number))
    processes = [
        context.Process(target=_work, args=(tasks, results), daemon=False)
        for _ in range(min(workers, seeds))
    ]
    for worker in processes:
        tasks.put(None)
        worker.start()
    began = time.perf_counter()
    try:
        return _collect(processes, results, seeds, began, as_json=as_json)
    finally:
        for worker in processes:
            worker.terminate()
            worker.join()


def _collect(
    workers: "list[Any]",
    results: "Queue[tuple[Outcome, float]]",
    seeds: int,
    began: float,
    *,
    as_json: bool,
) -> bool:
    hours = 0.0
    for done in range(1, seeds + 1):
        outcome, wall = _next(workers, results)
        hours += outcome.simulated_seconds / 3600.0
        if as_json or not outcome.ok:
            _print(outcome, wall, as_json=as_json, again=replay(outcome.shape))
        if not outcome.ok:
            return False
        if not as_json:
            jobs, faults = outcome.counts["jobs"], outcome.counts["faults"]
            click.echo(
                f"  {done}/{seeds}  seed {outcome.shape.seed}: {jobs} jobs, {faults} faults, ok"
            )
    if not as_json:
        pace = hours / max(0.001, time.perf_counter() - began) * 60.0
        click.echo(
            f"{seeds} runs, {hours:.0f} simulated hours, all invariants held ({pace:.1f} hours a minute)"
        )
    return True


def _next(
    workers: list[BaseProcess], results: "Queue[tuple[Outcome, float]]"
) -> tuple[Outcome, float]:
    while True:
        try:
            return results.get(timeout=1.0)
        except queue.Empty:
            if not any(worker.is_alive() for worker in workers):
                raise click.ClickException("the workers ended without a result") from None


def _work(tasks: "Queue[Shape | None]", results: "Queue[tuple[Outcome, float]]") -> None:
    """One worker process: its own database server, one run after the other."""
    end_with_parent()
    try:
        with Stage() as stage:
            while (shape := tasks.get()) is not None:
                began = time.perf_counter()
                results.put((stage.simulate(shape), time.perf_counter() - began))
    except KeyboardInterrupt:
        return


# ── output ───────────────────────────────────────────────────────────────────────────────────────


def _print(outcome: Outcome, wall: float, *, as_json: bool, again: str) -> None:
    pace = outcome.simulated_seconds / 3600.0 / max(wall, 0.001) * 60.0
    if as_json:
        body = {
            "seed": outcome.shape.seed,
            "hours": outcome.shape.hours,
            "faults": outcome.shape.faults,
            "ok": outcome.ok,
            "trace": outcome.digest,
            "failure": outcome.failure,
            "code": outcome.code,
            "detail": outcome.detail,
            "simulated_seconds": outcome.simulated_seconds,
            "steps": outcome.steps,
            "counts": outcome.counts,
            "hours_per_minute": round(pace, 1),
            "replay": again,
        }
        click.echo(msgspec.json.encode(body).decode())
        return
    click.echo(f"seed {outcome.shape.seed}: {_clock(outcome.simulated_seconds)} simulated")
    click.echo(f"trace {outcome.digest} ({outcome.steps} steps)")
    for name, count in outcome.counts.items():
        click.echo(f"  {name:<20} {count:>9}")
    click.echo(f"{pace:.1f} simulated hours a minute")
    if outcome.ok:
        click.echo("all invariants held, and the fleet is at rest")
    else:
        click.echo(f"FAILED: {outcome.failure}")
        click.echo(f"repeat it: {again}")


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{rest:02d}"
