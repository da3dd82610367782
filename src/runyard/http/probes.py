"""Serves liveness, readiness and metrics of a component.

- `/healthz` answers as long as the process can answer. It is for restarts, and ignores dependencies: a restart does
  not help against a database that is down.
- The status of `/readyz` is whether requests should be sent here; its field `works` is whether the component does all
  of its work: every loop succeeds in time and no visible condition is an error. Otherwise it lists the loops and the
  conditions with their fixes. Without `needs` both are the same; a component that serves requests names the conditions
  that prevent it. An outage of GitHub or Kubernetes affects all replicas at once: if it made them unready, no replica
  would be left to take webhooks and hold polls.
- `/metrics` are the metrics in the text format of Prometheus, the conditions among them.

With a `guard`, details need its admission, and metrics that of `metrics_guard`, by default the same; `/healthz` and the
status of `/readyz` never need a credential.
"""

import functools
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

import msgspec
from msgspec import UNSET, UnsetType

from runyard.http.messages import Request, Response, json_response
from runyard.http.openapi import Scheme
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
_SCHEME = Scheme(
    name="metrics",
    meaning="The token for metrics; the machine itself needs none on loopback.",
)


class Alive(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `/healthz`."""

    alive: bool = True


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `/readyz`."""

    ready: bool
    works: bool | UnsetType = UNSET  # this and the rest only for callers that the guard admits
    stale: tuple[Stale, ...] | UnsetType = UNSET  # loops that have not succeeded in time
    conditions: tuple[Report, ...] | UnsetType = UNSET  # what is wrong, warnings too
    version: str | UnsetType = UNSET  # of runyard, in this process


def readiness(
    health: Health, freshness: Freshness, *, needs: Sequence[str] | None = None
) -> Readiness:
    """Return whether requests should be sent here, whether all work is done, and if not, why."""
    stale, conditions = freshness.stale(), health.report()
    works = not stale and health.healthy()
    ready = works if needs is None else all(each.code not in needs for each in conditions)
    return Readiness(
        ready=ready, works=works, stale=stale, conditions=conditions, version=installed_version()
    )


@functools.cache
def installed_version() -> str:
    """The version of runyard that this process was started with; empty if it is not installed as a package."""
    try:
        return version("runyard")
    except PackageNotFoundError:
        return ""


def probe_routes(
    health: Health,
    freshness: Freshness,
    meter: Meter | None,
    *,
    guard: Guard | None = None,
    metrics_guard: Guard | None = None,
    needs: Sequence[str] | None = None,
) -> tuple[Route, ...]:
    """Return the routes; without a meter there is no `/metrics`. A condition of `needs` makes it unready."""

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
            summary="Liveness: the process answers",
            answers={200: ("The process is alive.", Alive)},
        ),
        Route(
            "GET",
            READYZ,
            ready,
            summary="Readiness: whether requests should be sent here, and what is wrong",
            answers={200: ("Ready.", Readiness), 503: ("Not ready.", Readiness)},
        ),
    )
    return routes if meter is None else (*routes, _metrics(meter, health, metrics_guard or guard))


def _metrics(meter: Meter, health: Health, guard: Guard | None) -> Route:
    async def metrics(request: Request) -> Response:
        if guard is not None and (refusal := await guard(request)) is not None:
            return refusal
        for code, fails in health.conditions().items():
            meter.set(RUNYARD_CONDITION, float(fails), condition=code)
        return Response(
            status=200, headers=(("content-type", _EXPOSITION), _FRESH), body=meter.exposition()
        )

    return Route(
        "GET",
        METRICS,
        metrics,
        summary="The component's metrics, for Prometheus.",
        answers={200: ("The metrics.", None)},
        media="text/plain",
        scheme=None if guard is None else _SCHEME,
    )
