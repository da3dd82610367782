"""What is wrong for longer is reported while the machine runs, and so is its end."""

import asyncio

from runyard.clock import RealClock
from runyard.embedded.up.conditions import changes, watch
from runyard.http.messages import Request, Response
from runyard.http.probes import probe_routes
from runyard.http.routes import Routes
from runyard.http.server import listen
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Condition, Health, Report, Severity

BROKEN = Condition(code="broken", title="It is broken", fix="Mend it.")
SLOW = Condition(code="slow", title="It is slow", fix="Wait.", severity=Severity.WARNING)


TOKEN = "a-token-of-the-dashboard"


async def guard(request: Request) -> Response | None:
    """Refuse a request without the token, as the dashboard does on loopback too."""
    allowed = request.header("authorization") == f"Bearer {TOKEN}"
    return None if allowed else Response(status=401)


class SteppedClock(RealClock):
    """A clock whose sleeps last until the test has looked."""

    def __init__(self) -> None:
        self.step = asyncio.Condition()
        self.rounds = 0

    async def sleep(self, seconds: float) -> None:
        async with self.step:
            self.rounds += 1
            self.step.notify_all()
            await self.step.wait()

    async def round(self) -> None:
        """Let the watch run once."""
        async with self.step:
            before = self.rounds
            self.step.notify_all()
            await self.step.wait_for(lambda: self.rounds > before)


def test_a_server_that_cannot_reach_github_is_not_taken_for_one_without_jobs() -> None:
    async def main() -> list[str]:
        health, reported = Health(RealClock(), (BROKEN, SLOW)), list[str]()
        routes = probe_routes(health, Freshness(RealClock()), None, needs=("broken",), guard=guard)
        listening = await listen(Routes("server", "v1", routes).handle)
        clock = SteppedClock()
        watching = asyncio.create_task(
            watch(listening.url, token=TOKEN, clock=clock, report=reported.append)
        )
        await clock.round()
        assert reported == []
        health.fail("broken", "no route")
        health.fail("slow", "a bit")
        await clock.round()
        await clock.round()  # it is reported once
        assert len(reported) == 1 and BROKEN.fix in reported[0] and "no route" in reported[0]
        await listening.close()
        await clock.round()  # a server that restarts changes nothing
        assert len(reported) == 1
        watching.cancel()
        await asyncio.wait((watching,))
        return reported

    assert asyncio.run(main())


def test_the_end_of_a_condition_is_reported() -> None:
    report = Report(
        code="broken",
        title="It is broken",
        fix="Mend it.",
        severity=Severity.ERROR,
        message="no route",
        since=0.0,
    )
    (line,) = changes({"broken": report}, {})
    assert report.title in line
    assert changes({"broken": report}, {"broken": report}) == []
