"""Runs `runyard xcresult attachments`, `coverage` and `verify`."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec

from runyard.cli.xcresultinput import BadBundle, bundle, deliver, name_of, read_in
from runyard.cli.xcresultpaint import json_bytes, text_bytes
from runyard.text import harmless
from runyard.xcresult.bundle.choosing import Chosen, similar, unmatched
from runyard.xcresult.bundle.directory import Directory
from runyard.xcresult.bundle.exporting import MANIFEST, Manifest, export
from runyard.xcresult.bundle.verifying import Verification
from runyard.xcresult.bundle.verifying import verify as verified
from runyard.xcresult.formats import words
from runyard.xcresult.formats.coverage import MAPPED, Format, render_coverage
from runyard.xcresult.formats.sources import Sources
from runyard.xcresult.reader.coverage.model import Coverage
from runyard.xcresult.reader.coverage.reading import read_all_coverage
from runyard.xcresult.reader.model import Result, Wanted

_NAMED = 3
"""Files that a message names."""


def attachments(path: str, chosen: Chosen, *, to: Path, as_json: bool, processes: int) -> None:
    """Export the chosen attachments, and print the manifest or a summary of it."""
    with bundle(path) as directory:
        result = read_in(directory, path, processes=processes)
        _refuse_unmatched(chosen, result, path)
        with _bar(result, name_of(path)) as progress:
            manifest = export(Directory(directory), result, to, chosen=chosen, progress=progress)
    if as_json:
        deliver([json_bytes(manifest)], None)
    else:
        _tell_manifest(manifest, to)


def _refuse_unmatched(chosen: Chosen, result: Result, path: str) -> None:
    """Refuse a name that selects no test before anything is written: it is a mistake, not a wish for no files."""
    for name in unmatched(chosen, result.cases):
        found = similar(name, result.cases)
        fix = f"Did you mean {' or '.join(found)}?" if found else "Name a test as Suite/test()."
        raise BadBundle(
            harmless(
                f"{name_of(path)}: --test {words.line_of(name)} matches no test."
                f" {words.line_of(fix, 1000)} `runyard xcresult show` lists all tests"
            )
        )


def _tell_manifest(manifest: Manifest, to: Path) -> None:
    summary = (
        f"{words.count(manifest.files, 'attachment')} of {words.count(len(manifest.tests), 'test')},"
        f" {manifest.size} bytes: {to / MANIFEST}\n"
    )
    deliver([text_bytes(summary)], None)
    for missed in manifest.missed:
        summary = words.line_of(f"not exported: {missed.name} of {missed.test}: {missed.why}")
        click.echo(harmless(summary), err=True)


@contextmanager
def _bar(result: Result, name: str) -> Iterator[Callable[[int], None] | None]:
    if not sys.stderr.isatty():
        yield None
        return
    sizes = {
        attachment.payload_id: attachment.size
        for case in result.cases
        for run in case.runs
        for attachment in run.attachments
        if attachment.present
    }
    from rich.console import Console  # only a terminal needs them
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(harmless(name), total=sum(sizes.values()))
        yield lambda count: progress.advance(task, count)


def coverage(path: str, *, form: Format, sources: Sources, output: Path | None) -> None:
    """Print which lines the tests ran, in that format."""
    with bundle(path) as directory:
        result = read_in(directory, path, wanted=Wanted(logs=False))
        found = read_all_coverage(Directory(directory), result.actions)
        began = next(
            (action.started for action in result.actions if action.started is not None), 0.0
        )
        pieces = render_coverage(found or Coverage(), form, sources=sources, timestamp=began)
        deliver((text_bytes(piece) for piece in pieces), output)
    if found is None:
        click.echo(f"runyard: {harmless(name_of(path))} contains no code coverage", err=True)
    elif sources.files and form in MAPPED:
        _warn_of_unmapped(found, sources)


def _warn_of_unmapped(found: Coverage, sources: Sources) -> None:
    """Say which files of the coverage are not in the repository: consumers do not find them."""
    lost = [each for each in found.source.paths() if sources.mapped(each) is None]
    if lost:
        shown = ", ".join(words.line_of(each) for each in lost[:_NAMED])
        more = f" and {len(lost) - _NAMED} more" if len(lost) > _NAMED else ""
        text = f"not files of the repository: {shown}{more}. Check --checkout, or give --root"
        click.echo(harmless(f"runyard: {text}"), err=True)


def verify(paths: tuple[str, ...], *, as_json: bool) -> bool:
    """Check every object of these bundles; whether all are intact."""
    found = []
    for path in paths:
        with bundle(path) as directory:
            found.append((name_of(path), verified(directory)))
    if as_json:
        summary = [{"good": each.good, **msgspec.to_builtins(each)} for _, each in found]
        deliver([json_bytes(*summary)], None)
    else:
        deliver((text_bytes(_verification(name, each)) for name, each in found), None)
    return all(each.good for _, each in found)


def _verification(name: str, found: Verification) -> str:
    if not found.objects:
        summary = "no object store to verify"
    elif found.good:
        summary = f"{words.count(found.objects, 'object')}, all intact"
    else:
        bad = len({each.object_id for each in found.damaged})
        summary = f"{words.count(found.objects, 'object')}, {bad} damaged"
    lines = [f"{name}: {summary}"]
    if found.root_missing and found.objects:
        lines.append("  the root object is missing: the bundle cannot be read")
    lines += [f"  {each.object_id}: {each.cause}: {each.message}" for each in found.damaged]
    if found.missing:
        lines.append(f"  {words.count(len(found.missing), 'object')} referenced but missing:")
        lines += [f"    {object_id}" for object_id in found.missing]
    return "".join(f"{line}\n" for line in lines)
