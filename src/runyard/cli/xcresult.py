"""`runyard xcresult`: shows and converts Apple's result bundles, on any machine.

This module declares the commands; each one imports its implementation when it runs.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from runyard.cli.options import NumberRange
from runyard.cli.xcresultflags import (
    ANNOTATIONS,
    COVERAGE_FORMATS,
    FORMATS,
    JSON,
    MARKDOWN_BYTES,
    OUTPUT,
    PATH,
    PATHS,
    PROCESSES,
)

if TYPE_CHECKING:
    from runyard.xcresult.formats.coverage import Format


@click.group(context_settings={"max_content_width": 110})
def xcresult() -> None:
    """Read Apple's test results (.xcresult) on any machine, without Xcode.

    PATH is a bundle: a directory, a ZIP, an Apple Archive or a tar (.gz, .zst), with or without a parent
    directory, or - for an archive on standard input.

    \b
    runyard xcresult show App.xcresult                          what failed, what was flaky, and the whole tree
    runyard xcresult show App.xcresult --format junit -o junit.xml
    runyard xcresult show App.xcresult --format markdown >> "$GITHUB_STEP_SUMMARY"
    runyard xcresult show App.xcresult --format github --fail-on-failures
    runyard xcresult attachments App.xcresult --to screenshots --only-failures
    runyard xcresult coverage App.xcresult --format cobertura
    runyard xcresult diff yesterday.xcresult today.xcresult
    runyard xcresult verify upload.zip

    Exit codes: 0 the bundle was read; 1 tests failed and --fail-on-failures was given (verify: damage was found); 2 bad
    input or a wrong command line, with one line that names the cause.
    """


@xcresult.command(short_help="Show test results, failures first.")
@PATHS
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="tree",
    show_default=True,
    help="tree for terminals, json for scripts, junit for CI servers, markdown for job summaries, github for"
    " annotations, apple for the JSON of `xcresulttool get test-results tests`.",
)
@click.option("--only-failures", is_flag=True, help="With tree: only failed and flaky tests.")
@click.option(
    "--details", is_flag=True, help="With tree: also tags, metrics, attachments and activities."
)
@click.option(
    "--root",
    envvar="GITHUB_WORKSPACE",
    default="",
    help="Directory of the sources on the machine that ran the tests: files below it get relative paths.  "
    "[default: $GITHUB_WORKSPACE]",
)
@click.option(
    "--checkout",
    type=click.Path(path_type=Path),
    help="With junit, markdown and github: directory of the repository on this machine. A path of the machine that ran"
    " the tests is mapped by its longest end that is a file of the repository.  [default: $GITHUB_WORKSPACE]",
)
@click.option(
    "--source-url",
    metavar="URL",
    help="With markdown: base of links to failed lines, URL/Tests/CartTests.swift#L7; empty for no links."
    "  [default: the commit on GitHub, in GitHub Actions]",
)
@click.option(
    "--pictures-url",
    default="",
    metavar="URL",
    help="With markdown: where the files of `runyard xcresult attachments` (all of them, without --true-extensions) are"
    " published, to show the screenshots of failures. GitHub fetches them from there: it shows no files of artifacts"
    " and no data: URLs. Without it, the names of the files are listed.",
)
@click.option(
    "--max-bytes",
    type=click.IntRange(10_000, MARKDOWN_BYTES),
    default=MARKDOWN_BYTES,
    show_default=True,
    help="With markdown: largest size; 65000 for a comment of a pull request. What does not fit is counted.",
)
@click.option(
    "--annotations",
    type=click.IntRange(1, 1000),
    default=ANNOTATIONS,
    show_default=True,
    help="With github: number of annotations of each level; GitHub shows at most 10 per step.",
)
@click.option(
    "--fail-on-failures",
    is_flag=True,
    help="Exit with 1 if a test, a test runner or the build failed.",
)
@OUTPUT
@PROCESSES
def show(
    paths: tuple[str, ...],
    form: str,
    *,
    only_failures: bool,
    details: bool,
    root: str,
    checkout: Path | None,
    source_url: str | None,
    pictures_url: str,
    max_bytes: int,
    annotations: int,
    fail_on_failures: bool,
    output: Path | None,
    processes: int,
) -> None:
    """Show test results: a summary, failures first, then all tests.

    \b
    runyard xcresult show App.xcresult
    runyard xcresult show App.xcresult --format junit -o junit.xml --fail-on-failures

    Several bundles are shown one after the other; with junit they are one document, with json a list.

    A test that failed and passed when it was repeated is flaky (≈) and counts as passed. ✗ failed, ✓ passed,
    ○ skipped, ⊗ expected failure.
    """
    from runyard.cli import xcresultshow
    from runyard.cli.xcresultsources import sources

    if form != "markdown" and (source_url or pictures_url or max_bytes != MARKDOWN_BYTES):
        raise click.UsageError(
            f"--source-url, --pictures-url and --max-bytes are for --format markdown, not for {form}"
        )
    if pictures_url and len(paths) > 1:
        raise click.UsageError(
            "--pictures-url is for one bundle, because the files of two have the same names; run it for each bundle"
        )
    found = sources(form, root=root, checkout=checkout, url=source_url, environment=os.environ)
    style = xcresultshow.Style(
        form=form,
        sources=found,
        pictures_url=pictures_url,
        limit=max_bytes,
        only_failures=only_failures,
        details=details,
        most=annotations,
    )
    failed = xcresultshow.show(paths, style, output=output, processes=processes)
    if fail_on_failures and failed:
        click.get_current_context().exit(1)


@xcresult.command(short_help="Print figures of a bundle as JSON.")
@PATH
@PROCESSES
def figures(path: str, *, processes: int) -> None:
    """Print figures of a bundle as one JSON object: cases, runs, statuses, attachments, devices, intact objects.

    \b
    runyard xcresult figures App.xcresult
    """
    from runyard.cli import xcresultshow

    xcresultshow.figures(path, processes=processes)


@xcresult.command(short_help="Export screenshots and other files, with Apple's manifest.")
@PATH
@click.option(
    "--to",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Directory for the files; created if missing.",
)
@click.option("--only-failures", is_flag=True, help="Only attachments that belong to a failure.")
@click.option(
    "--test",
    "tests",
    multiple=True,
    metavar="ID",
    help="Only attachments of this test (Suite/test(), Target/Suite/test()), suite or target; repeatable. A name that"
    " matches no test is an error.",
)
@click.option(
    "--true-extensions",
    is_flag=True,
    help="Name HEIC pictures .heic; some versions of Xcode name them .png.",
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
    """Export screenshots, recordings and other files, with a manifest like that of xcresulttool.

    \b
    runyard xcresult attachments App.xcresult --to screenshots --only-failures

    A file is named after its test: CartTests_testLogin_1.png. manifest.json lists test, file, uuid, the name that the
    test gave it, time, configuration, device, repetition and arguments. Attachments with the same content are links to
    one file. Use one directory for each bundle.

    Attachments missing in the bundle are listed on stderr and are not an error: tests may discard recordings.
    """
    from runyard.cli import xcresultfiles
    from runyard.xcresult.bundle.choosing import Chosen

    chosen = Chosen(only_failures=only_failures, tests=tests, true_extensions=true_extensions)
    xcresultfiles.attachments(path, chosen, to=to, as_json=as_json, processes=processes)


@xcresult.command(short_help="Print code coverage.")
@PATH
@click.option(
    "--format",
    "form",
    type=click.Choice(COVERAGE_FORMATS),
    default="text",
    show_default=True,
    help="text for terminals, json for scripts, cobertura and lcov for CI servers and editors.",
)
@click.option(
    "--root",
    default="",
    help="With cobertura and lcov: files below this directory of the machine that ran the tests get relative paths.",
)
@click.option(
    "--checkout",
    type=click.Path(path_type=Path),
    help="With cobertura and lcov: directory of the repository on this machine. A path of the machine that ran the"
    " tests is mapped by its longest end that is a file of the repository.  [default: $GITHUB_WORKSPACE]",
)
@OUTPUT
def coverage(
    path: str, *, form: "Format", root: str, checkout: Path | None, output: Path | None
) -> None:
    """Print code coverage, down to the execution count of each line.

    \b
    runyard xcresult coverage App.xcresult
    runyard xcresult coverage App.xcresult --format cobertura --checkout "$PWD" -o coverage.xml

    Totals are computed as Apple does: a closure's lines count twice, once in the closure and once in the function
    around it. Line counts contain each line once.

    For a bundle without coverage the document is empty, and a message on stderr says so.
    """
    from runyard.cli import xcresultfiles
    from runyard.cli.xcresultsources import sources
    from runyard.xcresult.formats.coverage import MAPPED

    found = sources(
        form, root=root, checkout=checkout, url="", environment=os.environ, forms=MAPPED
    )
    xcresultfiles.coverage(path, form=form, sources=found, output=output)


@xcresult.command(short_help="Check the integrity of a bundle.")
@PATHS
@JSON
def verify(paths: tuple[str, ...], *, as_json: bool) -> None:
    """Check every object against its content id, and list the damaged ones.

    \b
    runyard xcresult verify upload.zip

    An object's id is a hash of its content and references, so a partial upload is detected. Referenced objects that are
    missing are listed separately: attachments and diagnostics are often removed on purpose.

    Exit codes: 0 all objects are intact, 1 an object is damaged, 2 the input is not a bundle.
    """
    from runyard.cli import xcresultfiles

    if not xcresultfiles.verify(paths, as_json=as_json):
        click.get_current_context().exit(1)


@xcresult.command(short_help="Compare two results.")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.option(
    "--slower-by",
    type=NumberRange(1.0, 1000.0),
    default=1.5,
    show_default=True,
    metavar="FACTOR",
    help="A test is slower if it took at least this many times as long …",
)
@click.option(
    "--slower-seconds",
    type=NumberRange(0.0, 86400.0),
    default=0.1,
    show_default=True,
    metavar="SECONDS",
    help="… and at least this many seconds longer.",
)
@click.option(
    "--fail-on-failures",
    is_flag=True,
    help="Exit with 1 if a test, a test runner or the build is newly failing.",
)
@JSON
@PROCESSES
def diff(
    before: str,
    after: str,
    *,
    slower_by: float,
    slower_seconds: float,
    fail_on_failures: bool,
    as_json: bool,
    processes: int,
) -> None:
    """Compare A with B: newly failing, fixed, newly flaky, slower, added, removed.

    \b
    runyard xcresult diff yesterday.xcresult today.xcresult --fail-on-failures

    Tests are matched by target, suite and identifier. A test that is new in B and fails is newly failing.
    """
    from runyard.cli import xcresultdiff

    worse = xcresultdiff.diff(
        before,
        after,
        slower_by=slower_by,
        slower_seconds=slower_seconds,
        as_json=as_json,
        processes=processes,
    )
    if fail_on_failures and worse:
        click.get_current_context().exit(1)
