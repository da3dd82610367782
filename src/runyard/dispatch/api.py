"""The server's HTTP surface: what runners, the pool operator and GitHub may ask of it, as a table of routes.

    POST /api/internal/runners/dispatch        a runner asks for work (`polling`)
    POST /api/internal/runners/pods/stopped    the operator says that a Pod has ended
    POST /webhooks/github                      GitHub says what became of a job

`handle` serves the table alone; whoever has more to serve puts `routes()` into a table of their own.

Invariants:
- Nothing that arrives makes a handler raise, whichever table it is in: what is malformed is answered with 4xx, what
  the world refuses with 5xx, and the caller may try again.
- Who asks is known before anything of the body is looked at: a stranger learns nothing from what it sends, except
  that it was too long.
- Webhooks are answered once their transaction is committed, and not before.
- No refusal repeats a credential.
"""

from collections.abc import Awaitable, Callable

import msgspec

from runyard.db.contract import Database, DatabaseError, Row, Tx
from runyard.dispatch.callers import Callers, NotAccepted
from runyard.dispatch.intake.apply import Intake
from runyard.dispatch.machine.values import SlotState
from runyard.dispatch.plans.kinds import of_stop
from runyard.dispatch.polling import Polls
from runyard.dispatch.records import Records
from runyard.dispatch.recovery.closing import Closer
from runyard.dispatch.seal import SealError
from runyard.dispatch.settings import Settings
from runyard.dispatch.signals import Signals
from runyard.dispatch.store import SQL
from runyard.github.signatures import verify
from runyard.github.views import JobEvent
from runyard.http.errors import TransportError
from runyard.http.messages import Request, Response, Stream, json_response
from runyard.http.openapi import Scheme
from runyard.http.problems import Problem, problem
from runyard.http.routes import Answers, Route, Routes
from runyard.kube.errors import KubeError
from runyard.telemetry.catalogue import RUNYARD_ACTIONS_TOTAL, TUIST_RUNNERS_RECOVERY_COUNT
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter
from runyard.wire.bodies import Dispatched, Drain, PodStopped, Received, Samples, ScalingSignals
from runyard.wire.instants import from_rfc3339
from runyard.wire.paths import (
    DESIRED_REPLICAS,
    DISPATCH,
    GITHUB_WEBHOOK,
    POD_METRICS,
    POD_STOPPED,
)

Answer = Callable[[Request], Awaitable[Response]]

_RUNNER = Scheme(
    name="runner", meaning="The token of a runner's own ServiceAccount, bound to its Pod."
)
_ACCOUNT = Scheme(name="account", meaning="The token of any ServiceAccount of the cluster.")
_OPERATOR = Scheme(name="operator", meaning="The token of the pool operator's ServiceAccount.")
_SIGNATURE = Scheme(
    name="signature",
    meaning="`sha256=` and the HMAC of the body, made with the webhook's secret.",
    header="x-hub-signature-256",
)
_AGAIN = "try again: asking twice does no harm"
_FAILED: Answers = {
    500: ("The database cannot be used, or the server has a defect.", Problem),
    503: ("The Kubernetes API cannot be asked.", Problem),
}
_LONGEST_GUID = 100
_LONGEST_NAME = 253
_LONGEST_REASON = 300


class Api:
    """Answers runners, the operator and GitHub."""

    def __init__(
        self,
        *,
        polls: Polls,
        intake: Intake,
        callers: Callers,
        closer: Closer,
        signals: Signals,
        records: Records,
        database: Database,
        meter: Meter,
        log: Logger,
        settings: Settings,
    ) -> None:
        self._polls = polls
        self._intake = intake
        self._callers = callers
        self._closer = closer
        self._signals = signals
        self._records = records
        self._database = database
        self._meter = meter
        self._log = log
        self._settings = settings
        self._table = Routes("runyard dispatch", "v1", self.routes())

    async def handle(self, request: Request) -> Response | Stream:
        """Answer a request."""
        return await self._table.handle(request)

    def routes(self) -> tuple[Route, ...]:
        """Everything that can be asked here."""
        limit = self._settings.body_limit
        return (
            Route(
                "POST",
                DISPATCH,
                self._bounded(self._polls.answer),
                summary="A runner asks for work, and is kept waiting for a while if there is none.",
                answers={
                    200: ("Run this.", Dispatched),
                    204: ("There is nothing to do yet: ask again.", None),
                    410: ("Exit: this runner is to be replaced.", Drain),
                    **_FAILED,
                },
                scheme=_RUNNER,
                headers=(("prefer", "`wait=25`: how many seconds the runner is willing to wait"),),
                limit=limit,
            ),
            Route(
                "POST",
                POD_STOPPED,
                self._bounded(self._stopped),
                summary="The operator says that a Pod has ended; the server looks for itself.",
                expects=PodStopped,
                answers={
                    204: ("It was looked at.", None),
                    400: ("The report makes no sense.", Problem),
                    **_FAILED,
                },
                scheme=_OPERATOR,
                limit=limit,
            ),
            Route(
                "GET",
                DESIRED_REPLICAS,
                self._bounded(self._desired),
                summary="What a pool's size may be chosen by: its demand, and what it needed lately.",
                answers={
                    200: ("The signals of this pool.", ScalingSignals),
                    400: ("No pool was named.", Problem),
                    **_FAILED,
                },
                scheme=_ACCOUNT,
                query=(("fleet", "the name of the RunnerPool"),),
            ),
            Route(
                "POST",
                POD_METRICS,
                self._metrics,
                summary="A runner says how its machine does, for the job that it executes.",
                expects=Samples,
                answers={
                    204: ("They are kept, or belong to no job.", None),
                    400: ("The samples make no sense.", Problem),
                    **_FAILED,
                },
                scheme=_RUNNER,
                limit=limit,
            ),
            Route(
                "POST",
                GITHUB_WEBHOOK,
                self._bounded(self._webhook),
                summary="GitHub says what became of a job. Other events are acknowledged and ignored.",
                expects=JobEvent,
                answers={
                    200: ("It is stored, or of no interest.", Received),
                    400: ("The delivery has no name, or makes no sense.", Problem),
                    **_FAILED,
                },
                scheme=_SIGNATURE,
                headers=(
                    ("x-github-event", "`workflow_job`, or something else, which is ignored"),
                    ("x-github-delivery", "the delivery's name; the same one is applied once"),
                ),
                limit=limit,
            ),
        )

    def _bounded(self, answer: Answer) -> Answer:
        """The answer, or what stands in its way as an answer."""

        async def bounded(request: Request) -> Response:
            try:
                return await answer(request)
            except NotAccepted as refused:
                return problem(401, refused.error, reason=refused.reason, fix=refused.fix)
            except DatabaseError as error:
                self._log.warning("database", path=request.path, error=str(error))
                reason = "the database cannot be used"
                return problem(500, "dispatch failed", reason=reason, fix=_AGAIN)
            except (KubeError, TransportError) as error:
                self._log.warning("kubernetes", path=request.path, error=str(error))
                reason = "the Kubernetes API does not answer, or refuses the server"
                return problem(503, "kubernetes unavailable", reason=reason, fix=_AGAIN)
            except SealError:
                self._log.error("a sealed JIT cannot be opened: was the seal key changed?")
                reason = "what was stored for this runner cannot be opened"
                return problem(500, "dispatch failed", reason=reason)
            except Exception as defect:  # noqa: BLE001 the boundary: a defect is an answer, and counted
                self._meter.inc(
                    RUNYARD_ACTIONS_TOTAL, room="dispatch", action="request", outcome="defect"
                )
                self._log.error("request failed", path=request.path, exc_info=defect)
                return problem(500, "dispatch failed", reason="see the server's log")

        return bounded

    async def _webhook(self, request: Request) -> Response:
        signature = request.header(_SIGNATURE.header)
        if not verify(request.body, signature, self._settings.webhook_secrets):
            return _unsigned(signature)
        guid = request.header("x-github-delivery")
        if not guid or len(guid) > _LONGEST_GUID or not guid.isprintable():
            return _unnamed(guid)
        if request.header("x-github-event") != "workflow_job":
            return json_response(200, Received(outcome="ignored"))
        came = await self._intake.apply(guid=guid, body=request.body)
        if came.reason:
            self._log.warning("webhook refused", delivery=guid, reason=came.reason)
            return problem(400, f"{came.outcome} event", reason=came.reason)
        return json_response(200, Received(outcome=came.outcome))

    async def _stopped(self, request: Request) -> Response:
        """The operator says that a Pod has ended: a hint, so the proof is asked for."""
        await self._callers.controller(
            request.header("authorization"), expected=self._settings.controller
        )
        try:
            report = _report(request.body)
            ended_at = from_rfc3339(report.ended_at)
        except (ValueError, RecursionError) as error:
            return problem(400, "bad report", reason=str(error))

        async def ended(tx: Tx) -> Row | None:
            return await tx.one(SQL.slot_ended, pod_name=report.pod_name, ended_at=ended_at)

        row = await self._database.transact(ended, name="stop report")
        if row is None or row["state"] == SlotState.CLOSED:
            return Response(status=204)
        closed = await self._closer.close_if_gone(pod_name=report.pod_name, pod_uid=row["pod_uid"])
        for kind in () if closed is None else of_stop(closed.before, closed.after):
            self._meter.inc(TUIST_RUNNERS_RECOVERY_COUNT, kind=kind)
        return Response(status=204)

    async def _desired(self, request: Request) -> Response:
        """An autoscaler asks how large a pool should be."""
        await self._callers.account(request.header("authorization"))
        fleet = request.param("fleet")
        if not fleet or len(fleet) > _LONGEST_NAME or not fleet.isprintable():
            reason = "there is no fleet parameter, or it is no name of a pool"
            return problem(400, "which pool?", reason=reason, fix="ask with ?fleet=NAME")
        return json_response(200, await self._signals.of(fleet))

    async def _metrics(self, request: Request, pod_name: str) -> Response:
        """A guest reports on its machine: only for itself."""

        async def take(request: Request) -> Response:
            guest = await self._callers.guest(request.header("authorization"))
            if guest.pod_name != pod_name:
                reason = "a runner speaks for itself alone"
                return problem(401, "unauthorized principal", reason=reason)
            try:
                await self._records.take(request.body, pod_uid=guest.pod_uid)
            except (ValueError, RecursionError) as error:
                return problem(400, "bad samples", reason=str(error)[:_LONGEST_REASON])
            return Response(status=204)

        return await self._bounded(take)(request)


def _report(body: bytes) -> PodStopped:
    """The report in a body; `ValueError` or `RecursionError` if it makes no sense."""
    report = msgspec.json.decode(body, type=PodStopped)
    if not report.pod_name.isprintable():
        raise ValueError("pod_name has characters that cannot be printed")
    return report


def _unsigned(signature: str) -> Response:
    return problem(
        401,
        "bad signature",
        reason="it is not that of this body" if signature else f"there is no {_SIGNATURE.header}",
        fix="give the webhook at GitHub the secret that this server was given",
    )


def _unnamed(guid: str) -> Response:
    return problem(
        400,
        "no x-github-delivery header",
        reason=f"it is longer than {_LONGEST_GUID} characters, or cannot be printed"
        if guid
        else "it is missing or empty",
        fix="name each delivery, as GitHub does, so that it is applied once",
    )
