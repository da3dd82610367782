"""`runyard sim`: the whole fleet under virtual time, with faults, from one number.

One run, many runs side by side, or a named incident. The exit code is 0 if every invariant held and the fleet
came to rest, 1 if not (with the command that shows the same run again), 2 if the command line was wrong.
"""

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

from runyard.cli.children import end_with_parent
from runyard.sim import seams
from runyard.sim.faults import KINDS, parse
from runyard.sim.report import Outcome
from runyard.sim.run import Stage, replay
from runyard.sim.scenarios.catalogue import BY_NAME
from runyard.sim.scenarios.scenario import Scenario, lacking
from runyard.sim.shape import Shape

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

    from runyard.sim.fleet import Fleet

WORKERS = 2
PLAIN_EVERY = 5.0  # seconds of real time between two lines of progress

_EPILOG = "\n\n".join(
    (
        "Faults: " + ", ".join(KINDS) + ".",
        "Scenarios, each with the guards that answer it:",
        *(
            f"\b\n{each.name}{' (long)' if each.long else ''}\n  {each.tells}"
            + "".join(f"\n  --without {guard.guard}" for guard in each.without)
            for each in BY_NAME.values()
        ),
    )
)


def _faults(_: click.Context, __: click.Parameter, value: str) -> tuple[str, ...]:
    try:
        return parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command(epilog=_EPILOG)
@click.option(
    "--seed", type=click.IntRange(min=0), default=1, show_default=True, help="The run's number."
)
@click.option(
    "--hours",
    type=click.FloatRange(min=0.0, max=24 * 365, min_open=True),
    default=1.0,
    show_default=True,
    help="Simulated hours of work and faults; the quiet time after them comes on top.",
)
@click.option(
    "--faults",
    default="all",
    show_default=True,
    callback=_faults,
    help="all, none or a comma list.",
)
@click.option("--hosts", type=click.IntRange(1, 500), default=Shape().hosts, show_default=True)
@click.option(
    "--jobs-per-day",
    type=click.FloatRange(min=0.0, max=1e6),
    default=Shape().jobs_per_day,
    show_default=True,
)
@click.option("--scenario", type=click.Choice(list(BY_NAME)), help="Play a named incident instead.")
@click.option(
    "--without",
    type=click.Choice(seams.NAMES),
    metavar="GUARD",
    help="Play the incident on a fleet that lacks this guard, to see what it is for.",
)
@click.option("--seeds", type=click.IntRange(min=1), help="Run the numbers 1 to K, two at a time.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a run on standard output.")
@click.option("--trace", type=click.File("w"), help="Write every step of the run to this file.")
@click.option("--demo", is_flag=True, help="Watch it live.")
@click.pass_context
def sim(
    ctx: click.Context,
    *,
    seed: int,
    hours: float,
    faults: tuple[str, ...],
    hosts: int,
    jobs_per_day: float,
    scenario: str | None,
    without: str | None,
    seeds: int | None,
    as_json: bool,
    trace: TextIO | None,
    demo: bool,
) -> None:
    """Run the whole fleet under virtual time, with faults, from one number."""
    shape = Shape(seed=seed, hours=hours, faults=faults, hosts=hosts, jobs_per_day=jobs_per_day)
    if seeds is not None and (trace is not None or demo or scenario is not None):
        raise click.UsageError("--seeds runs many: leave out --trace, --demo and --scenario")
    if without is not None and scenario is None:
        raise click.UsageError("--without takes a guard away from a --scenario: name one")
    if scenario is not None:
        well = _play(BY_NAME[scenario], seed, without=without, as_json=as_json, trace=trace)
    elif seeds is not None:
        well = _many(shape, seeds, as_json=as_json)
    else:
        well = _one(shape, as_json=as_json, trace=trace, demo=demo)
    ctx.exit(0 if well else 1)


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
    """How to show a run while it runs: a live picture, plain lines, or nothing."""
    if quiet:
        yield None
    elif demo and sys.stdout.isatty():
        from runyard.cli.picture import live

        with live() as show:
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
        recent = [what for _, what in fleet.story][-1:] or ["all is well"]
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
        click.echo(f"{scenario.name}: {scenario.tells} ({len(shapes)} runs)")
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
        click.echo(f"{len(shapes)} runs, all is well")
    return True


# ── many runs ───────────────────────────────────────────────────────────────────────────────────


def _many(shape: Shape, seeds: int, *, as_json: bool) -> bool:
    """Run the numbers 1 to K in a few processes; stops at the first failure."""
    context = multiprocessing.get_context("spawn")
    tasks: Queue[Shape | None] = context.Queue()
    results: Queue[tuple[Outcome, float]] = context.Queue()
    for number in range(1, seeds + 1):
        tasks.put(msgspec.structs.replace(shape, seed=number))
    workers = [
        context.Process(target=_work, args=(tasks, results), daemon=False)
        for _ in range(min(WORKERS, seeds))
    ]
    for worker in workers:
        tasks.put(None)
        worker.start()
    began = time.perf_counter()
    try:
        return _collect(workers, results, seeds, began, as_json=as_json)
    finally:
        for worker in workers:
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
                f"  {done}/{seeds}  seed {outcome.shape.seed}: {jobs} jobs, {faults} faults, well"
            )
    if not as_json:
        pace = hours / max(0.001, time.perf_counter() - began) * 60.0
        click.echo(
            f"{seeds} runs, {hours:.0f} simulated hours, all is well ({pace:.1f} hours a minute)"
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
    """One process: its own database server, one run after the other."""
    end_with_parent()
    try:
        with Stage() as stage:
            while (shape := tasks.get()) is not None:
                began = time.perf_counter()
                results.put((stage.simulate(shape), time.perf_counter() - began))
    except KeyboardInterrupt:
        return


# ── words ───────────────────────────────────────────────────────────────────────────────────────


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
        click.echo(f"see it again: {again}")


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{rest:02d}"
