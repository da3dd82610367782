"""`runyard xcresult`: what an Apple result bundle says, on any machine.

The commands read, and hand the result to the formats; each group of commands has a file of its own.
"""

from pathlib import Path

import click

from runyard.cli.xcresultdiff import diff
from runyard.cli.xcresultfiles import attachments, coverage, verify
from runyard.cli.xcresultinput import (
    OUTPUT,
    PATH,
    PATHS,
    PROCESSES,
    bundle,
    deliver,
    read,
    read_in,
    told,
)
from runyard.cli.xcresultpaint import json_bytes
from runyard.cli.xcresultshow import FORMATS, Look, rendered
from runyard.xcresult.bundle.verifying import verify as verified
from runyard.xcresult.formats.github import MOST
from runyard.xcresult.formats.summary import summary
from runyard.xcresult.reader.figures import figures as figures_of
from runyard.xcresult.reader.model import Wanted


@click.group(context_settings={"max_content_width": 110})
def xcresult() -> None:
    """Read Apple's test results (.xcresult) on any machine, without Xcode.

    PATH is a bundle: a directory, a ZIP, an Apple Archive or a tar (.gz, .zst), with or without the directory
    around it, or - for an archive on standard input.

    \b
    runyard xcresult show App.xcresult                          what failed, what was flaky, and the whole tree
    runyard xcresult show App.xcresult --format junit -o junit.xml
    runyard xcresult show App.xcresult --format markdown >> "$GITHUB_STEP_SUMMARY"
    runyard xcresult show App.xcresult --format github --fail-on-failures
    runyard xcresult attachments App.xcresult --to screenshots --only-failures
    runyard xcresult coverage App.xcresult --format cobertura
    runyard xcresult diff yesterday.xcresult today.xcresult
    runyard xcresult verify upload.zip

    Exit codes: 0 read; 1 tests failed, and --fail-on-failures was given (of verify: damage was found); 2 bad
    input, or the command line was wrong, with one line that says what.
    """


@xcresult.command(short_help="What the tests did, failures first.")
@PATHS
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="tree",
    show_default=True,
    help="tree for people, json for scripts, junit for CI servers, markdown for a job's summary, github for"
    " annotations, apple as `xcresulttool get test-results tests` prints it.",
)
@click.option(
    "--only-failures", is_flag=True, help="Of the tree: only tests that failed or were flaky."
)
@click.option(
    "--details", is_flag=True, help="Of the tree: tags, metrics, attachments and activities too."
)
@click.option(
    "--root",
    envvar="GITHUB_WORKSPACE",
    default="",
    help="Where the sources lay on the machine that ran the tests: files below it are named relative to it.  "
    "[default: $GITHUB_WORKSPACE]",
)
@click.option(
    "--annotations",
    type=click.IntRange(1, 1000),
    default=MOST,
    show_default=True,
    help="Of github: at most so many of each level; GitHub shows no more than 10 for a step.",
)
@click.option(
    "--fail-on-failures", is_flag=True, help="Exit with 1 if a test, a runner or the build failed."
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
    annotations: int,
    fail_on_failures: bool,
    output: Path | None,
    processes: int,
) -> None:
    """What the tests did: a summary, failures first, then everything.

    Several bundles are shown one after the other; as junit they are one document, as json a list.

    A test that failed and passed when it was repeated is flaky (≈), and has passed. ✗ failed, ✓ passed,
    ○ skipped, ⊗ failed as it announced.
    """
    wanted = Wanted(activities=details)
    found = [read(path, wanted=wanted, processes=processes) for path in paths]
    look = Look(
        form=form, root=root, only_failures=only_failures, details=details, most=annotations
    )
    with told(", ".join(paths)):
        text = rendered(found, look, terminal=output is None)
    deliver([text], output)
    if fail_on_failures and any(summary(each.result).bad for each in found):
        click.get_current_context().exit(1)


@xcresult.command(short_help="The numbers of a bundle, as JSON.")
@PATH
@PROCESSES
def figures(path: str, *, processes: int) -> None:
    """The numbers of a bundle, as one JSON object: cases, runs, statuses, attachments, devices, intact objects."""
    with bundle(path) as directory:
        checked = verified(directory)
        result = read_in(directory, path, processes=processes)
        found = figures_of(result, objects=checked.objects, objects_hash_ok=checked.hash_ok)
    deliver([json_bytes(found)], None)


for command in (attachments, coverage, diff, verify):
    xcresult.add_command(command)
