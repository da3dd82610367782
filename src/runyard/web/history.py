"""What is on record of a job or a slot: every transition, and how the machine did.

The log of transitions is the audit trail: who, when, from, to, why. It is written in the transaction of the change
itself, so what it does not tell did not happen. Answers are bounded, and say so if they are cut.
"""

from collections.abc import Awaitable, Callable

import msgspec

from runyard.db.contract import Database, DatabaseError, Row, Tx
from runyard.http.messages import Pairs, Request, Response, json_response
from runyard.http.problems import Problem, problem
from runyard.http.routes import Route
from runyard.web.records import SQL
from runyard.wire.bodies import Sample

MOST = 5000
_ID_LIMIT = 1 << 63
_TRANSITIONS = "/api/v1/jobs/{job}/transitions"
_METRICS = "/api/v1/jobs/{job}/metrics"
_SLOT = "/api/v1/slots/{uid}/transitions"


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the log; `at` in seconds since the epoch, an empty source for what is new."""

    at: float
    subject: str  # slot or job
    source: str
    target: str
    why: str
    actor: str
    job_id: int | None = None
    pod_uid: str | None = None


class Trail(msgspec.Struct, frozen=True, kw_only=True):
    """What the log says, oldest first; `more` if there is more than is told."""

    transitions: tuple[Change, ...]
    more: bool = False


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """How a job's machine did, oldest first; `more` if there is more than is told."""

    samples: tuple[Sample, ...]
    more: bool = False


async def trail_of_job(tx: Tx, job_id: int) -> Trail:
    """What the log says of a job, and of the slots that were meant for it."""
    return _trail(await tx.all(SQL.history_of_job, job_id=job_id, limit=MOST + 1))


async def trail_of_slot(tx: Tx, pod_uid: str) -> Trail:
    """What the log says of one life of a Pod."""
    return _trail(await tx.all(SQL.history_of_slot, pod_uid=pod_uid, limit=MOST + 1))


async def course_of_job(tx: Tx, job_id: int) -> Course:
    """How the machine did that executed a job."""
    rows = await tx.all(SQL.history_samples, job_id=job_id, limit=MOST + 1)
    found = tuple(msgspec.convert(row, Sample) for row in rows[:MOST])
    return Course(samples=found, more=len(rows) > MOST)


def _trail(rows: list[Row]) -> Trail:
    found = tuple(msgspec.convert(row, Change) for row in rows[:MOST])
    return Trail(transitions=found, more=len(rows) > MOST)


class HistoryApi:
    """The routes."""

    def __init__(self, database: Database, *, headers: Pairs = ()) -> None:
        self._database = database
        self._headers = headers

    def routes(self) -> tuple[Route, ...]:
        """What can be asked of the records."""
        away = {503: ("The database cannot be used.", Problem)}
        nobody = {400: ("That is no job's number.", Problem), **away}
        return (
            Route(
                "GET",
                _TRANSITIONS,
                self._job,
                summary="Everything that happened to a job: who, when, from, to, why.",
                answers={200: ("The log; empty if nothing is known.", Trail), **nobody},
                secured=True,
            ),
            Route(
                "GET",
                _SLOT,
                self._slot,
                summary="Everything that happened to one life of a Pod, by its uid.",
                answers={200: ("The log; empty if nothing is known.", Trail), **away},
                secured=True,
            ),
            Route(
                "GET",
                _METRICS,
                self._samples,
                summary="How the machine did that executed a job.",
                answers={200: ("The samples; empty if there are none.", Course), **nobody},
                secured=True,
            ),
        )

    async def _job(self, _: Request, job: str) -> Response:
        number = _number(job)
        if number is None:
            return _no_number(job)
        return await self._tell(lambda tx: trail_of_job(tx, number), name="trail of a job")

    async def _slot(self, _: Request, uid: str) -> Response:
        if not uid.isprintable():
            return json_response(200, Trail(transitions=()), self._headers)
        return await self._tell(lambda tx: trail_of_slot(tx, uid), name="trail of a slot")

    async def _samples(self, _: Request, job: str) -> Response:
        number = _number(job)
        if number is None:
            return _no_number(job)
        return await self._tell(lambda tx: course_of_job(tx, number), name="samples of a job")

    async def _tell(
        self, read: Callable[[Tx], Awaitable[Trail | Course]], *, name: str
    ) -> Response:
        try:
            found = await self._database.transact(read, name=name)
        except DatabaseError:
            return problem(503, "the database cannot be used", fix="try again")
        return json_response(200, found, self._headers)


def _number(text: str) -> int | None:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        return None
    number = int(text)
    return number if number < _ID_LIMIT else None


def _no_number(text: str) -> Response:
    return problem(400, "no job's number", reason=f"{text[:40]!r} is none", fix="ask with GitHub's")
