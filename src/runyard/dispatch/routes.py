"""Serves the HTTP routes for runners, the pool operator and GitHub.

    POST /api/internal/runners/dispatch        a runner asks for work (`polling`)
    POST /api/internal/runners/pods/stopped    the operator reports that a Pod has ended
    POST /webhooks/github                      GitHub reports an event of a job

`handle` serves only these routes; `routes()` returns them for a larger table.

Invariants:
- No request makes a handler raise: malformed input is answered with 4xx, a failed dependency with 5xx, and the caller
  may try again.
- Callers are authenticated before the body is read: an unauthenticated caller learns nothing from the response, except
  that its body was too long.
- Webhooks are answered only after their transaction is committed.
- No response repeats a credential.
"""

from collections.abc import Awaitable, Callable

import msgspec

from runyard.db.contract import DatabaseError, Row, Tx
from runyard.dispatch.authentication import Authenticator, NotAuthenticated
from runyard.dispatch.deps import Deps
from runyard.dispatch.intake.apply import Intake
from runyard.dispatch.machine.values import SlotState
from runyard.dispatch.plans.kinds import of_stop
from runyard.dispatch.polling import Polls
from runyard.dispatch.recovery.closing import Closer
from runyard.dispatch.samples import SampleStore
from runyard.dispatch.seal import SealError
from runyard.dispatch.signals import Signals
from runyard.dispatch.store import SQL
from runyard.github.signatures import verify
from runyard.github.views import JobEvent
from runyard.http.errors import TransportError
from runyard.http.messages import Request, Response, Stream, json_response
from runyard.http.openapi import Scheme
from runyard.http.problems import Problem, problem, refusal
from runyard.http.routes import Answers, Route, Routes
from runyard.kube.errors import KubeError
from runyard.telemetry.catalogue import RUNYARD_ACTIONS_TOTAL, TUIST_RUNNERS_RECOVERY_COUNT
from runyard.telemetry.names import Component
from runyard.wire.bodies import Dispatched, Drain, PodStopped, Received, Samples, ScalingSignals
from runyard.wire.instants import from_rfc3339
from runyard.wire.paths import (
    DESIRED_REPLICAS,
    DISPATCH,
    GITHUB_WEBHOOK,
    POD_METRICS,
    POD_STOPPED,
)
from runyard.wire.problem_codes import ProblemCode
from runyard.wire.reasons import logged
from runyard.wire.reasons_dispatch import DeliveryOutcome, Denied

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
_AGAIN = "try again: the request is idempotent"
_FAILED: Answers = {
    500: ("The database is unavailable, or the server failed.", Problem),
    503: ("The Kubernetes API is unavailable.", Problem),
}
_LONGEST_GUID = 100
_LONGEST_NAME = 253
_LONGEST_REASON = 300


class Api:
    """Answers runners, the operator and GitHub."""

    def __init__(
        self,
        deps: Deps,
        *,
        polls: Polls,
        intake: Intake,
        authenticator: Authenticator,
        closer: Closer,
        signals: Signals,
        samples: SampleStore,
    ) -> None:
        self._polls = polls
        self._intake = intake
        self._authenticator = authenticator
        self._closer = closer
        self._signals = signals
        self._samples = samples
        self._database = deps.database
        self._meter = deps.meter
        self._log = deps.log
        self._settings = deps.settings
        self._table = Routes("runyard dispatch", "v1", self.routes())

    async def handle(self, request: Request) -> Response | Stream:
        """Answer a request."""
        return await self._table.handle(request)

    def routes(self) -> tuple[Route, ...]:
        """Return all routes with their documentation."""
        limit = self._settings.body_limit
        return (
            Route(
                "POST",
                DISPATCH,
                self._with_problems(self._polls.answer),
                summary="A runner asks for work; the response is delayed while there is none.",
                answers={
                    200: ("The job's JIT configuration.", Dispatched),
                    204: ("No work yet: poll again.", None),
                    410: ("Exit: this runner is drained.", Drain),
                    **_FAILED,
                },
                scheme=_RUNNER,
                headers=(("prefer", "`wait=25`: how many seconds the runner is willing to wait"),),
                limit=limit,
            ),
            Route(
                "POST",
                POD_STOPPED,
                self._with_problems(self._stopped),
                summary="The operator reports that a Pod has ended; the server verifies it.",
                expects=PodStopped,
                answers={
                    204: ("The report was handled.", None),
                    400: ("The report is invalid.", Problem),
                    **_FAILED,
                },
                scheme=_OPERATOR,
                limit=limit,
            ),
            Route(
                "GET",
                DESIRED_REPLICAS,
                self._with_problems(self._desired),
                summary="The scaling signals of a pool: its demand and its recent concurrency.",
                answers={
                    200: ("The signals of this pool.", ScalingSignals),
                    400: ("The parameter `fleet` is missing or invalid.", Problem),
                    **_FAILED,
                },
                scheme=_ACCOUNT,
                query=(("fleet", "the name of the RunnerPool"),),
            ),
            Route(
                "POST",
                POD_METRICS,
                self._metrics,
                summary="A runner reports samples of its machine, for the job that it executes.",
                expects=Samples,
                answers={
                    204: ("The samples are stored, or belong to no job.", None),
                    400: ("The samples are invalid.", Problem),
                    **_FAILED,
                },
                scheme=_RUNNER,
                limit=limit,
            ),
            Route(
                "POST",
                GITHUB_WEBHOOK,
                self._with_problems(self._webhook),
                summary="GitHub reports an event of a job. Other events are acknowledged and ignored.",
                expects=JobEvent,
                answers={
                    200: ("The event is stored, or ignored.", Received),
                    400: ("The delivery has no guid, or is invalid.", Problem),
                    **_FAILED,
                },
                scheme=_SIGNATURE,
                headers=(
                    ("x-github-event", "`workflow_job`, or something else, which is ignored"),
                    ("x-github-delivery", "the delivery's guid; each is applied once"),
                ),
                limit=limit,
            ),
        )

    def _with_problems(self, answer: Answer) -> Answer:
        """Wrap a handler so that its errors become problem responses."""

        async def wrapped(request: Request) -> Response:
            try:
                return await answer(request)
            except NotAuthenticated as refused:
                return refusal(401, refused.error, refused.reason, fix=refused.fix)
            except DatabaseError as error:
                self._log.warning("database", path=request.path, error=str(error))
                reason = "the database cannot be used"
                return problem(500, ProblemCode.DISPATCH_DATABASE, reason=reason, fix=_AGAIN)
            except (KubeError, TransportError) as error:
                self._log.warning("kubernetes", path=request.path, error=str(error))
                reason = "the Kubernetes API does not answer, or refuses the server"
                return problem(503, ProblemCode.KUBERNETES_UNAVAILABLE, reason=reason, fix=_AGAIN)
            except SealError:
                self._log.error("a sealed JIT cannot be opened: was the seal key changed?")
                reason = "what was stored for this runner cannot be opened"
                return problem(500, ProblemCode.DISPATCH_SEALED, reason=reason)
            except Exception as defect:  # noqa: BLE001 the boundary: a defect is an answer, and counted
                self._meter.inc(
                    RUNYARD_ACTIONS_TOTAL,
                    component=Component.SERVER,
                    action="request",
                    outcome="internal-error",
                )
                self._log.error("request failed", path=request.path, exc_info=defect)
                return problem(500, ProblemCode.DISPATCH_FAILED, reason="see the server's log")

        return wrapped

    async def _webhook(self, request: Request) -> Response:
        signature = request.header(_SIGNATURE.header)
        if not verify(request.body, signature, self._settings.webhook_secrets):
            return _unsigned(signature)
        guid = request.header("x-github-delivery")
        if not guid or len(guid) > _LONGEST_GUID or not guid.isprintable():
            return _unnamed(guid)
        if request.header("x-github-event") != "workflow_job":
            return json_response(200, Received(outcome=DeliveryOutcome.IGNORED.value))
        result = await self._intake.apply(guid=guid, body=request.body)
        if result.reason is not None:
            self._log.warning("webhook refused", delivery=guid, **logged(result.reason))
            return refusal(400, f"{result.outcome.value} event", result.reason)
        return json_response(200, Received(outcome=result.outcome.value))

    async def _stopped(self, request: Request) -> Response:
        """Handle a stop report: it is a hint, so the slot is closed only on proof that the Pod is gone."""
        await self._authenticator.require_operator(
            request.header("authorization"), expected=self._settings.controller
        )
        try:
            report = _report(request.body)
            ended_at = from_rfc3339(report.ended_at)
        except (ValueError, RecursionError) as error:
            return problem(400, ProblemCode.REPORT_INVALID, reason=str(error))

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
        """Return the scaling signals of one pool."""
        await self._authenticator.service_account(request.header("authorization"))
        fleet = request.param("fleet")
        if not fleet or len(fleet) > _LONGEST_NAME or not fleet.isprintable():
            reason = "there is no fleet parameter, or it is no name of a pool"
            return problem(
                400, ProblemCode.POOL_NOT_NAMED, reason=reason, fix="ask with ?fleet=NAME"
            )
        return json_response(200, await self._signals.of(fleet))

    async def _metrics(self, request: Request, pod_name: str) -> Response:
        """Store samples of a runner's machine; a runner may report only for its own Pod."""

        async def take(request: Request) -> Response:
            runner = await self._authenticator.runner(request.header("authorization"))
            if runner.pod_name != pod_name:
                return refusal(401, "unauthorized principal", Denied.OTHER_POD.because())
            try:
                await self._samples.add(request.body, pod_uid=runner.pod_uid)
            except (ValueError, RecursionError) as error:
                return problem(
                    400, ProblemCode.SAMPLES_INVALID, reason=str(error)[:_LONGEST_REASON]
                )
            return Response(status=204)

        return await self._with_problems(take)(request)


def _report(body: bytes) -> PodStopped:
    """Decode a stop report; raises `ValueError` or `RecursionError` if it is invalid."""
    report = msgspec.json.decode(body, type=PodStopped)
    if not report.pod_name.isprintable():
        raise ValueError("pod_name has characters that cannot be printed")
    return report


def _unsigned(signature: str) -> Response:
    return problem(
        401,
        ProblemCode.SIGNATURE_INVALID,
        reason="it is not that of this body" if signature else f"there is no {_SIGNATURE.header}",
        fix="give the webhook at GitHub the secret that this server was given",
    )


def _unnamed(guid: str) -> Response:
    return problem(
        400,
        ProblemCode.DELIVERY_NOT_NAMED,
        reason=f"it is longer than {_LONGEST_GUID} characters, or cannot be printed"
        if guid
        else "it is missing or empty",
        fix="name each delivery, as GitHub does, so that it is applied once",
    )
