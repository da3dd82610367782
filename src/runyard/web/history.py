"""Serves the transition log of a job or a slot, and the machine metrics of a job.

The transition log is the audit trail: actor, time, source state, target state, reason. Each entry is written in the
transaction of its change, so the log is complete. Responses are bounded; `more` is true when entries were left out.
"""

from collections.abc import Awaitable, Callable

import msgspec

from runyard.db.contract import Database, DatabaseError, Row, Tx
from runyard.http.messages import Pairs, Request, Response, json_response
from runyard.http.problems import Problem, problem
from runyard.http.routes import Route
from runyard.web.records import SQL
from runyard.wire.bodies import Sample
from runyard.wire.problem_codes import ProblemCode
from runyard.wire.reasons_dispatch import TRANSITIONS

MOST = 5000
_ID_LIMIT = 1 << 63
_TRANSITIONS = "/api/v1/jobs/{job}/transitions"
_METRICS = "/api/v1/jobs/{job}/metrics"
_SLOT = "/api/v1/slots/{uid}/transitions"


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the transition log; `at` is in seconds since the epoch, `source` is empty for a new object."""

    at: float
    subject: str  # slot or job
    source: str
    target: str
    reason: str  # a slug
    detail: dict[str, str | int | float]
    text: str  # the reason as a sentence
    actor: str
    job_id: int | None = None
    pod_uid: str | None = None


class TransitionLog(msgspec.Struct, frozen=True, kw_only=True):
    """Transitions, oldest first; `more` is true when some were left out."""

    transitions: tuple[Transition, ...]
    more: bool = False


class JobMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """Machine metrics of a job, oldest first; `more` is true when some were left out."""

    samples: tuple[Sample, ...]
    more: bool = False


async def read_job_transitions(tx: Tx, job_id: int) -> TransitionLog:
    """Read the transitions of a job and of the slots that were assigned to it."""
    return _transition_log(await tx.all(SQL.history_of_job, job_id=job_id, limit=MOST + 1))


async def read_slot_transitions(tx: Tx, pod_uid: str) -> TransitionLog:
    """Read the transitions of the slot of one Pod."""
    return _transition_log(await tx.all(SQL.history_of_slot, pod_uid=pod_uid, limit=MOST + 1))


async def read_job_metrics(tx: Tx, job_id: int) -> JobMetrics:
    """Read the metrics of the machine that executed a job."""
    rows = await tx.all(SQL.history_samples, job_id=job_id, limit=MOST + 1)
    found = tuple(msgspec.convert(row, Sample) for row in rows[:MOST])
    return JobMetrics(samples=found, more=len(rows) > MOST)


def _transition_log(rows: list[Row]) -> TransitionLog:
    found = tuple(_transition(row) for row in rows[:MOST])
    return TransitionLog(transitions=found, more=len(rows) > MOST)


def _transition(row: Row) -> Transition:
    return Transition(**row, text=TRANSITIONS.text(row["reason"], row["detail"]))


class HistoryApi:
    """Routes for transitions and metrics."""

    def __init__(self, database: Database, *, headers: Pairs = ()) -> None:
        self._database = database
        self._headers = headers

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        unavailable = {503: ("The database cannot be used.", Problem)}
        failures = {400: ("The job id is not a number.", Problem), **unavailable}
        return (
            Route(
                "GET",
                _TRANSITIONS,
                self._job,
                summary="The transitions of a job: actor, time, source, target, reason.",
                answers={
                    200: ("The transitions; empty for an unknown object.", TransitionLog),
                    **failures,
                },
                secured=True,
            ),
            Route(
                "GET",
                _SLOT,
                self._slot,
                summary="The transitions of a slot, by its Pod's uid.",
                answers={
                    200: ("The transitions; empty for an unknown object.", TransitionLog),
                    **unavailable,
                },
                secured=True,
            ),
            Route(
                "GET",
                _METRICS,
                self._samples,
                summary="CPU, memory, network and disk of the machine that executed a job.",
                answers={200: ("The samples; empty if there are none.", JobMetrics), **failures},
                secured=True,
            ),
        )

    async def _job(self, _: Request, job: str) -> Response:
        number = _number(job)
        if number is None:
            return _invalid_number(job)
        return await self._respond(
            lambda tx: read_job_transitions(tx, number), name="transitions of a job"
        )

    async def _slot(self, _: Request, uid: str) -> Response:
        if not uid.isprintable():
            return json_response(200, TransitionLog(transitions=()), self._headers)
        return await self._respond(
            lambda tx: read_slot_transitions(tx, uid), name="transitions of a slot"
        )

    async def _samples(self, _: Request, job: str) -> Response:
        number = _number(job)
        if number is None:
            return _invalid_number(job)
        return await self._respond(lambda tx: read_job_metrics(tx, number), name="samples of a job")

    async def _respond(
        self, read: Callable[[Tx], Awaitable[TransitionLog | JobMetrics]], *, name: str
    ) -> Response:
        try:
            found = await self._database.transact(read, name=name)
        except DatabaseError:
            return problem(503, ProblemCode.DATABASE_UNAVAILABLE, fix="try again")
        return json_response(200, found, self._headers)


def _number(text: str) -> int | None:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        return None
    number = int(text)
    return number if number < _ID_LIMIT else None


def _invalid_number(text: str) -> Response:
    return problem(
        400,
        ProblemCode.JOB_NUMBER_INVALID,
        reason=f"{text[:40]!r} is not a number",
        fix="use the number of the job at GitHub",
    )
