"""What can be read apart from the rest: the long form of each run, and each action's log.

The walk over the tree asks for them and goes on; who answers, and when, is the business of `Readers`. `Here`
answers at once, in this process. Another may collect what is asked for and have it read elsewhere: requests
and answers are plain values, and the answers are taken in the order of the requests, so the result is the
same.
"""

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from runyard.xcresult.reader.decode import Node
from runyard.xcresult.reader.fields import brief, kind, reference, text
from runyard.xcresult.reader.graph import Graph, nothing
from runyard.xcresult.reader.logs import Log, read_log
from runyard.xcresult.reader.model import Bug, Run, Tag
from runyard.xcresult.reader.runs import (
    TELLING,
    Place,
    bare_activities,
    read_bugs,
    read_documentation,
    read_run,
    read_tags,
)


class AskedRun(msgspec.Struct, frozen=True):
    """A run of the tree: its short form as far as the run needs it, and where its long form is."""

    identifier: str
    short: dict[str, str]
    place: Place
    summary_id: str
    inline: dict[str, Any] = {}
    """The long form, where the tree itself holds it."""


class ReadRun(msgspec.Struct, frozen=True):
    """A run, and what its long form says of its case."""

    run: Run
    display: str
    tags: tuple[Tag, ...]
    bugs: tuple[Bug, ...]
    documentation: tuple[str, ...]


class Readers(Protocol):
    """Reads what is asked for, now or later."""

    def log(self, log_id: str) -> Callable[[], Log | None]:
        """An action's log, when it is called for."""
        ...

    def run(self, asked: AskedRun, then: Callable[[ReadRun], None]) -> None:
        """A run; `then` gets it, before `finish` returns at the latest."""
        ...

    def finish(self) -> None:
        """Every run that was asked for has been read, or an error is raised."""
        ...


class Here:
    """Reads in this process, one after the other."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def log(self, log_id: str) -> Callable[[], Log | None]:
        """Not before it is called for: by then the tests have been forgotten."""
        return lambda: log_of(self._graph, log_id)

    def run(self, asked: AskedRun, then: Callable[[ReadRun], None]) -> None:
        """At once."""
        then(run_of(self._graph, asked))

    def finish(self) -> None:
        """Nothing is left."""


def asked_run(node: Node, identifier: str, place: Place) -> AskedRun:
    """What to ask for, from a run's entry in the tree."""
    short = {key: node[key] for key in ("testStatus", "duration") if isinstance(node.get(key), str)}
    inline = node if kind(node) == "ActionTestSummary" else {}
    return AskedRun(identifier, short, place, reference(node, "summaryRef"), inline)


def run_of(graph: Graph, asked: AskedRun) -> ReadRun:
    """Read the run's long form, if it has one that says anything."""
    long: Node = asked.inline
    if asked.summary_id:
        short = asked.short
        plain = short.get("testStatus") == "Success" and "duration" in short
        telling = TELLING if plain and not asked.place.activities else None
        what = f"the summary of {brief(asked.identifier)}"
        passing = nothing if asked.place.activities else bare_activities
        long = graph.load(asked.summary_id, what=what, telling=telling, passing=passing) or {}
    run = read_run(
        asked.short, long, place=asked.place, objects=graph.objects, summary_id=asked.summary_id
    )
    return ReadRun(
        run, text(long, "summary"), read_tags(long), read_bugs(long), read_documentation(long)
    )


def log_of(graph: Graph, log_id: str) -> Log | None:
    """An action's log. Without it some durations are missing and nothing else."""
    if not log_id or not graph.objects.has(log_id):
        return None
    root = graph.load(log_id, what="the log of an action")
    return read_log(root) if root else None
