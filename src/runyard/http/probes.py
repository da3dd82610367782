"""What a monitor may ask of every part: does it live, does it work, what are its numbers.

- `/healthz` answers as long as the process can answer at all. It is for whoever restarts processes, and
  says nothing of the outside world: restarting does not help against a database that is down.
- `/readyz` is 200 only while every loop succeeds in time and no visible condition is an error. Otherwise it
  is 503 with the names of the loops and the operator's texts, so that the person who is woken by it reads
  there what to do.
- `/metrics` are the numbers in the text format of Prometheus.

The first says nothing that a stranger could use and is open to everybody; the other two are `guarded` wherever
strangers can reach the socket.
"""

import msgspec

from runyard.http.messages import Request, Response, json_response
from runyard.http.routes import Route
from runyard.telemetry.freshness import Freshness, Stale
from runyard.telemetry.health import Health, Report
from runyard.telemetry.meter import Meter

HEALTHZ = "/healthz"
READYZ = "/readyz"
METRICS = "/metrics"

_EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"
_FRESH = ("cache-control", "no-store")


class Alive(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `/healthz`."""

    alive: bool = True


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `/readyz`."""

    ready: bool
    stale: tuple[Stale, ...] = ()  # loops that have not succeeded in time
    conditions: tuple[Report, ...] = ()  # what is wrong, warnings too


def readiness(health: Health, freshness: Freshness) -> Readiness:
    """Whether a part does its work, and if not, why."""
    stale = freshness.stale()
    return Readiness(ready=not stale and health.healthy(), stale=stale, conditions=health.report())


def probe_routes(
    health: Health, freshness: Freshness, meter: Meter | None, *, guarded: bool = False
) -> tuple[Route, ...]:
    """The three routes; a part that keeps no numbers has two."""

    async def alive(_: Request) -> Response:
        return json_response(200, Alive(), (_FRESH,))

    async def ready(_: Request) -> Response:
        found = readiness(health, freshness)
        return json_response(200 if found.ready else 503, found, (_FRESH,))

    routes = (
        Route(
            "GET",
            HEALTHZ,
            alive,
            summary="Does the process live?",
            answers={200: ("It does.", Alive)},
        ),
        Route(
            "GET",
            READYZ,
            ready,
            summary="Does the part do its work?",
            answers={200: ("It does.", Readiness), 503: ("It does not.", Readiness)},
            secured=guarded,
        ),
    )
    return routes if meter is None else (*routes, _metrics(meter, guarded=guarded))


def _metrics(meter: Meter, *, guarded: bool) -> Route:
    async def metrics(_: Request) -> Response:
        return Response(
            status=200, headers=(("content-type", _EXPOSITION), _FRESH), body=meter.exposition()
        )

    return Route(
        "GET",
        METRICS,
        metrics,
        summary="The part's numbers, for Prometheus.",
        answers={200: ("The numbers.", None)},
        media="text/plain",
        secured=guarded,
    )
