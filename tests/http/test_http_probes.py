"""A component that answers but does not work is not ready, and reports the fix."""

from importlib.metadata import version
from typing import Any

from runyard.http.messages import Request, Response
from runyard.http.probes import probe_routes
from runyard.http.routes import Routes
from runyard.sim.clock import VirtualClock
from runyard.sim.loop import run_virtual
from runyard.telemetry import catalogue as c
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Condition, Health, Severity
from runyard.telemetry.meter import Meter

DATABASE = Condition(
    code="database-unreachable", title="The database is away.", fix="Start it.", visible_after=10
)
DISK = Condition(code="host-disk-full", title="Disk", fix="Make room.", severity=Severity.WARNING)
PROBES = ("/healthz", "/readyz", "/metrics")


class Component:
    """A component with one loop and two conditions."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.health = Health(self.clock, (DATABASE, DISK))
        self.freshness = Freshness(self.clock)
        self.meter = Meter()
        self.routes = Routes(
            "component", "1", probe_routes(self.health, self.freshness, self.meter)
        )

    async def get(self, path: str) -> Response:
        got = await self.routes.handle(Request(method="GET", path=path))
        assert isinstance(got, Response)
        return got

    async def ready(self) -> tuple[int, Any]:
        got = await self.get("/readyz")
        return got.status, got.json()


def test_a_component_is_ready_only_while_its_loops_succeed() -> None:
    async def main() -> None:
        component = Component()
        component.freshness.expect("match", 30)
        status, body = await component.ready()
        assert status == 503
        assert body["stale"] == [{"loop": "match", "within": 30, "silent": 0, "ever": False}]
        component.freshness.succeeded("match")
        assert await component.ready() == (
            200,
            {
                "ready": True,
                "works": True,
                "stale": [],
                "conditions": [],
                "version": version("runyard"),
            },
        )
        await component.clock.sleep(31)
        status, body = await component.ready()
        assert (status, body["ready"]) == (503, False)
        assert [loop["loop"] for loop in body["stale"]] == ["match"]

    run_virtual(main())


def test_an_error_makes_a_component_unready_and_reports_the_fix() -> None:
    async def main() -> None:
        component = Component()
        refused = "connection refused"
        component.health.fail("database-unreachable", refused)
        assert (await component.ready())[0] == 200  # a blip
        await component.clock.sleep(10)
        status, body = await component.ready()
        assert status == 503
        assert body["conditions"][0]["fix"] == DATABASE.fix
        assert body["conditions"][0]["message"] == refused
        component.health.ok("database-unreachable")
        assert (await component.ready())[0] == 200

    run_virtual(main())


def test_a_warning_is_shown_and_keeps_the_component_ready() -> None:
    async def main() -> None:
        component = Component()
        component.health.fail("host-disk-full", "95 %")
        status, body = await component.ready()
        assert (status, body["ready"]) == (200, True)
        assert [condition["code"] for condition in body["conditions"]] == ["host-disk-full"]

    run_virtual(main())


def test_a_component_with_failed_dependencies_is_still_alive() -> None:
    async def main() -> None:
        component = Component()
        component.freshness.expect("match", 30)
        component.health.fail("database-unreachable", "gone")
        await component.clock.sleep(100)
        assert (await component.get("/healthz")).status == 200

    run_virtual(main())


def test_the_metrics_can_be_scraped() -> None:
    async def main() -> None:
        component = Component()
        component.meter.inc(c.RUNYARD_LOOP_FAILURES_TOTAL, loop="matcher", error="not-sent")
        got = await component.get("/metrics")
        assert got.header("content-type").startswith("text/plain; version=0.0.4")
        assert c.RUNYARD_LOOP_FAILURES_TOTAL.name.encode() in got.body
        assert b'runyard_condition{condition="host-disk-full"} 0.0' in got.body
        component.health.fail("host-disk-full", "95 %")
        assert (
            b'runyard_condition{condition="host-disk-full"} 1.0'
            in (await component.get("/metrics")).body
        )

    run_virtual(main())


def test_a_component_without_a_meter_serves_no_metrics() -> None:
    async def main() -> None:
        component = Component()
        component.routes = Routes(
            "component", "1", probe_routes(component.health, component.freshness, None)
        )
        assert [(await component.get(path)).status for path in PROBES] == [200, 200, 404]

    run_virtual(main())


def test_a_probe_without_a_credential_gets_only_the_status() -> None:
    async def refuse_all(_: Request) -> Response | None:
        return Response(status=401)

    async def main() -> None:
        component = Component()
        routes = probe_routes(
            component.health, component.freshness, component.meter, guard=refuse_all
        )
        component.routes = Routes("component", "1", routes, guard=refuse_all)
        assert [(await component.get(path)).status for path in PROBES] == [200, 200, 401]
        component.health.fail("database-unreachable", "secret.example refuses")
        await component.clock.sleep(10)
        assert await component.ready() == (503, {"ready": False})

    run_virtual(main())


def test_a_condition_outside_of_needs_is_reported_and_keeps_the_component_ready() -> None:
    async def main() -> None:
        component = Component()
        routes = probe_routes(
            component.health, component.freshness, component.meter, needs=("host-disk-full",)
        )
        component.routes = Routes("component", "1", routes)
        component.freshness.expect("match", 30)
        component.health.fail("database-unreachable", "gone")
        await component.clock.sleep(100)
        status, body = await component.ready()
        assert (status, body["ready"], body["works"]) == (200, True, False)
        assert [loop["loop"] for loop in body["stale"]] == ["match"]
        assert [condition["code"] for condition in body["conditions"]] == ["database-unreachable"]
        component.health.fail("host-disk-full", "full")
        assert (await component.ready())[0] == 503

    run_virtual(main())
