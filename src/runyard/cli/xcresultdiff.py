"""`runyard xcresult diff`: what changed from one result to the next."""

from collections.abc import Iterator

import click

from runyard.cli.xcresultinput import JSON, PROCESSES, deliver, read
from runyard.cli.xcresultpaint import json_bytes, text_bytes
from runyard.xcresult.formats import words
from runyard.xcresult.formats.comparing import Change, Difference, compare, path_of

_MOST = 50


@click.command(short_help="What changed from one result to another.")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.option(
    "--slower-by",
    type=click.FloatRange(1.0, 1000.0),
    default=1.5,
    show_default=True,
    metavar="FACTOR",
    help="A test is slower when it took at least so many times as long …",
)
@click.option(
    "--slower-seconds",
    type=click.FloatRange(0.0, 86400.0),
    default=0.1,
    show_default=True,
    metavar="SECONDS",
    help="… and at least so much longer.",
)
@click.option(
    "--fail-on-failures", is_flag=True, help="Exit with 1 if something fails that did not before."
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
    """What changed from A to B: newly failing, fixed, newly flaky, slower, added, removed.

    Tests are matched by target, suite and identifier. A test that is new in B and fails is newly failing.
    """
    old, new = read(before, processes=processes), read(after, processes=processes)
    found = compare(old.result, new.result, factor=slower_by, seconds=slower_seconds)
    if as_json:
        deliver([json_bytes(found)], None)
    else:
        deliver([text_bytes("".join(f"{line}\n" for line in _told(found)))], None)
    if fail_on_failures and found.worse:
        click.get_current_context().exit(1)


def _told(found: Difference) -> Iterator[str]:
    for message in found.new_errors:
        yield f"new error: {words.line_of(message)}"
    yield from _section("newly failing", found.newly_failing, "✗")
    yield from _section("newly flaky", found.newly_flaky, "≈")
    yield from _section("still failing", found.still_failing, "✗")
    yield from _section("fixed", found.fixed, "✓")
    yield from _section("no longer flaky", found.no_longer_flaky, "✓")
    yield from _section("slower", found.slower, "▲", timed=True)
    yield from _section("faster", found.faster, "▼", timed=True)
    yield from _section("added", found.added, "+")
    yield from _section("removed", found.removed, "-")
    yield f"{words.count(found.unchanged, 'test')} unchanged"


def _section(
    title: str, changes: tuple[Change, ...], mark: str, *, timed: bool = False
) -> Iterator[str]:
    if not changes:
        return
    yield f"{title}: {len(changes)}"
    for change in changes[:_MOST]:
        time = ""
        if timed:
            time = f"  {words.lasted(change.before_seconds)} → {words.lasted(change.after_seconds)}"
        yield f"  {mark} {words.line_of(path_of(change))}{time}"
        if change.message and not timed and change.after is not None:
            yield f"      {words.line_of(change.message)}"
    if len(changes) > _MOST:
        yield f"  and {len(changes) - _MOST} more; --json names all"
