"""The server's one socket: its API for runners and GitHub, its dashboard, its probes, in one table.

Invariants:
- The API knows its own callers (runners, the operator, GitHub) and is asked by them under any name.
- Everything else shows something of the fleet and is behind the dashboard's guard: numbers, the table's own
  description and why a replica is not ready too. Open are only the page's files, the login, whether the process lives
  and whether it is ready.
- It is ready while it can serve: begun, and with its database. Other problems are reported and keep it ready.
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
    """One handler for everything that the server serves; `more` is what else is behind the guard.

    `secure` says that clients reach it by TLS: links to itself then begin with `https`.
    """
    guard: Guard = dashboard.guard
    tests: tuple[Route, ...] = ()
    if results is not None:
        tests, guard = results.door(guard, secure=secure)
    routes = (
        *api.routes(),
        *more,
        *tests,
        *dashboard.routes(),
        *probe_routes(health, freshness, meter, guard=dashboard.guard, needs=TO_SERVE),
    )
    return Routes("runyard", "v1", routes, guard=guard, private=True).handle
