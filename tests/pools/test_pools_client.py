"""Tests stop reports: no response of the server may raise in the operator."""

import asyncio

import pytest

from runyard.clock import RealClock
from runyard.http.errors import NotSent, OutcomeUnknown
from runyard.http.loopback import Loopback
from runyard.http.messages import Response, Stream
from runyard.pools.client import StopReports


def report(handler):
    async def scenario():
        reports = StopReports(Loopback(handler), clock=RealClock(), token=lambda: "secret")
        return await reports.stopped("mac-runner-1", ended_at=0.0)

    return asyncio.run(scenario())


@pytest.mark.parametrize(
    ("status", "taken"), [(200, True), (204, True), (401, False), (503, False)]
)
def test_a_report_has_the_pod_the_time_and_the_token(status, taken):
    seen = []

    async def handler(request):
        seen.append(request)
        return Response(status=status)

    assert report(handler) is taken
    (request,) = seen
    assert (request.method, request.path) == ("POST", "/api/internal/runners/pods/stopped")
    assert request.header("authorization") == "Bearer secret"
    assert request.body == b'{"pod_name":"mac-runner-1","ended_at":"1970-01-01T00:00:00Z"}'


@pytest.mark.parametrize("error", [NotSent("no route"), OutcomeUnknown("cut")], ids=["no", "cut"])
def test_a_transport_error_is_reported_as_false(error):
    async def handler(request):
        raise error

    assert report(handler) is False


def test_a_streamed_response_is_closed():
    closed = []

    async def handler(request):
        return Stream(iter(()), status=500, on_close=lambda: closed.append(True))

    assert report(handler) is False
    assert closed == [True]


def test_without_a_server_every_report_succeeds():
    async def scenario():
        return await StopReports(None, clock=RealClock()).stopped("x", ended_at=0.0)

    assert asyncio.run(scenario()) is True
