"""Tests that failed requests of a component become its health conditions."""

import asyncio

import pytest

from runyard.clock import RealClock
from runyard.components.reporting import ReportingDatabase, ReportingTransport
from runyard.db.contract import Tx, Unavailable
from runyard.http.errors import NotSent, OutcomeUnknown, TransportError
from runyard.http.messages import Request, Response, Stream
from runyard.telemetry.conditions import (
    DATABASE_UNREACHABLE,
    KUBERNETES_REFUSED,
    KUBERNETES_UNREACHABLE,
)
from runyard.telemetry.health import Condition, Health

REQUEST = Request(method="GET", path="/x")
GONE = Condition(code="gone", title="", fix="")
REFUSED = Condition(code="refused", title="", fix="", depends_on=("gone",))


class Scripted:
    def __init__(self, *answers: int | TransportError) -> None:
        self._answers = list(answers)

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        answer = self._answers.pop(0)
        if isinstance(answer, TransportError):
            raise answer
        return Response(status=answer)


def codes_after(*answers: int | TransportError) -> list[str]:
    async def scenario() -> list[str]:
        health = Health(RealClock(), (GONE, REFUSED))
        transport = ReportingTransport(
            Scripted(*answers), health, unreachable=GONE, refused=REFUSED, refusals=(401, 403)
        )
        for answer in answers:
            if isinstance(answer, TransportError):
                with pytest.raises(TransportError):
                    await transport.send(REQUEST, timeout=1)
            else:
                assert (await transport.send(REQUEST, timeout=1)).status == answer
        return [report.code for report in health.report()]

    return asyncio.run(scenario())


@pytest.mark.parametrize(
    ("answers", "codes"),
    [
        ((200,), []),
        ((NotSent("refused"),), ["gone"]),
        ((OutcomeUnknown("silent"),), ["gone"]),
        ((NotSent("refused"), 200), []),
        ((403,), ["refused"]),
        ((401, 404), ["refused"]),
        ((401, 200), []),
        ((500,), []),
        ((503,), ["gone"]),
        ((502, 200), []),
        ((403, OutcomeUnknown("silent")), ["gone"]),
    ],
    ids=str,
)
def test_an_unreachable_or_refusing_peer_is_reported(
    answers: tuple[int | TransportError, ...], codes: list[str]
) -> None:
    assert codes_after(*answers) == codes


PODS = "/api/v1/namespaces/x/pods"


@pytest.mark.parametrize(
    ("method", "path", "status", "reported"),
    [
        ("GET", PODS, 200, True),
        ("DELETE", "/api/v1/namespaces/y/pods/a", 200, True),
        ("DELETE", "/api/v1/namespaces/x/serviceaccounts/a", 200, True),
        ("DELETE", f"{PODS}/a/status", 200, True),
        ("DELETE", f"{PODS}/b", 500, True),
        ("DELETE", f"{PODS}/b", 200, False),
        ("DELETE", f"{PODS}/b", 404, True),  # allowed again; cleared by the next success
    ],
)
def test_a_missing_permission_is_reported_until_that_request_is_allowed(
    method: str, path: str, status: int, *, reported: bool
) -> None:
    async def scenario() -> None:
        health = Health(RealClock(), (GONE, REFUSED))
        peer = Scripted(403, status, 200)
        transport = ReportingTransport(
            peer, health, unreachable=GONE, refused=REFUSED, refusals=(401, 403)
        )
        await transport.send(Request(method="DELETE", path=f"{PODS}/a"), timeout=1)
        (report,) = health.report()
        assert report.message == f"403 to DELETE {PODS}/a"
        await transport.send(Request(method=method, path=path), timeout=1)
        assert bool(health.report()) is reported
        await transport.send(Request(method="DELETE", path=f"{PODS}/c"), timeout=1)
        assert not health.report()

    asyncio.run(scenario())


def test_a_missing_permission_is_reported_although_an_overloaded_api_responds_429() -> None:
    async def scenario() -> None:
        health = Health(RealClock(), (GONE, REFUSED))
        transport = ReportingTransport(
            Scripted(403, 429, 200, 200),
            health,
            unreachable=GONE,
            refused=REFUSED,
            refusals=(401, 403),
        )
        deletion, read = (
            Request(method="DELETE", path=f"{PODS}/a"),
            Request(method="GET", path=PODS),
        )
        for request in (deletion, deletion, read):
            await transport.send(request, timeout=1)
        assert [report.message for report in health.report()] == [f"403 to DELETE {PODS}/a"]
        await transport.send(deletion, timeout=1)
        assert not health.report()

    asyncio.run(scenario())


def test_an_unreachable_database_is_reported_until_it_responds() -> None:
    class Away:
        def __init__(self) -> None:
            self.away = True

        async def transact(self, work: object, *, name: str) -> str:
            if self.away:
                raise Unavailable("no connection")
            return "done"

    async def scenario() -> None:
        health = Health(RealClock(), (Condition(code=DATABASE_UNREACHABLE.code, title="", fix=""),))
        inner = Away()
        database = ReportingDatabase(inner, health, unreachable=DATABASE_UNREACHABLE)

        async def work(tx: Tx) -> str:
            return "never called"

        with pytest.raises(Unavailable):
            await database.transact(work, name="test")
        assert [report.message for report in health.report()] == ["no connection"]
        inner.away = False
        assert await database.transact(work, name="test") == "done"
        assert health.report() == ()

    asyncio.run(scenario())


def test_the_conditions_that_the_server_reports_are_declared_together() -> None:
    assert KUBERNETES_UNREACHABLE.code in KUBERNETES_REFUSED.depends_on
