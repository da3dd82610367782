"""The server's HTTP surface as one function: `handle(request) -> response`.

Nothing that arrives makes it raise: what is malformed is answered with 4xx, what the world refuses
with 5xx, and the caller may try again. Webhooks are answered once their transaction is committed,
and not before.
"""

from collections.abc import Awaitable, Callable

import msgspec

from runyard.db.contract import Database, DatabaseError, Row, Tx
from runyard.dispatch.callers import Callers, NotAccepted
from runyard.dispatch.intake.apply import Intake
from runyard.dispatch.polling import Polls
from runyard.dispatch.recovery.sweeping import Sweeper
from runyard.dispatch.seal import SealError
from runyard.dispatch.settings import Settings
from runyard.dispatch.store import SQL
from runyard.github.signatures import verify
from runyard.http.errors import TransportError
from runyard.http.messages import Request, Response, json_response
from runyard.kube.errors import KubeError
from runyard.telemetry.catalogue import RUNYARD_ACTIONS_TOTAL
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter
from runyard.wire.bodies import PodStopped, Problem
from runyard.wire.instants import from_rfc3339
from runyard.wire.paths import DISPATCH, GITHUB_WEBHOOK, POD_STOPPED

Answer = Callable[[Request], Awaitable[Response]]


class Api:
    """Routes requests."""

    def __init__(
        self,
        *,
        polls: Polls,
        intake: Intake,
        callers: Callers,
        sweeper: Sweeper,
        database: Database,
        meter: Meter,
        log: Logger,
        settings: Settings,
    ) -> None:
        self._polls = polls
        self._intake = intake
        self._callers = callers
        self._sweeper = sweeper
        self._database = database
        self._meter = meter
        self._log = log
        self._settings = settings
        self._routes: dict[tuple[str, str], Answer] = {
            ("POST", DISPATCH): polls.answer,
            ("POST", GITHUB_WEBHOOK): self._webhook,
            ("POST", POD_STOPPED): self._stopped,
        }

    async def handle(self, request: Request) -> Response:
        """Answer a request."""
        answer = self._routes.get((request.method, request.path))
        if answer is None:
            known = any(path == request.path for _, path in self._routes)
            return json_response(405 if known else 404, Problem(error="no such endpoint"))
        if len(request.body) > self._settings.body_limit:
            return json_response(413, Problem(error="body too large"))
        try:
            return await answer(request)
        except DatabaseError as error:
            self._log.warning("database", path=request.path, error=str(error))
            return json_response(500, Problem(error="dispatch failed"))
        except (KubeError, TransportError) as error:
            self._log.warning("kubernetes", path=request.path, error=str(error))
            return json_response(503, Problem(error="kubernetes unavailable"))
        except SealError:
            self._log.error("a sealed JIT cannot be opened: was the seal key changed?")
            return json_response(500, Problem(error="dispatch failed"))
        except Exception as defect:  # noqa: BLE001 the boundary: a defect is an answer, and counted
            self._meter.inc(
                RUNYARD_ACTIONS_TOTAL, room="dispatch", action="request", outcome="defect"
            )
            self._log.error("request failed", path=request.path, exc_info=defect)
            return json_response(500, Problem(error="dispatch failed"))

    async def _webhook(self, request: Request) -> Response:
        signature = request.header("x-hub-signature-256")
        if not verify(request.body, signature, self._settings.webhook_secrets):
            return json_response(401, Problem(error="bad signature"))
        guid = request.header("x-github-delivery")
        if not guid or len(guid) > 100 or not guid.isprintable():
            return json_response(400, Problem(error="no x-github-delivery header"))
        if request.header("x-github-event") != "workflow_job":
            return json_response(200, {"outcome": "ignored"})
        outcome = await self._intake.apply(guid=guid, body=request.body)
        return json_response(200, {"outcome": outcome})

    async def _stopped(self, request: Request) -> Response:
        """The operator says that a Pod has ended: a hint, so the proof is asked for."""
        try:
            await self._callers.controller(
                request.header("authorization"), expected=self._settings.controller
            )
        except NotAccepted as refusal:
            return json_response(401, Problem(error=str(refusal)))
        try:
            report = msgspec.json.decode(request.body, type=PodStopped)
            from_rfc3339(report.ended_at)
        except (msgspec.DecodeError, ValueError) as error:
            return json_response(400, Problem(error=f"bad report: {error}"))

        async def named(tx: Tx) -> Row | None:
            return await tx.one(SQL.slot_by_pod_name, pod_name=report.pod_name)

        if not report.pod_name.isprintable():
            return json_response(400, Problem(error="bad report: pod_name"))
        row = await self._database.transact(named, name="stop report")
        if row is not None:
            await self._sweeper.close_if_gone(pod_name=report.pod_name, pod_uid=row["pod_uid"])
        return Response(status=204)
