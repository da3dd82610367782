"""Several processes for one very large bundle.

This process reads the tree of the tests; the long forms of the runs, which are nearly all of the objects, and the
logs are read by others, in portions. What they answer is taken in the order in which it was asked for, so the
result is the one that a single process gives. A bundle with few objects is read here: to start processes
would take longer.

Invariants:
- Processes are spawned, never forked, and find everything that they need in their arguments.
- They end with the reading, however it ends, and with this process, however that ends.
- A process that dies is an OSError: it says nothing about the bundle.
"""

import gc
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from multiprocessing import connection, get_context, parent_process
from pathlib import Path

import msgspec

from runyard.xcresult.archives.limits import Limits
from runyard.xcresult.bundle.directory import Directory
from runyard.xcresult.reader.apart import AskedRun, ReadRun, log_of, run_of
from runyard.xcresult.reader.graph import Graph
from runyard.xcresult.reader.logs import Log
from runyard.xcresult.reader.model import Warning as BundleWarning

LARGE = 4_000
"""Objects from which on it is worth it."""
PORTION = 500
"""Runs that are asked for at once."""

Then = Callable[[ReadRun], None]


class Portion(msgspec.Struct, frozen=True):
    """What a process answers, and what it met on the way."""

    runs: tuple[ReadRun, ...] = ()
    log: Log | None = None
    warnings: tuple[BundleWarning, ...] = ()
    decoded: int = 0


def is_large(objects: Directory) -> bool:
    """Whether a bundle has so many objects that several processes read it faster."""
    return next(islice(objects.ids(), LARGE, None), None) is not None


@contextmanager
def processes(directory: Path, *, limits: Limits, count: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that read parts of this bundle."""
    pool = ProcessPoolExecutor(
        count,
        mp_context=get_context("spawn"),
        initializer=_begin,
        initargs=(str(directory), msgspec.msgpack.encode(limits)),
    )
    try:
        yield pool
    except BrokenProcessPool as error:
        raise ChildProcessError("a process that read a part of the bundle died") from error
    finally:
        pool.shutdown(cancel_futures=True)


class Elsewhere:
    """Has runs and logs read by the processes of a pool."""

    def __init__(self, graph: Graph, pool: ProcessPoolExecutor) -> None:
        self._graph = graph
        self._pool = pool
        self._asked: list[AskedRun] = []
        self._thens: list[Then] = []
        self._open: deque[tuple[Future[bytes], list[Then]]] = deque()

    def log(self, log_id: str) -> Callable[[], Log | None]:
        """Begun at once: a log takes about as long as the tree."""
        answer = self._pool.submit(_log, log_id)
        return lambda: self._taken(answer).log

    def run(self, asked: AskedRun, then: Then) -> None:
        """Asked for when the portion is full."""
        self._asked.append(asked)
        self._thens.append(then)
        if len(self._asked) >= PORTION:
            self._ask()
            while self._open and self._open[0][0].done():
                self._take()

    def finish(self) -> None:
        """Wait for all that is open."""
        self._ask()
        while self._open:
            self._take()

    def _ask(self) -> None:
        if self._asked:
            answer = self._pool.submit(_runs, msgspec.msgpack.encode(self._asked))
            self._open.append((answer, self._thens))
            self._asked, self._thens = [], []

    def _take(self) -> None:
        answer, thens = self._open.popleft()
        for then, read in zip(thens, self._taken(answer).runs, strict=True):
            then(read)

    def _taken(self, answer: "Future[bytes]") -> Portion:
        portion = _PORTION.decode(answer.result())
        self._graph.join(portion.warnings, decoded=portion.decoded)
        return portion


# ------------------------------------------------------------------------------------- in the processes

_ASKED = msgspec.msgpack.Decoder(tuple[AskedRun, ...])
_PORTION = msgspec.msgpack.Decoder(Portion)
_here: list[Directory] = []
"""The bundle of this process; there is one."""


def _begin(directory: str, limits: bytes) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asked ends this one
    threading.Thread(target=_end_with_parent, daemon=True).start()
    gc.disable()
    bounds = msgspec.msgpack.decode(limits, type=Limits)
    _here[:] = [Directory(Path(directory), limits=bounds)]


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _graph() -> Graph:
    (objects,) = _here
    return Graph(objects, depth=objects.limits.depth, budget=objects.limits.decoded_bytes)


def _runs(asked: bytes) -> bytes:
    graph = _graph()
    runs = tuple(run_of(graph, each) for each in _ASKED.decode(asked))
    portion = Portion(runs=runs, warnings=graph.warnings, decoded=graph.decoded)
    return msgspec.msgpack.encode(portion)


def _log(log_id: str) -> bytes:
    graph = _graph()
    log = log_of(graph, log_id)
    portion = Portion(log=log, warnings=graph.warnings, decoded=graph.decoded)
    return msgspec.msgpack.encode(portion)
