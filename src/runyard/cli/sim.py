"""`runyard sim`: simulates the whole fleet on a virtual clock, with faults, from a seed.

This module declares the options; `simrun` runs the command: one run, many runs in parallel, or a named incident. Exit
codes: 0 every invariant held and the fleet came to rest, 1 not (with the command that repeats the run), 2 the command
line was wrong.
"""

from typing import TextIO

import click

from runyard.cli import simindex
from runyard.cli.options import NumberRange

_EPILOG = "\n\n".join(
    (
        "Faults: " + ", ".join(simindex.FAULTS) + ".",
        "Scenarios, each with the guards against it:",
        *(
            f"\b\n{each.name}{' (long)' if each.long else ''}\n  {each.summary}"
            + "".join(f"\n  --without {guard}" for guard in each.guards)
            for each in simindex.SCENARIOS
        ),
    )
)


def _guard(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """The guard, if there is one of that name; they are loaded only when one is given."""
    if value is None:
        return None
    from runyard.sim import guard_switches

    return click.Choice(guard_switches.NAMES).convert(value, param, ctx)


@click.command(epilog=_EPILOG)
@click.option(
    "--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Seed of the run."
)
@click.option(
    "--hours",
    type=NumberRange(min=0.0, max=24 * 365, min_open=True),
    default=1.0,
    show_default=True,
    help="Simulated hours with jobs and faults; a quiet period follows them.",
)
@click.option(
    "--faults",
    default="all",
    show_default=True,
    help="Faults to inject: all, none, or names from the list below, separated by commas.",
)
@click.option("--hosts", type=click.IntRange(1, 500), default=simindex.HOSTS, show_default=True)
@click.option(
    "--jobs-per-day",
    type=NumberRange(min=0.0, max=1e6),
    default=simindex.JOBS_PER_DAY,
    show_default=True,
)
@click.option(
    "--scenario",
    type=click.Choice([each.name for each in simindex.SCENARIOS]),
    help="Simulate a named incident instead; they are listed below.",
)
@click.option(
    "--without",
    callback=_guard,
    metavar="GUARD",
    help="With --scenario: switch this guard off, to see what it prevents.",
)
@click.option(
    "--seeds", type=click.IntRange(min=1), help="Run this many seeds, starting with --seed."
)
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=2,
    show_default=True,
    help="With --seeds: number of processes that share the seeds.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each run.")
@click.option("--trace", type=click.File("w"), help="Write every step of the run to this file.")
@click.option("--demo", is_flag=True, help="Show the fleet live in the terminal.")
@click.pass_context
def sim(
    ctx: click.Context,
    *,
    seed: int,
    hours: float,
    faults: str,
    hosts: int,
    jobs_per_day: float,
    scenario: str | None,
    without: str | None,
    seeds: int | None,
    workers: int,
    as_json: bool,
    trace: TextIO | None,
    demo: bool,
) -> None:
    """Simulate the whole fleet on a virtual clock, with faults. The same seed gives the same run.

    \b
    runyard sim --seed 1 --hours 2 --demo          watch two simulated hours in the terminal
    runyard sim --seeds 100 --hours 1              simulate 100 seeds; stops at the first failure
    runyard sim --seed 4711 --hours 1              repeat the run of that seed
    runyard sim --scenario database-outage         replay a named incident
    runyard sim --scenario stop-reports-lost --without pods_against_slots

    Exit codes: 0 every invariant held and the fleet came to rest, 1 not (prints the command that repeats the run),
    2 wrong usage.
    """
    if seeds is not None and (trace is not None or demo or scenario is not None):
        raise click.UsageError("--seeds cannot be combined with --trace, --demo or --scenario")
    if without is not None and scenario is None:
        raise click.UsageError("--without needs --scenario")
    from runyard.cli.simrun import SimOptions, run

    options = SimOptions(
        seed=seed,
        hours=hours,
        faults=faults,
        hosts=hosts,
        jobs_per_day=jobs_per_day,
        scenario=scenario,
        without=without,
        seeds=seeds,
        workers=workers,
    )
    ctx.exit(0 if run(options, as_json=as_json, trace=trace, demo=demo) else 1)
