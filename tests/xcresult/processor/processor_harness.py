"""Shared helpers of the processor tests: a database with runs, and queries on it."""

import asyncio
import contextlib
import functools
import io
import random
import shutil
import uuid
import zipfile
from collections.abc import AsyncIterator, Callable, Coroutine, MutableMapping
from pathlib import Path
from typing import Any, ParamSpec, cast

import psycopg
import structlog
from tests.xcresult.writer.plan import Plan
from tests.xcresult.writer.writing import write_bundle

from runyard.blobs.location import Directory
from runyard.blobs.opening import open_blobs
from runyard.clock import Clock, RealClock
from runyard.components import processor
from runyard.db.contract import Tx
from runyard.db.pooled import PooledDatabase, open_pool
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.meter import Meter
from runyard.xcresult.plans.attempts import Decision, Outcome, decide
from runyard.xcresult.processor.deps import Deps
from runyard.xcresult.processor.enqueueing import enqueue
from runyard.xcresult.processor.run_claims import RunClaims
from runyard.xcresult.settings import MEBIBYTE, Settings
from runyard.xcresult.store import Claim

P = ParamSpec("P")


def looped(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a coroutine test on its own event loop."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


def run_number(number: int) -> str:
    return str(uuid.UUID(int=number + 1))


def add_runs(url: str, *numbers: int, key: str = "bundle.zip", size: int | None = None) -> None:
    """Insert runs whose uploads are not complete yet."""
    with psycopg.connect(url, autocommit=True) as link, link.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO test_runs (run_id, account, project, storage_key, archive_bytes)"
            " VALUES (%s, 'Acme', 'App', %s, %s)",
            [(run_number(number), key.format(number=number), size) for number in numbers],
        )


def query(url: str, sql: str, *values: object) -> list[Any]:
    with psycopg.connect(url) as link:
        return link.execute(cast("Any", sql), values).fetchall()


def change(url: str, sql: str, *values: object) -> None:
    with psycopg.connect(url, autocommit=True) as link:
        link.execute(cast("Any", sql), values)


def row_of(url: str, number: int = 0) -> Any:
    (row,) = query(
        url,
        "SELECT state, attempt, spent, lease_owner, reason_code FROM test_runs WHERE run_id = %s",
        run_number(number),
    )
    return row


def jobs_of(url: str) -> list[str]:
    return [
        status
        for (status,) in query(url, "SELECT status::text FROM procrastinate_jobs ORDER BY id")
    ]


def lapse(url: str) -> None:
    """Expire all leases."""
    change(
        url,
        "UPDATE test_runs SET lease_until = now() - interval '1 second' WHERE lease_until IS NOT NULL",
    )


def hasten(url: str) -> None:
    """Make all waiting runs and jobs due."""
    change(url, "UPDATE test_runs SET due_at = now() WHERE due_at IS NOT NULL")
    change(url, "UPDATE procrastinate_jobs SET scheduled_at = now() WHERE status = 'todo'")


@contextlib.asynccontextmanager
async def pool(url: str, **how: Any) -> AsyncIterator[PooledDatabase]:
    async with open_pool(url, clock=RealClock(), rng=random.Random(1), **how) as database:
        yield database


async def put(database: PooledDatabase, *numbers: int) -> list[bool]:
    async def work(tx: Tx) -> list[bool]:
        return [await enqueue(tx, run_id=run_number(number)) for number in numbers]

    return await database.transact(work, name="put")


def run_claims(
    database: PooledDatabase, name: str = "w", *, settings: Settings | None = None
) -> RunClaims:
    chosen = settings or Settings(scratch=Path("/nonexistent"))
    return RunClaims(database, name=name, rng=random.Random(name), settings=chosen)


def decision(claim: Claim, outcome: Outcome) -> Decision:
    rules = Settings(scratch=Path("/nonexistent")).retrying
    return decide(outcome, claims=claim.claims, spent=claim.spent, settings=rules)


def zipped(folder: Path, plan: Plan, **more: bytes) -> bytes:
    """A generated bundle as a client uploads it; `more` are files beside its own."""
    bundle = folder / "Tests.xcresult"
    write_bundle(bundle, plan)
    for name, content in more.items():
        (bundle / name.replace("__", ".")).write_bytes(content)
    return archived(bundle)


def archived(bundle: Path) -> bytes:
    """A bundle's directory as a ZIP."""
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as file:
        for path in sorted(bundle.rglob("*")):
            if path.is_file():
                file.write(path, path.relative_to(bundle.parent))
    shutil.rmtree(bundle)
    return memory.getvalue()


class RecordingLog:
    """A log that records its events."""

    def __init__(self) -> None:
        self.events: set[str] = set()
        self.logger: Any = structlog.wrap_logger(
            None, processors=[self._note], wrapper_class=structlog.make_filtering_bound_logger(0)
        )

    def _note(self, _logger: object, _method: str, event: MutableMapping[str, Any]) -> Any:
        self.events.add(str(event["event"]))
        raise structlog.DropEvent


class Harness:
    """A database, object storage and a scratch; `processing` runs a processor on them."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.place = Directory(path=folder / "blobs")
        self.scratch = folder / "scratch"
        self.blobs = open_blobs(self.place, clock=RealClock())
        self.meter = Meter()
        self.clock: Clock = RealClock()
        self.trace = ""
        self.results_url = ""  # a separate connection to the database for results
        self.log = RecordingLog()

    async def upload(self, content: bytes, *numbers: int) -> None:
        """Queue runs with this upload."""
        for number in numbers:
            await self.blobs.put(f"uploads/{number}", content)
        add_runs(self.url, *numbers, key="uploads/{number}")
        async with pool(self.url) as database:
            await put(database, *numbers)

    def settings(self, **how: Any) -> Settings:
        quick: dict[str, Any] = {"poll": 0.02, "beat": 0.2, "sweep": 0.2, "reserve": MEBIBYTE}
        return Settings(scratch=self.scratch, **{**quick, **how})

    @contextlib.asynccontextmanager
    async def processing(
        self, url: str = "", *, name: str = "p", **how: Any
    ) -> AsyncIterator[Deps]:
        """Run a processor while the context lasts, then shut it down."""
        finish_within, blobs = how.pop("finish_within", 25.0), how.pop("blobs", self.blobs)
        way = url or self.url
        async with (
            pool(way, patience=2.0) as database,
            pool(self.results_url or way, patience=2.0, deadline=120.0) as results,
        ):
            deps = Deps(
                name=name,
                database=database,
                results=results,
                pools=(database, results),
                blobs=blobs,
                clock=self.clock,
                rng=random.Random(name),
                meter=self.meter,
                log=self.log.logger,
                settings=self.settings(**how),
                health=Health(self.clock, processor.CONDITIONS),
                freshness=Freshness(self.clock),
                finish_within=finish_within,
                trace=self.trace,
            )
            ending = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                group.create_task(processor.run(deps, ending=ending))
                try:
                    yield deps
                finally:
                    ending.set()

    async def over(self, count: int, *, within: float = 60.0) -> None:
        """Wait until this many runs are processed or given up."""
        await self.until(
            "SELECT count(*) FROM test_runs WHERE state IN ('processed', 'failed_processing')",
            lambda found: found >= count,
            within=within,
        )

    async def until(self, sql: str, good: Callable[[Any], bool], *, within: float = 60.0) -> Any:
        """Wait until the first value of a query satisfies the condition; returns it."""
        found: Any = None
        try:
            async with asyncio.timeout(within):
                while True:
                    ((found,),) = await asyncio.to_thread(query, self.url, sql)
                    if good(found):
                        return found
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"still {found}: {self.unprocessed()}") from None

    def unprocessed(self) -> list[Any]:
        """State and reason of the runs that are not processed."""
        return query(
            self.url,
            "SELECT state, attempt, spent, reason_code, reason_detail FROM test_runs"
            " WHERE state <> 'processed' LIMIT 20",
        )

    async def wait_for_log(self, event: str, *, within: float = 30.0) -> None:
        """Wait until a processor has logged this event."""
        try:
            async with asyncio.timeout(within):
                while event not in self.log.events:
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(
                f"only these events were logged: {sorted(self.log.events)}"
            ) from None

    def left(self) -> list[str]:
        """The names in the scratch directory."""
        return sorted(str(path) for path in self.scratch.rglob("*"))
