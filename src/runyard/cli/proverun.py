"""Runs `runyard prove`: explores the cases in parallel processes, and prints their verdicts."""

import gc
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed

import click
import msgspec
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from runyard.cli.child_processes import end_with_parent
from runyard.sim.proof.cases import CASES, Case, explore, shipped
from runyard.sim.proof.explore import Outcome
from runyard.sim.proof.model import Settings
from runyard.wire.reasons import render

_WIDTH = 110


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A case, its verdict, and its cost."""

    case: str
    about: str
    expected: str
    found: str
    verdict: str
    states: int
    steps: int
    seconds: float  # of processor time
    violation: str
    code: str  # the violation's slug
    path: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Whether the verdict is the expected one."""
        return self.verdict == "ok"


def measure(case: Case) -> Report:
    """Explore one case in this process."""
    collecting = gc.isenabled()
    gc.disable()  # millions of small values without cycles: nothing to collect
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
        violation="" if outcome.violation is None else render(outcome.violation),
        code="" if outcome.violation is None else outcome.violation.slug,
        path=outcome.path,
    )


def _word(*, holds: bool) -> str:
    return "holds" if holds else "is caught"


def chosen(variants: tuple[str, ...], sizes: dict[str, int]) -> tuple[Case, ...]:
    """The cases selected by the options."""
    if not variants and sizes:
        return (shipped(msgspec.structs.replace(Settings(disturbances=1), **sizes)),)
    cases = tuple(case for case in CASES if not variants or case.name in variants)
    return tuple(
        msgspec.structs.replace(case, settings=msgspec.structs.replace(case.settings, **sizes))
        for case in cases
    )


def reports(cases: tuple[Case, ...], processes: int) -> Iterator[Report]:
    """Explore the cases, the larger ones first; yields each report when it is ready."""
    if processes == 1 or len(cases) == 1:
        yield from map(measure, cases)
        return
    with ProcessPoolExecutor(max_workers=processes, initializer=end_with_parent) as pool:
        for done in as_completed([pool.submit(measure, case) for case in cases]):
            yield done.result()


def run(
    variants: tuple[str, ...],
    sizes: dict[str, int],
    *,
    processes: int,
    as_json: bool,
    verbose: bool,
) -> bool:
    """Explore what was asked for; whether every case came out as expected."""
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
    results = [found[case.name] for case in cases]
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(results)).decode())
    else:
        _show(results, verbose=verbose)
    return all(report.good for report in results)


def _show(results: list[Report], *, verbose: bool) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH)  # a log file needs no wrapping
    table = Table(title="The slot state machine, explored", box=SIMPLE, pad_edge=False)
    for name in ("case", "expected", "found", "verdict"):
        table.add_column(name, overflow="fold")
    for name in ("states", "steps", "seconds"):
        table.add_column(name, justify="right", no_wrap=True)
    for report in results:
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
    for report in results:
        if report.violation and (verbose or not report.good):
            click.echo(_path_lines(report))
    total = sum(report.states for report in results)
    seconds = sum(report.seconds for report in results)
    wrong = sum(1 for report in results if not report.good)
    verdict = (
        f"{wrong} of {len(results)} cases have a WRONG verdict"
        if wrong
        else "every case as expected"
    )
    click.echo(f"{verdict}; {total:,} states, {seconds:.0f} s of processor time")


def _path_lines(report: Report) -> str:
    lines = [f"\n{report.case}: {report.about}"]
    lines += [f"  {number:3} {step}" for number, step in enumerate(report.path, start=1)]
    lines.append(f"    → {report.violation}")
    return "\n".join(lines)
