"""Runs `runyard xcresult diff`: prints the differences between two results."""

from collections.abc import Iterator

from runyard.cli.xcresultinput import deliver, read
from runyard.cli.xcresultpaint import json_bytes, text_bytes
from runyard.xcresult.formats import words
from runyard.xcresult.formats.comparing import Change, Difference, compare, path_of

_MOST = 50


def diff(
    before: str,
    after: str,
    *,
    slower_by: float,
    slower_seconds: float,
    as_json: bool,
    processes: int,
) -> bool:
    """Print what changed; whether something fails that did not before."""
    old, new = read(before, processes=processes), read(after, processes=processes)
    found = compare(old.result, new.result, factor=slower_by, seconds=slower_seconds)
    if as_json:
        deliver([json_bytes(found)], None)
    else:
        deliver([text_bytes("".join(f"{line}\n" for line in _lines(found)))], None)
    return found.worse


def _lines(found: Difference) -> Iterator[str]:
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
            time = f"  {words.duration_text(change.before_seconds)} → {words.duration_text(change.after_seconds)}"
        yield f"  {mark} {words.line_of(path_of(change))}{time}"
        if change.message and not timed and change.after is not None:
            yield f"      {words.line_of(change.message)}"
    if len(changes) > _MOST:
        yield f"  and {len(changes) - _MOST} more; --json lists all"
