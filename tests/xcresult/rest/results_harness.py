"""A server of test results on loopback with database and store, and helpers that insert results."""

import asyncio
import contextlib
import datetime as dt
import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

import msgspec
import psycopg
from tests.blobs.blobstores import ShiftedClock

from runyard.blobs.location import Directory, Location
from runyard.blobs.opening import open_blobs
from runyard.blobs.store import StoredBlobs
from runyard.components.results import Results, ResultsSetup, streamed
from runyard.db.pooled import PooledDatabase, open_pool
from runyard.http.client import HttpTransport
from runyard.http.messages import Request, Response, Stream
from runyard.http.routes import Routes
from runyard.http.server import Timeouts, listen
from runyard.telemetry.log import get_logger
from runyard.telemetry.meter import Meter
from runyard.web.access import Access
from runyard.web.settings import Settings as Looking
from runyard.xcresult.coverage_encoding import pack
from runyard.xcresult.rest.settings import Settings

TOKEN = "the-dashboards-own-token"
KEY = b"k" * 32
JSON = (("content-type", "application/json"),)
RUN, OTHER_RUN = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
NEW = {"id": RUN, "account": "Acme", "project": "App"}


class Harness:
    """The server as a client sees it, with its database and store."""

    def __init__(
        self, url: str, database_url: str, database: PooledDatabase, blobs: StoredBlobs,
        results: Results, meter: Meter, clock: ShiftedClock,
    ) -> None:  # fmt: skip
        self.url = url
        self.database = database
        self.blobs = blobs
        self.results = results
        self.meter = meter
        self.clock = clock
        self.link = psycopg.connect(database_url, autocommit=True)
        self.transport = HttpTransport(url)

    async def send(self, request: Request) -> Response:
        got = await self.transport.send(request, timeout=20)
        if isinstance(got, Stream):
            body = b"".join([piece async for piece in got])
            await got.aclose()
            return Response(status=got.status, headers=got.headers, body=body)
        return got

    async def ask(
        self, method: str, path: str, body: Any = None, /, *, token: str = TOKEN, **query: object
    ) -> Response:
        headers = JSON if body is not None else ()
        if token:
            headers = (*headers, ("authorization", f"Bearer {token}"))
        return await self.send(
            Request(
                method=method,
                path=path,
                query=tuple((name, str(value)) for name, value in query.items()),
                headers=headers,
                body=b"" if body is None else msgspec.json.encode(body),
            )
        )

    async def get(self, path: str, /, *, token: str = TOKEN, **query: object) -> Any:
        answer = await self.ask("GET", path, token=token, **query)
        assert answer.status == 200, (path, answer.status, answer.body)
        return answer.json()

    async def follow(self, url: str, method: str = "GET", body: bytes = b"") -> Response:
        """Request a link of this server."""
        parts = urlsplit(url)
        assert url.startswith(self.url)
        query = tuple(parse_qsl(parts.query, keep_blank_values=True))
        return await self.send(Request(method=method, path=parts.path, query=query, body=body))

    async def announced(self, **more: object) -> Any:
        answer = await self.ask("POST", "/api/v1/test-runs", {**NEW, **more})
        assert answer.status == 200, answer.body
        return answer.json()

    async def token(self, **body: object) -> str:
        answer = await self.ask("POST", "/api/v1/test-tokens", body)
        assert answer.status == 201, answer.body
        return str(answer.json()["token"])

    def rows(self, sql: str, *values: object) -> list[Any]:
        return self.link.execute(cast("Any", sql), values).fetchall()

    def change(self, sql: str, *values: object) -> None:
        self.link.execute(cast("Any", sql), values)

    def age(self, days: float) -> None:
        """Make all rows older by this many days."""
        for table, columns in {
            "test_runs": ("created_at", "ran_at", "finished_at"),
            "test_payloads": ("touched_at",),
            "test_cases": ("last_seen",),
            "test_case_runs": ("ran_at",),
        }.items():
            moved = ", ".join(f"{name} = {name} - %(by)s * interval '1 day'" for name in columns)
            self.link.execute(cast("Any", f"UPDATE {table} SET {moved}"), {"by": days})

    # ── results by hand ─────────────────────────────────────────────────────────────────────────

    def insert(self, table: str, **values: object) -> None:
        """Insert one row, unless it exists."""
        marks = ", ".join(f"%({name})s" for name in values)
        sql = f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks}) ON CONFLICT DO NOTHING"
        self.link.execute(cast("Any", sql), values)

    def run(self, run: str = RUN, *, shard: int = 0, hours: float = 1, **columns: object) -> str:
        """Insert a run that was processed some hours ago."""
        ago = dt.datetime.now(dt.UTC) - dt.timedelta(hours=hours)
        at: dict[str, object] = {"run_id": run, "shard": shard}
        values: dict[str, object] = {
            **at,
            "account": "acme",
            "project": "app",
            "state": "processed",
            "status": "success",
            **dict.fromkeys(("ran_at", "created_at", "uploaded_at", "finished_at"), ago),
            **columns,
        }
        home = f"{values['account']}/{values['project']}"
        values["storage_key"] = f"{home}/uploads/{run}/{shard}/0/result_bundle.zip"
        self.insert("test_runs", **values)
        counts = dict.fromkeys(("cases", "failed", "skipped", "flaky", "average_case_ms"), 1)
        counts["duration_ms"] = 10
        module = {**at, "module": 0, "status": "success"}
        self.insert("test_modules", **module, name="AppTests", suites=1, **counts)
        self.insert("test_suites", **module, suite=0, name="Suite", **counts)
        return run

    def case(
        self,
        run: str = RUN,
        name: str = "testOne()",
        *,
        shard: int = 0,
        number: int = 0,
        **columns: Any,
    ) -> str:
        """Insert the result of a case in a run; returns the id of the test."""
        sql = "SELECT account, project, ran_at FROM test_runs WHERE run_id = %s AND shard = %s"
        account, project, ran_at = self.rows(sql, run, shard)[0]
        case = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{account}/{project}/{name}"))
        self.insert(
            "test_cases",
            case_id=case,
            account=account,
            project=project,
            module="AppTests",
            suite="Suite",
            name=name,
            identifier=f"Suite/{name}",
            first_seen=ran_at,
            last_seen=ran_at,
        )
        self.insert(
            "test_case_runs",
            run_id=run,
            shard=shard,
            number=number,
            case_id=case,
            module=0,
            suite=0,
            name=name,
            ran_at=ran_at,
            **{"status": "success", "duration_ms": 5, **columns},
        )
        return case

    def failure(self, run: str, message: str, *, number: int = 0, **place: int) -> None:
        """Insert a failure of a case, or of its argument or repetition."""
        values = {"shard": 0, "argument": 0, "repetition": 0, "failure": 1, **place}
        self.insert(
            "test_failures",
            run_id=run,
            number=number,
            message=message,
            path="AppTests.swift",
            line_number=12,
            issue_type="assertion_failure",
            **values,
        )

    async def attachment(
        self, run: str = RUN, content: bytes = b"png", *, name: str = "Shot.png", **place: int
    ) -> str:
        """Insert an attachment of a case and store its bytes once for each project; returns its id."""
        at = {"shard": 0, "number": 0, "place": 1, **place}
        sql = "SELECT account, project FROM test_runs WHERE run_id = %s"
        account, project = self.rows(sql, run)[0]
        payload = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{account}/{project}/{content!r}"))
        key = f"{account}/{project}/payloads/{payload}"
        attachment = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{run}/{at}"))
        await self.blobs.put(key, content)
        self.insert(
            "test_payloads",
            payload_id=payload,
            account=account,
            project=project,
            content_id="0~x",
            storage_key=key,
            size=len(content),
            touched_at=dt.datetime.now(dt.UTC),
            uploaded_at=dt.datetime.now(dt.UTC),
        )
        self.insert(
            "test_attachments",
            attachment_id=attachment,
            run_id=run,
            payload_id=payload,
            file_name=name,
            size=len(content),
            uniform_type="public.png",
            **at,
        )
        return attachment

    def covered(
        self, run: str, path: str, counts: dict[int, int], *, shard: int = 0, file: int = 0
    ) -> None:
        """Insert the coverage of a file, in one target."""
        figures = {
            "covered_lines": sum(1 for count in counts.values() if count),
            "executable_lines": len(counts),
        }
        at: dict[str, object] = {"run_id": run, "shard": shard, "target": 0}
        self.insert("coverage_targets", **at, name="App.app", covered_lines=0, executable_lines=0)
        self.change(
            "UPDATE coverage_targets SET covered_lines = covered_lines + %s,"
            " executable_lines = executable_lines + %s WHERE run_id = %s AND shard = %s",
            *figures.values(),
            run,
            shard,
        )
        lines = pack(sorted(counts.items()))
        self.insert("coverage_files", **at, file=file, path=path, **figures, lines=lines)


Scenario = Callable[[Harness], Awaitable[None]]


def play(
    scenario: Scenario,
    database_url: str,
    folder: Path,
    *,
    settings: Settings | None = None,
    location: Location | None = None,
) -> None:
    async def main() -> None:
        async with serving(database_url, folder, settings=settings, location=location) as harness:
            await scenario(harness)

    asyncio.run(main())


@contextlib.asynccontextmanager
async def serving(
    database_url: str, folder: Path, *, settings: Settings | None, location: Location | None
) -> AsyncIterator[Harness]:
    clock, meter, rng = ShiftedClock(), Meter(), random.Random(7)
    blobs = open_blobs(location or Directory(path=folder / "blobs"), clock=clock)
    access = Access(Looking(token=TOKEN), clock=clock)
    async with open_pool(database_url, clock=clock, rng=rng) as database:
        results = Results(
            ResultsSetup(blobs=blobs, keys=(KEY,), settings=settings or Settings()),
            database=database,
            clock=clock,
            rng=rng,
            meter=meter,
            log=get_logger("test"),
        )
        routes, guard = results.routes(access.refusal, secure=False)
        table = Routes("results", "v1", routes, guard=guard, private=True)
        server = await listen(table.handle, streamed=streamed, timeouts=Timeouts(linger=0.2))
        harness = Harness(server.url, database_url, database, blobs, results, meter, clock)
        try:
            yield harness
        finally:
            harness.link.close()
            await harness.transport.close()
            await server.close()
