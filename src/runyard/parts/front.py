"""The server's one socket: its API for runners and GitHub, its dashboard, its probes.

The API has its own paths; everything else is for people and monitors.
"""

from runyard.http.messages import Handler, Request, Response, Stream
from runyard.http.probes import probe_routes
from runyard.http.routes import Routes
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.meter import Meter
from runyard.web.dashboard import Dashboard
from runyard.wire.paths import GITHUB_WEBHOOK, INTERNAL


def front(
    api: Handler, dashboard: Dashboard, *, health: Health, freshness: Freshness, meter: Meter
) -> Handler:
    """One handler for everything that the server serves."""
    pages = Routes("runyard", "v1", (*dashboard.routes(), *probe_routes(health, freshness, meter)))

    async def handle(request: Request) -> Response | Stream:
        if request.path == GITHUB_WEBHOOK or request.path.startswith(INTERNAL):
            return await api(request)
        return await pages.handle(request)

    return handle
