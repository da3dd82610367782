"""Reads one very large bundle with several processes.

This process reads the tree of tests; other processes read the summaries of the runs, which are nearly all of the
objects, and the logs, in batches. Their results are used in the order of the requests, so the outcome is the same as
with one process. A bundle with few objects is read in this process, because starting processes would take longer.

Invariants:
- Processes are spawned, never forked, and get everything that they need as arguments.
- They end when the reading ends, also by an error, and with this process, also if it is killed.
- If a process dies, an OSError is raised and not an error of the bundle: the cause may be the machine.
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
from runyard.xcresult.reader.deferred import ReadRun, RunRequest, log_of, run_of
from runyard.xcresult.reader.graph import Graph
from runyard.xcresult.reader.logs import Log
from runyard.xcresult.reader.model import Warning as BundleWarning

LARGE = 4_000
"""Smallest number of objects for which several processes are used."""
PORTION = 500
"""Number of runs in one batch."""

Then = Callable[[ReadRun], None]


class Portion(msgspec.Struct, frozen=True):
    """The result of a process, and its warnings."""

    runs: tuple[ReadRun, ...] = ()
    log: Log | None = None
    warnings: tuple[BundleWarning, ...] = ()
    decoded: int = 0


def is_large(objects: Directory) -> bool:
    """Whether a bundle is large enough that several processes read it faster."""
    return next(islice(objects.ids(), LARGE, None), None) is not None


@contextmanager
def processes(directory: Path, *, limits: Limits, count: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of processes that read this bundle."""
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


class PoolReaders:
    """Reads runs and logs in the processes of a pool."""

    def __init__(self, graph: Graph, pool: ProcessPoolExecutor) -> None:
        self._graph = graph
        self._pool = pool
        self._requests: list[RunRequest] = []
        self._thens: list[Then] = []
        self._open: deque[tuple[Future[bytes], list[Then]]] = deque()

    def log(self, log_id: str) -> Callable[[], Log | None]:
        """Start reading at once, because a log takes about as long as the tree."""
        answer = self._pool.submit(_log, log_id)
        return lambda: self._joined(answer).log

    def run(self, request: RunRequest, then: Then) -> None:
        """Add the run to the batch; a full batch is started."""
        self._requests.append(request)
        self._thens.append(then)
        if len(self._requests) >= PORTION:
            self._submit()
            while self._open and self._open[0][0].done():
                self._receive()

    def finish(self) -> None:
        """Wait for all batches."""
        self._submit()
        while self._open:
            self._receive()

    def _submit(self) -> None:
        if self._requests:
            answer = self._pool.submit(_runs, msgspec.msgpack.encode(self._requests))
            self._open.append((answer, self._thens))
            self._requests, self._thens = [], []

    def _receive(self) -> None:
        answer, thens = self._open.popleft()
        for then, read in zip(thens, self._joined(answer).runs, strict=True):
            then(read)

    def _joined(self, answer: "Future[bytes]") -> Portion:
        portion = _PORTION.decode(answer.result())
        self._graph.join(portion.warnings, decoded=portion.decoded)
        return portion


# ------------------------------------------------------------------------------------- in the processes

_REQUESTS = msgspec.msgpack.Decoder(tuple[RunRequest, ...])
_PORTION = msgspec.msgpack.Decoder(Portion)
_bundle: list[Directory] = []
"""The bundle that this process reads; exactly one."""


def _begin(directory: str, limits: bytes) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    threading.Thread(target=_end_with_parent, daemon=True).start()
    gc.disable()
    bounds = msgspec.msgpack.decode(limits, type=Limits)
    _bundle[:] = [Directory(Path(directory), limits=bounds)]


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _graph() -> Graph:
    (objects,) = _bundle
    limits = objects.limits
    return Graph(objects, depth=limits.depth, budget=limits.decoded_bytes, spending=objects.budget)


def _runs(request: bytes) -> bytes:
    graph = _graph()
    runs = tuple(run_of(graph, each) for each in _REQUESTS.decode(request))
    portion = Portion(runs=runs, warnings=graph.warnings, decoded=graph.decoded)
    return msgspec.msgpack.encode(portion)


def _log(log_id: str) -> bytes:
    graph = _graph()
    log = log_of(graph, log_id)
    portion = Portion(log=log, warnings=graph.warnings, decoded=graph.decoded)
    return msgspec.msgpack.encode(portion)
