"""What a monitor may ask of every part: does it live, does it work, what are its numbers.

- `/healthz` answers as long as the process can answer at all. It is for whoever restarts processes, and
  says nothing of the outside world: restarting does not help against a database that is down.
- `/readyz` says whether requests should come here, by its status, and in `works` whether the part does all of its
  work: every loop succeeds in time and no visible condition is an error. If not, the loops are named, with the
  operator's texts, so that the person who is woken by it reads there what to do. Where nobody sends requests to a part
  both are the same; a part that serves names what it `needs` for that. An outage of GitHub or of Kubernetes
  meets all replicas at once: if it made them unready, nobody would be left to take webhooks and to hold polls.
- `/metrics` are the numbers in the text format of Prometheus, the conditions among them.

With a `guard` the numbers are for those whom it admits, and the reasons too: to others the first two say a status and
nothing that a stranger could use. Whoever probes needs no credential.
"""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from runyard.http.messages import Request, Response, json_response
from runyard.http.routes import Guard, Route
from runyard.telemetry.catalogue import RUNYARD_CONDITION
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
    works: bool | UnsetType = UNSET  # this and the rest are not told to strangers
    stale: tuple[Stale, ...] | UnsetType = UNSET  # loops that have not succeeded in time
    conditions: tuple[Report, ...] | UnsetType = UNSET  # what is wrong, warnings too


def readiness(
    health: Health, freshness: Freshness, *, needs: Sequence[str] | None = None
) -> Readiness:
    """Whether requests should come, whether all work is done, and if not, why."""
    stale, conditions = freshness.stale(), health.report()
    works = not stale and health.healthy()
    ready = works if needs is None else all(each.code not in needs for each in conditions)
    return Readiness(ready=ready, works=works, stale=stale, conditions=conditions)


def probe_routes(
    health: Health,
    freshness: Freshness,
    meter: Meter | None,
    *,
    guard: Guard | None = None,
    needs: Sequence[str] | None = None,
) -> tuple[Route, ...]:
    """The three routes; a part without numbers has two. With a condition of `needs` it cannot serve."""

    async def alive(_: Request) -> Response:
        return json_response(200, Alive(), (_FRESH,))

    async def ready(request: Request) -> Response:
        found = readiness(health, freshness, needs=needs)
        if guard is not None and await guard(request) is not None:
            found = Readiness(ready=found.ready)
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
            summary="Should requests come here, and what is wrong?",
            answers={200: ("They should.", Readiness), 503: ("They should not.", Readiness)},
        ),
    )
    return routes if meter is None else (*routes, _metrics(meter, health, guard is not None))


def _metrics(meter: Meter, health: Health, guarded: bool) -> Route:
    async def metrics(_: Request) -> Response:
        for code, fails in health.conditions().items():
            meter.set(RUNYARD_CONDITION, float(fails), condition=code)
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
