"""What the tests of the processor share: a database with runs in it, and looks at it."""

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

from runyard.blobs.place import Directory, open_blobs
from runyard.clock import Clock, RealClock
from runyard.db.contract import Tx
from runyard.db.pooled import PooledDatabase, open_pool
from runyard.parts.processor import Processor, ProcessorDeps
from runyard.telemetry.meter import Meter
from runyard.xcresult.plans.attempts import Decision, Outcome, decide
from runyard.xcresult.processor.enqueueing import enqueue
from runyard.xcresult.processor.ledger import Ledger
from runyard.xcresult.settings import MEBIBYTE, Settings
from runyard.xcresult.store import Claim
from runyard.xcresult.writer.plan import Plan
from runyard.xcresult.writer.writing import write_bundle

P = ParamSpec("P")


def looped(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test that is a coroutine, on a loop of its own."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


def run_number(number: int) -> str:
    return str(uuid.UUID(int=number + 1))


def add_runs(url: str, *numbers: int, key: str = "bundle.zip", size: int | None = None) -> None:
    """Runs whose uploads are not complete yet."""
    with psycopg.connect(url, autocommit=True) as link, link.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO test_runs (run_id, account, project, storage_key, archive_bytes)"
            " VALUES (%s, 'Acme', 'App', %s, %s)",
            [(run_number(number), key.format(number=number), size) for number in numbers],
        )


def look(url: str, sql: str, *values: object) -> list[Any]:
    with psycopg.connect(url) as link:
        return link.execute(cast("Any", sql), values).fetchall()


def change(url: str, sql: str, *values: object) -> None:
    with psycopg.connect(url, autocommit=True) as link:
        link.execute(cast("Any", sql), values)


def row_of(url: str, number: int = 0) -> Any:
    (row,) = look(
        url,
        "SELECT state, attempt, spent, lease_owner, reason_code FROM test_runs WHERE run_id = %s",
        run_number(number),
    )
    return row


def jobs_of(url: str) -> list[str]:
    return [
        status for (status,) in look(url, "SELECT status::text FROM procrastinate_jobs ORDER BY id")
    ]


def lapse(url: str) -> None:
    """All leases are over."""
    change(
        url,
        "UPDATE test_runs SET lease_until = now() - interval '1 second' WHERE lease_until IS NOT NULL",
    )


def hasten(url: str) -> None:
    """Everything that waits is due."""
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


def ledger(
    database: PooledDatabase, name: str = "w", *, settings: Settings | None = None
) -> Ledger:
    chosen = settings or Settings(scratch=Path("/nonexistent"))
    return Ledger(database, name=name, rng=random.Random(name), settings=chosen)


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


class Notebook:
    """Remembers what was logged."""

    def __init__(self) -> None:
        self.events: set[str] = set()
        self.logger: Any = structlog.wrap_logger(
            None, processors=[self._note], wrapper_class=structlog.make_filtering_bound_logger(0)
        )

    def _note(self, _logger: object, _method: str, event: MutableMapping[str, Any]) -> Any:
        self.events.add(str(event["event"]))
        raise structlog.DropEvent


class World:
    """A database, object storage and a scratch; `processing` runs a processor on them."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.place = Directory(path=folder / "blobs")
        self.scratch = folder / "scratch"
        self.blobs = open_blobs(self.place, clock=RealClock())
        self.meter = Meter()
        self.clock: Clock = RealClock()
        self.trace = ""
        self.results_url = ""  # another way to the database for results alone
        self.log = Notebook()

    async def upload(self, content: bytes, *numbers: int) -> None:
        """Put runs to work that have this upload."""
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
    ) -> AsyncIterator[Processor]:
        """A processor that works meanwhile, and then ends in order."""
        finish_within, blobs = how.pop("finish_within", 25.0), how.pop("blobs", self.blobs)
        way = url or self.url
        async with (
            pool(way, patience=2.0) as database,
            pool(self.results_url or way, patience=2.0, deadline=120.0) as results,
        ):
            processor = Processor(
                ProcessorDeps(
                    name=name,
                    clock=self.clock,
                    rng=random.Random(name),
                    log=self.log.logger,
                    settings=self.settings(**how),
                    database=database,
                    results=results,
                    pools=(database, results),
                    blobs=blobs,
                    meter=self.meter,
                    finish_within=finish_within,
                    trace=self.trace,
                )
            )
            ending = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                group.create_task(processor.run(ending=ending))
                try:
                    yield processor
                finally:
                    ending.set()

    async def over(self, count: int, *, within: float = 60.0) -> None:
        """Wait until so many runs are processed or given up."""
        await self.until(
            "SELECT count(*) FROM test_runs WHERE state IN ('processed', 'failed_processing')",
            lambda found: found >= count,
            within=within,
        )

    async def until(self, sql: str, good: Callable[[Any], bool], *, within: float = 60.0) -> Any:
        """Wait until the first value of a query is good; it is."""
        found: Any = None
        try:
            async with asyncio.timeout(within):
                while True:
                    ((found,),) = await asyncio.to_thread(look, self.url, sql)
                    if good(found):
                        return found
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"still {found}: {self.told()}") from None

    def told(self) -> list[Any]:
        """What the runs that are not processed say of themselves."""
        return look(
            self.url,
            "SELECT state, attempt, spent, reason_code, reason FROM test_runs WHERE state <> 'processed' LIMIT 20",
        )

    async def heard(self, event: str, *, within: float = 30.0) -> None:
        """Wait until a processor has said that."""
        try:
            async with asyncio.timeout(within):
                while event not in self.log.events:
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"it said only {sorted(self.log.events)}") from None

    def left(self) -> list[str]:
        """What is in the scratch."""
        return sorted(str(path) for path in self.scratch.rglob("*"))
