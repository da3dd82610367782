"""`runyard prove`: explores every reachable state of the slot state machine and checks its invariants.

This module declares the options; `proverun` runs the command. The released state machine must hold in every size; with
any one guard switched off, a violation must be found. Exit code 1 if any verdict is not the expected one.
"""

import os

import click


def _cases(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """The names, if there are cases of these names; they are loaded only when one is given."""
    if not values:
        return ()
    from runyard.sim.proof.cases import CASES

    choice = click.Choice([case.name for case in CASES])
    return tuple(choice.convert(value, param, ctx) for value in values)


@click.command()
@click.option(
    "--variant",
    "variants",
    multiple=True,
    metavar="NAME",
    callback=_cases,
    help="Run only this case; may be given more than once.",
)
@click.option("--disturbances", type=click.IntRange(0, 4), help="Number of faults that may happen.")
@click.option("--jobs", type=click.IntRange(1, 2), help="Number of jobs.")
@click.option(
    "--pods", type=click.IntRange(1, 2), help="Number of Pods that exist at the same time."
)
@click.option("--limit", type=click.IntRange(1, 2), help="The tenant's budget, in runners.")
@click.option(
    "--processes",
    type=click.IntRange(1, 64),
    default=lambda: min(2, os.cpu_count() or 1),
    help="Number of cases explored in parallel.  [default: 2]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the reports as JSON.")
@click.option("--verbose", is_flag=True, help="Print the shortest counterexample of every case.")
def prove(
    variants: tuple[str, ...],
    disturbances: int | None,
    jobs: int | None,
    pods: int | None,
    limit: int | None,
    processes: int,
    as_json: bool,
    verbose: bool,
) -> None:
    """Explore every reachable state of the slot state machine and check its invariants.

    Without options it checks the released state machine in several sizes, where all invariants must hold, and the state
    machine with one guard switched off at a time, where a violation must be found. With a size (--jobs, --pods,
    --limit, --disturbances) and no --variant it checks the released state machine in that size only.

    \b
    runyard prove                                  all cases
    runyard prove --variant NAME --verbose         one case, with its shortest counterexample
    runyard prove --jobs 2 --pods 1 --limit 1 --disturbances 2

    Exit codes: 0 every verdict is the expected one, 1 one is not, 2 wrong usage.
    """
    from runyard.cli.proverun import run

    asked = {"disturbances": disturbances, "jobs": jobs, "pods": pods, "limit": limit}
    sizes = {name: value for name, value in asked.items() if value is not None}
    if not run(variants, sizes, processes=processes, as_json=as_json, verbose=verbose):
        click.get_current_context().exit(1)
