"""Reads what can be read independently of the tree: the summary of each run, and each action's log.

The walk over the tree requests them and continues; a `Readers` decides where and when they are read.
`LocalReaders` reads at once in this process. Another implementation may collect requests and read them in other
processes: requests and results are plain values, and results are used in the order of the requests, so the outcome is
the same.
"""

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from runyard.xcresult.reader.budget import LOG_KIB
from runyard.xcresult.reader.decode import Node
from runyard.xcresult.reader.fields import brief, kind, reference, text
from runyard.xcresult.reader.graph import Graph, skip_nothing
from runyard.xcresult.reader.logs import Log, read_log
from runyard.xcresult.reader.model import Bug, Run, Tag
from runyard.xcresult.reader.runs import (
    HAS_DETAILS,
    Place,
    bare_activities,
    read_bugs,
    read_documentation,
    read_run,
    read_tags,
)


class RunRequest(msgspec.Struct, frozen=True):
    """A request to read a run: the needed fields of its short form, and the id of its long form."""

    identifier: str
    short: dict[str, str]
    place: Place
    summary_id: str
    inline: dict[str, Any] = {}
    """The long form, if the tree contains it."""


class ReadRun(msgspec.Struct, frozen=True):
    """A run, and facts of its summary about its case."""

    run: Run
    display: str
    tags: tuple[Tag, ...]
    bugs: tuple[Bug, ...]
    documentation: tuple[str, ...]


class Readers(Protocol):
    """Reads what is requested, now or later."""

    def log(self, log_id: str) -> Callable[[], Log | None]:
        """Return a function that returns the log of an action."""
        ...

    def run(self, request: RunRequest, then: Callable[[ReadRun], None]) -> None:
        """Read a run and call `then` with it, at the latest before `finish` returns."""
        ...

    def finish(self) -> None:
        """Return when every requested run has been read; raises an error otherwise."""
        ...


class LocalReaders:
    """Reads in this process, one after the other."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def log(self, log_id: str) -> Callable[[], Log | None]:
        """Read the log only when the function is called: the tests are no longer in memory then."""
        return lambda: log_of(self._graph, log_id)

    def run(self, request: RunRequest, then: Callable[[ReadRun], None]) -> None:
        """Read the run at once."""
        then(run_of(self._graph, request))

    def finish(self) -> None:
        """Do nothing: all runs have been read."""


def run_request(node: Node, identifier: str, place: Place) -> RunRequest:
    """Build the request for a run from its entry in the tree."""
    short = {key: node[key] for key in ("testStatus", "duration") if isinstance(node.get(key), str)}
    inline = node if kind(node) == "ActionTestSummary" else {}
    return RunRequest(identifier, short, place, reference(node, "summaryRef"), inline)


def run_of(graph: Graph, request: RunRequest) -> ReadRun:
    """Read the run's summary, if it has one with content, and drop it."""
    with graph.spending.passing():
        return _run_of(graph, request)


def _run_of(graph: Graph, request: RunRequest) -> ReadRun:
    long: Node = request.inline
    if request.summary_id:
        short = request.short
        plain = short.get("testStatus") == "Success" and "duration" in short
        only_if = HAS_DETAILS if plain and not request.place.activities else None
        what = f"the summary of {brief(request.identifier)}"
        passing = skip_nothing if request.place.activities else bare_activities
        long = graph.load(request.summary_id, what=what, only_if=only_if, passing=passing) or {}
    run = read_run(
        request.short,
        long,
        place=request.place,
        objects=graph.objects,
        summary_id=request.summary_id,
    )
    return ReadRun(
        run, text(long, "summary"), read_tags(long), read_bugs(long), read_documentation(long)
    )


def log_of(graph: Graph, log_id: str) -> Log | None:
    """Read an action's log; None if it is missing, which costs only some durations."""
    if not log_id or not graph.objects.has(log_id):
        return None
    with graph.spending.passing():
        root = graph.load(log_id, what="the log of an action", kib=LOG_KIB)
        return read_log(root, graph.spending) if root else None
