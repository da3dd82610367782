"""Wires test results in a server: the REST, the route of signed links, and the retention.

A server without object storage serves no test results.
"""

import random
from collections.abc import Callable, Sequence

import msgspec

from runyard.blobs.contract import Blobs
from runyard.blobs.links import Links
from runyard.blobs.location import check
from runyard.blobs.plans.slots import Limits
from runyard.blobs.routes import BlobRoutes
from runyard.clock import Clock
from runyard.db.contract import Database
from runyard.http.messages import Request
from runyard.http.routes import Guard, Route
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter
from runyard.wire.paths import BLOBS
from runyard.xcresult.object_keys import owner_of
from runyard.xcresult.processor.enqueueing import enqueue
from runyard.xcresult.rest.cases import Cases
from runyard.xcresult.rest.coverage import Coverages
from runyard.xcresult.rest.history import History
from runyard.xcresult.rest.retention import RetentionSweep
from runyard.xcresult.rest.runs import Runs
from runyard.xcresult.rest.settings import Settings
from runyard.xcresult.rest.tokens import Tokens
from runyard.xcresult.rest.uploads import UploadDeps, Uploads
from runyard.xcresult.routes import Api, Pieces


class ResultsSetup(msgspec.Struct, frozen=True, kw_only=True):
    """Dependencies and settings of test results in a server."""

    blobs: Blobs
    keys: tuple[bytes, ...]  # that links and tokens are signed with; the first signs
    settings: Settings = Settings()


class Results:
    """Test results of one replica."""

    def __init__(
        self,
        setup: ResultsSetup,
        *,
        database: Database,
        clock: Clock,
        rng: random.Random,
        meter: Meter,
        log: Logger,
    ) -> None:
        self.setup = setup
        settings, blobs = setup.settings, setup.blobs
        links = Links(setup.keys, clock=clock)
        uploads = Uploads(
            UploadDeps(
                database=database,
                blobs=blobs,
                links=links,
                clock=clock,
                rng=rng,
                meter=meter,
                settings=settings,
            ),
            enqueue=enqueue,
        )
        self._settings = settings
        self._log = log
        self._pieces = Pieces(
            uploads=uploads,
            runs=Runs(database),
            cases=Cases(database, blobs=blobs, links=links, clock=clock, settings=settings),
            history=History(database),
            coverage=Coverages(database),
            tokens=Tokens(setup.keys, clock=clock),
        )
        self._blobs = BlobRoutes(
            blobs,
            links=links,
            clock=clock,
            meter=meter,
            log=log,
            client_of=owner_of,
            limits=Limits(longest=settings.upload_longest),
        )
        self.retention = RetentionSweep(
            database,
            blobs=blobs,
            uploads=uploads,
            clock=clock,
            meter=meter,
            log=log,
            settings=settings,
        )

    def routes(self, guard: Guard, *, secure: bool) -> tuple[tuple[Route, ...], Guard]:
        """The routes of test results for one socket, and the guard of that whole socket."""
        api = Api(self._pieces, settings=self._settings, log=self._log, secure=secure)
        return (*api.routes(), *self._blobs.routes()), api.guard(guard)


class ObjectsWatch:
    """Reports whether object storage can be used."""

    def __init__(self, blobs: Blobs, *, report: Callable[[str], None]) -> None:
        self._blobs = blobs
        self._report = report

    async def step(self) -> None:
        """Check once."""
        self._report(await check(self._blobs))


def streamed(request: Request) -> bool:
    """Whether the body of a request is streamed to object storage."""
    return request.method == "PUT" and request.path.startswith(f"{BLOBS}/")


def wire_results(
    setup: ResultsSetup | None,
    *,
    database: Database,
    clock: Clock,
    rng: random.Random,
    meter: Meter,
    log: Logger,
) -> Results | None:
    """Wire test results; None if the server has no object storage."""
    if setup is None:
        return None
    return Results(setup, database=database, clock=clock, rng=rng, meter=meter, log=log)


def keys_of(seal_key: bytes, given: Sequence[bytes] = ()) -> tuple[bytes, ...]:
    """The keys that sign links and tokens: the given ones, else the seal key."""
    return tuple(given) or (seal_key,)
