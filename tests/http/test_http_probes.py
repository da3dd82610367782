"""A part that answers but does not work must not look ready, and must say what to do."""

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


class Part:
    """A part with one loop and two things that can be wrong."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.health = Health(self.clock, (DATABASE, DISK))
        self.freshness = Freshness(self.clock)
        self.meter = Meter()
        self.routes = Routes("part", "1", probe_routes(self.health, self.freshness, self.meter))

    async def get(self, path: str) -> Response:
        got = await self.routes.handle(Request(method="GET", path=path))
        assert isinstance(got, Response)
        return got

    async def ready(self) -> tuple[int, Any]:
        got = await self.get("/readyz")
        return got.status, got.json()


def test_a_part_is_ready_only_while_its_loops_succeed() -> None:
    async def main() -> None:
        part = Part()
        part.freshness.expect("match", 30)
        status, told = await part.ready()
        assert status == 503
        assert told["stale"] == [{"loop": "match", "within": 30, "silent": 0, "ever": False}]
        part.freshness.succeeded("match")
        assert await part.ready() == (
            200,
            {"ready": True, "works": True, "stale": [], "conditions": []},
        )
        await part.clock.sleep(31)
        status, told = await part.ready()
        assert (status, told["ready"]) == (503, False)
        assert [loop["loop"] for loop in told["stale"]] == ["match"]

    run_virtual(main())


def test_an_error_makes_a_part_unready_and_tells_the_operator_what_to_do() -> None:
    async def main() -> None:
        part = Part()
        refused = "connection refused"
        part.health.fail("database-unreachable", refused)
        assert (await part.ready())[0] == 200  # a blip
        await part.clock.sleep(10)
        status, told = await part.ready()
        assert status == 503
        assert told["conditions"][0]["fix"] == DATABASE.fix
        assert told["conditions"][0]["message"] == refused
        part.health.ok("database-unreachable")
        assert (await part.ready())[0] == 200

    run_virtual(main())


def test_a_warning_is_shown_and_does_no_harm() -> None:
    async def main() -> None:
        part = Part()
        part.health.fail("host-disk-full", "95 %")
        status, told = await part.ready()
        assert (status, told["ready"]) == (200, True)
        assert [condition["code"] for condition in told["conditions"]] == ["host-disk-full"]

    run_virtual(main())


def test_a_part_whose_world_is_on_fire_still_lives() -> None:
    async def main() -> None:
        part = Part()
        part.freshness.expect("match", 30)
        part.health.fail("database-unreachable", "gone")
        await part.clock.sleep(100)
        assert (await part.get("/healthz")).status == 200

    run_virtual(main())


def test_the_numbers_can_be_scraped() -> None:
    async def main() -> None:
        part = Part()
        part.meter.inc(c.RUNYARD_LOOP_FAILURES_TOTAL, loop="matcher", error="not-sent")
        got = await part.get("/metrics")
        assert got.header("content-type").startswith("text/plain; version=0.0.4")
        assert c.RUNYARD_LOOP_FAILURES_TOTAL.name.encode() in got.body
        assert b'runyard_condition{condition="host-disk-full"} 0.0' in got.body
        part.health.fail("host-disk-full", "95 %")
        assert (
            b'runyard_condition{condition="host-disk-full"} 1.0'
            in (await part.get("/metrics")).body
        )

    run_virtual(main())


def test_a_part_without_numbers_serves_none() -> None:
    async def main() -> None:
        part = Part()
        part.routes = Routes("part", "1", probe_routes(part.health, part.freshness, None))
        assert [(await part.get(path)).status for path in PROBES] == [200, 200, 404]

    run_virtual(main())


def test_a_probe_without_a_credential_gets_its_status_and_learns_nothing_more() -> None:
    async def nobody(_: Request) -> Response | None:
        return Response(status=401)

    async def main() -> None:
        part = Part()
        routes = probe_routes(part.health, part.freshness, part.meter, guard=nobody)
        part.routes = Routes("part", "1", routes, guard=nobody)
        assert [(await part.get(path)).status for path in PROBES] == [200, 200, 401]
        part.health.fail("database-unreachable", "secret.example refuses")
        await part.clock.sleep(10)
        assert await part.ready() == (503, {"ready": False})

    run_virtual(main())


def test_what_a_part_does_not_need_to_serve_is_told_and_takes_it_from_nobody() -> None:
    async def main() -> None:
        part = Part()
        routes = probe_routes(part.health, part.freshness, part.meter, needs=("host-disk-full",))
        part.routes = Routes("part", "1", routes)
        part.freshness.expect("match", 30)
        part.health.fail("database-unreachable", "gone")
        await part.clock.sleep(100)
        status, told = await part.ready()
        assert (status, told["ready"], told["works"]) == (200, True, False)
        assert [loop["loop"] for loop in told["stale"]] == ["match"]
        assert [condition["code"] for condition in told["conditions"]] == ["database-unreachable"]
        part.health.fail("host-disk-full", "full")
        assert (await part.ready())[0] == 503

    run_virtual(main())
