"""`runyard xcresult attachments`, `coverage` and `verify`: what is in a bundle besides the tree of its tests."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from runyard.cli.harmless import harmless
from runyard.cli.xcresultinput import (
    JSON,
    OUTPUT,
    PATH,
    PATHS,
    PROCESSES,
    bundle,
    deliver,
    name_of,
    read_in,
)
from runyard.cli.xcresultpaint import json_bytes, text_bytes
from runyard.xcresult.bundle.directory import Directory
from runyard.xcresult.bundle.exporting import MANIFEST, Chosen, Manifest, export
from runyard.xcresult.bundle.verifying import Verification
from runyard.xcresult.bundle.verifying import verify as verified
from runyard.xcresult.formats import words
from runyard.xcresult.formats.coverage import FORMATS, Format, render_coverage
from runyard.xcresult.reader.coverage.model import Coverage
from runyard.xcresult.reader.coverage.reading import read_all_coverage
from runyard.xcresult.reader.model import Result, Wanted


@click.command(short_help="Screenshots and other files, with Apple's manifest.")
@PATH
@click.option(
    "--to",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="The directory for the files; made if need be.",
)
@click.option("--only-failures", is_flag=True, help="Only attachments that belong to a failure.")
@click.option(
    "--test",
    "tests",
    multiple=True,
    metavar="ID",
    help="Only of this test (Suite/test(), Target/Suite/test()) or of all tests of this suite; may be repeated.",
)
@click.option(
    "--true-extensions",
    is_flag=True,
    help="Call pictures that are HEIC .heic; some versions of Xcode call them PNG.",
)
@JSON
@PROCESSES
def attachments(
    path: str,
    *,
    to: Path,
    only_failures: bool,
    tests: tuple[str, ...],
    true_extensions: bool,
    as_json: bool,
    processes: int,
) -> None:
    """Export screenshots, recordings and other files, with a manifest as Apple's tool writes it.

    Each file is named by its uuid; manifest.json tells test, human name, time, configuration, device,
    repetition and arguments. Attachments that share a payload are links to one file.

    What the bundle refers to but does not hold is told and is no error: tests may discard what they recorded.
    """
    chosen = Chosen(only_failures=only_failures, tests=tests, true_extensions=true_extensions)
    with bundle(path) as directory:
        result = read_in(directory, path, processes=processes)
        with _bar(result, name_of(path)) as progress:
            manifest = export(Directory(directory), result, to, chosen=chosen, progress=progress)
    if as_json:
        deliver([json_bytes(manifest)], None)
    else:
        _tell_manifest(manifest, to)


def _tell_manifest(manifest: Manifest, to: Path) -> None:
    told = (
        f"{words.count(manifest.files, 'attachment')} of {words.count(len(manifest.tests), 'test')},"
        f" {manifest.size} bytes: {to / MANIFEST}\n"
    )
    deliver([text_bytes(told)], None)
    for missed in manifest.missed:
        told = words.line_of(f"not exported: {missed.name} of {missed.test}: {missed.why}")
        click.echo(harmless(told), err=True)


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
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(harmless(name), total=sum(sizes.values()))
        yield lambda count: progress.advance(task, count)


@click.command(short_help="Which lines the tests ran.")
@PATH
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="text for people, json for scripts, cobertura and lcov for CI servers and editors.",
)
@click.option(
    "--root", default="", help="Of cobertura: name files below this directory relative to it."
)
@OUTPUT
def coverage(path: str, *, form: Format, root: str, output: Path | None) -> None:
    """Which lines of the sources the tests ran, to the count of each line.

    Totals are Apple's own, which count a closure's lines with the function around it too; lines are counted once.

    A bundle without coverage gives an empty document, and a line on stderr that says so.
    """
    with bundle(path) as directory:
        result = read_in(directory, path, wanted=Wanted(logs=False))
        found = read_all_coverage(Directory(directory), result.actions)
        began = next(
            (action.started for action in result.actions if action.started is not None), 0.0
        )
        pieces = render_coverage(found or Coverage(), form, root=root, timestamp=began)
        deliver((text_bytes(piece) for piece in pieces), output)
    if found is None:
        click.echo(f"runyard: {harmless(name_of(path))} holds no code coverage", err=True)


@click.command(short_help="Is every object what its name says?")
@PATHS
@JSON
def verify(paths: tuple[str, ...], *, as_json: bool) -> None:
    """Check every object against its content id, and name those that are damaged.

    An object's name is a hash of its content and of the objects that it points at, so a half-written upload
    shows. Objects that are pointed at and not there are listed apart: bundles are pruned of attachments and
    diagnostics on purpose.

    Exit codes: 0 all intact, 1 something is damaged, 2 this is no bundle.
    """
    found = []
    for path in paths:
        with bundle(path) as directory:
            found.append((name_of(path), verified(directory)))
    if as_json:
        told = [{"good": each.good, **msgspec.to_builtins(each)} for _, each in found]
        deliver([json_bytes(*told)], None)
    else:
        deliver((text_bytes(_verification(name, each)) for name, each in found), None)
    if not all(each.good for _, each in found):
        click.get_current_context().exit(1)


def _verification(name: str, found: Verification) -> str:
    if not found.objects:
        told = "there is no object store to verify"
    elif found.good:
        told = f"{words.count(found.objects, 'object')}, all intact"
    else:
        bad = len({each.object_id for each in found.damaged})
        told = f"{words.count(found.objects, 'object')}, {bad} damaged"
    lines = [f"{name}: {told}"]
    if found.root_missing and found.objects:
        lines.append("  the root object is missing: nothing can be read")
    lines += [f"  {each.object_id}: {each.cause}: {each.message}" for each in found.damaged]
    if found.missing:
        lines.append(f"  {words.count(len(found.missing), 'object')} pointed at and not there:")
        lines += [f"    {object_id}" for object_id in found.missing]
    return "".join(f"{line}\n" for line in lines)
