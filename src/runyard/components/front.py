"""Combines all routes of the server's socket: the API for runners and GitHub, the dashboard, the probes.

Invariants:
- The API authenticates its own callers (runners, the operator, GitHub) and accepts any Host header.
- All other routes show data of the fleet and are behind the dashboard's guard, also the OpenAPI document and the
  reasons why a replica is not ready. Metrics have a guard of their own. Open are only static files, the login,
  liveness and readiness.
- A replica is ready once it has started and while its database responds. Other problems are reported and keep it
  ready.
"""

from runyard.components.results import Results
from runyard.dispatch.routes import Api
from runyard.http.messages import Handler
from runyard.http.probes import probe_routes
from runyard.http.routes import Guard, Route, Routes
from runyard.telemetry.conditions import TO_SERVE
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.meter import Meter
from runyard.web.dashboard import Dashboard


def front(
    api: Api,
    dashboard: Dashboard,
    *,
    health: Health,
    freshness: Freshness,
    meter: Meter,
    more: tuple[Route, ...] = (),
    results: Results | None = None,
    secure: bool = False,
) -> Handler:
    """One handler for all routes of the server; `more` are further routes behind the guard.

    `secure`: clients connect by TLS, so links to the server begin with `https`.
    """
    guard: Guard = dashboard.guard
    tests: tuple[Route, ...] = ()
    if results is not None:
        tests, guard = results.routes(guard, secure=secure)
    routes = (
        *api.routes(),
        *more,
        *tests,
        *dashboard.routes(),
        *probe_routes(
            health,
            freshness,
            meter,
            guard=dashboard.guard,
            metrics_guard=dashboard.metrics_guard,
            needs=TO_SERVE,
        ),
    )
    return Routes("runyard", "v1", routes, guard=guard, private=True).handle
