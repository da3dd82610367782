"""`runyard prove`: explore every reachable state of the slot machine and check its promises.

Runs the shipped machine in several sizes, which must hold, and then every guard switched off in
turn, which must be caught. The cases are independent, so they share the processors. Exit code 1 if
any verdict differs from the expectation.
"""

import gc
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed

import click
import msgspec
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from runyard.cli.children import end_with_parent
from runyard.sim.proof.cases import CASES, Case, explore, shipped
from runyard.sim.proof.explore import Outcome
from runyard.sim.proof.scene import Settings

_WIDTH = 110


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A case, what came out, and what it took."""

    case: str
    about: str
    expected: str
    found: str
    verdict: str
    states: int
    steps: int
    seconds: float  # of processor time
    violation: str
    path: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Is the outcome the expected one?"""
        return self.verdict == "ok"


def measure(case: Case) -> Report:
    """Explore one case, in whatever process this is."""
    collecting = gc.isenabled()
    gc.disable()  # millions of small values that all stay, and no cycles: nothing to find
    try:
        begun = time.process_time()
        outcome = explore(case)
        return _report(case, outcome, time.process_time() - begun)
    finally:
        if collecting:
            gc.enable()


def _report(case: Case, outcome: Outcome, seconds: float) -> Report:
    return Report(
        case=case.name,
        about=case.about,
        expected=_word(holds=case.holds),
        found=_word(holds=outcome.holds),
        verdict="ok" if case.as_expected(outcome) else "WRONG",
        states=outcome.states,
        steps=outcome.steps,
        seconds=round(seconds, 2),
        violation=outcome.violation,
        path=outcome.path,
    )


def _word(*, holds: bool) -> str:
    return "holds" if holds else "is caught"


def chosen(variants: tuple[str, ...], sizes: dict[str, int]) -> tuple[Case, ...]:
    """The cases that the options ask for."""
    if not variants and sizes:
        return (shipped(msgspec.structs.replace(Settings(disturbances=1), **sizes)),)
    cases = tuple(case for case in CASES if not variants or case.name in variants)
    return tuple(
        msgspec.structs.replace(case, settings=msgspec.structs.replace(case.settings, **sizes))
        for case in cases
    )


def reports(cases: tuple[Case, ...], processes: int) -> Iterator[Report]:
    """Explore the cases, the larger ones first, and hand out each report when it is ready."""
    if processes == 1 or len(cases) == 1:
        yield from map(measure, cases)
        return
    with ProcessPoolExecutor(max_workers=processes, initializer=end_with_parent) as pool:
        for done in as_completed([pool.submit(measure, case) for case in cases]):
            yield done.result()


@click.command()
@click.option(
    "--variant",
    "variants",
    multiple=True,
    metavar="NAME",
    type=click.Choice([case.name for case in CASES]),
    help="Run only this case; may be given more than once.",
)
@click.option("--disturbances", type=click.IntRange(0, 4), help="How many things may go wrong.")
@click.option("--jobs", type=click.IntRange(1, 2), help="How many jobs there are.")
@click.option("--pods", type=click.IntRange(1, 2), help="How many Pod positions there are.")
@click.option("--limit", type=click.IntRange(1, 2), help="The tenant's budget, in runners.")
@click.option(
    "--processes",
    type=click.IntRange(1, 64),
    default=lambda: min(2, os.cpu_count() or 1),
    help="How many cases to explore at once.  [default: 2]",
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
    """Explore every reachable state of the slot machine and check its promises.

    With no option: the shipped machine in several sizes, which must hold, and every guard switched off in turn, which
    must be caught. With a size (--jobs, --pods, --limit, --disturbances) and no --variant: the shipped machine in a
    world of that size.
    """
    asked = {"disturbances": disturbances, "jobs": jobs, "pods": pods, "limit": limit}
    sizes = {name: value for name, value in asked.items() if value is not None}
    cases = chosen(variants, sizes)
    progress = Console(stderr=True)
    found: dict[str, Report] = {}
    for report in reports(cases, processes):
        found[report.case] = report
        if not as_json:
            progress.print(
                f"{len(found)}/{len(cases)} {report.case}: {report.found},"
                f" {report.states:,} states, {report.seconds:.1f} s",
                highlight=False,
                soft_wrap=True,
            )
    told = [found[case.name] for case in cases]
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(told)).decode())
    else:
        _show(told, verbose=verbose)
    if not all(report.good for report in told):
        click.get_current_context().exit(1)


def _show(told: list[Report], *, verbose: bool) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH)  # a log has no edge to wrap at
    table = Table(title="The slot machine, explored", box=SIMPLE, pad_edge=False)
    for name in ("case", "expected", "found", "verdict"):
        table.add_column(name, overflow="fold")
    for name in ("states", "steps", "seconds"):
        table.add_column(name, justify="right", no_wrap=True)
    for report in told:
        table.add_row(
            report.case,
            report.expected,
            report.found,
            report.verdict,
            f"{report.states:,}",
            f"{report.steps:,}",
            f"{report.seconds:.1f}",
            style="" if report.good else "bold red",
        )
    console.print(table)
    for report in told:
        if report.violation and (verbose or not report.good):
            click.echo(_told_path(report))
    total = sum(report.states for report in told)
    seconds = sum(report.seconds for report in told)
    wrong = sum(1 for report in told if not report.good)
    verdict = f"{wrong} of {len(told)} cases came out WRONG" if wrong else "every case as expected"
    click.echo(f"{verdict}; {total:,} states, {seconds:.0f} s of processor time")


def _told_path(report: Report) -> str:
    lines = [f"\n{report.case}: {report.about}"]
    lines += [f"  {number:3} {step}" for number, step in enumerate(report.path, start=1)]
    lines.append(f"    → {report.violation}")
    return "\n".join(lines)
