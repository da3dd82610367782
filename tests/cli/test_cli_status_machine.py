"""`runyard status` of a machine of `runyard up`: each component is asked with the machine's own token, or named."""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cli.server_harness import run_here
from tests.cli.test_cli_status import nothing_else_found, overview  # noqa: F401 - the fixture
from tests.hosts.joining.joinsupport import Main, listening

from runyard.clock import RealClock
from runyard.embedded.lock import DirectoryLock
from runyard.embedded.up.layout import Layout
from runyard.embedded.up.token_files import ensure_token
from runyard.http.messages import Request, Response
from runyard.http.probes import probe_routes
from runyard.http.routes import Routes
from runyard.http.server import Listening, listen
from runyard.telemetry.conditions import ALL, GITHUB_BUDGET_LOW, HOST_DISK_FULL
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Condition, Health
from runyard.telemetry.meter import Meter
from runyard.web.values import Totals
from runyard.wire.restarts import Restart


@pytest.mark.parametrize("known", [False, True])
def test_a_machine_that_does_not_run_says_how_to_start_it(tmp_path: Path, *, known: bool) -> None:
    if known:
        (tmp_path / "ports.json").write_text('{"server": 1}')
    code, out, err = run_here("status", "--data", str(tmp_path))
    assert (code, err) == (2, "")
    assert out.startswith("UNKNOWN: 'runyard up'") and f"runyard up --data {tmp_path}" in out
    code, out, _ = run_here("status", "--data", str(tmp_path), "--json")
    assert (code, json.loads(out)["state"]) == (2, "unknown")


class Machine:
    """A directory as `runyard up` leaves it, with components that only have probes."""

    def __init__(self, root: Path) -> None:
        self.layout = Layout(root)
        root.mkdir()
        self.token = ensure_token(self.layout.dashboard_token, random.Random(1))
        self.seen: dict[str, str] = {}
        self.urls: dict[str, str] = {}
        self.open: list[Listening] = []

    async def server(self) -> None:
        async def handle(request: Request) -> Response:
            self.seen["server"] = request.header("authorization")
            if request.path == "/readyz":
                return Response(status=200, body=b'{"ready": true}')
            return Response(status=200, body=msgspec.json.encode(overview(totals=Totals(idle=2))))

        self._add("server", await listen(handle))
        port = int(self.urls["server"].rpartition(":")[2])
        self.layout.ports.write_text(json.dumps({"server": port}))

    async def component(self, name: str, *failing: Condition) -> None:
        clock = RealClock()
        health = Health(clock, (msgspec.structs.replace(c, visible_after=0.0) for c in ALL))
        for each in failing:
            health.fail(each.code, "as the test wants")
        routes = Routes(name, "1", probe_routes(health, Freshness(clock), Meter()))

        async def handle(request: Request) -> Any:
            self.seen[name] = request.header("authorization")
            return await routes.handle(request)

        self._add(name, await listen(handle))

    def _add(self, name: str, listening: Listening) -> None:
        self.open.append(listening)
        self.urls[name] = listening.url

    def restarted(self, component: str) -> None:
        now = RealClock().now()
        restart = Restart(
            id=1,
            component=component,
            reason="component-killed",
            detail={"signal": 9},
            ended_at=now - 62,
            ready_at=now - 60,
        )
        self.layout.restarts.write_bytes(msgspec.json.encode([restart]))

    async def status(self, *argv: str) -> tuple[int, dict[str, Any]]:
        self.layout.urls.write_text(json.dumps(self.urls))
        line = ("status", "--data", str(self.layout.root), "--json", *argv)
        code, out, err = await asyncio.to_thread(run_here, *line)
        assert err == "" and self.token not in out
        return code, json.loads(out)


def on_machine(scenario: Callable[[Machine], Awaitable[None]], folder: Path) -> None:
    async def main() -> None:
        made = Machine(folder / "data")
        lock = DirectoryLock(made.layout.root)
        await asyncio.to_thread(lock.acquire)
        try:
            async with asyncio.timeout(60):
                await scenario(made)
        finally:
            for each in made.open:
                await each.close()
            lock.release()

    asyncio.run(main())


def test_the_components_of_a_machine_are_asked_with_its_own_token(tmp_path: Path) -> None:
    async def scenario(made: Machine) -> None:
        await made.server()
        await made.component("operator", GITHUB_BUDGET_LOW)
        made.restarted("operator")
        made.urls["public"] = "https://192.0.2.1:9"
        made.urls["github"] = "https://api.github.invalid"  # elsewhere: it is not asked
        code, found = await made.status()
        assert (code, found["state"]) == (0, "healthy")
        states = {each["name"]: each["state"] for each in found["components"]}
        assert states == {
            "server": "unknown",  # it answered without its reasons
            "operator": "works",
            "postgres": "works",
            "kube": "works",
        }
        operator = found["components"][1]
        assert operator["restarts"] == 1 and "killed by signal 9" in operator["restarted"]
        assert operator["version"]
        assert [each["code"] for each in found["problems"]] == ["github-budget-low"]
        assert set(made.seen.values()) == {f"Bearer {made.token}"}
        assert any("server: it does not say" in each for each in found["unread"])

    on_machine(scenario, tmp_path)


def test_the_listener_for_hosts_is_asked_as_hosts_ask_it(tmp_path: Path) -> None:
    async def scenario(made: Machine) -> None:
        await made.server()
        main = Main()
        await main.prepare()
        seen: list[tuple[str, str]] = []

        async def handle(request: Request) -> Any:
            seen.append((request.path, request.header("authorization")))
            return await main.front.handle(request)

        # Its certificate is of TLS_NAME, so its address, a loopback one here, does not matter.
        async with listening(main, made.layout.root, handler=handle) as (url, _):
            made.urls["hosts"] = url
            _, found = await made.status()
        states = {each["name"]: each["state"] for each in found["components"]}
        assert states["hosts"] == "works" and seen == [("/healthz", "")]
        assert not any("hosts" in each for each in found["unread"])
        _, found = await made.status()
        (gone,) = [each for each in found["components"] if each["name"] == "hosts"]
        assert gone["state"] == "down"

    on_machine(scenario, tmp_path)


def test_a_component_that_fails_or_is_gone_is_named_with_its_fix(tmp_path: Path) -> None:
    async def scenario(made: Machine) -> None:
        await made.server()
        await made.component("host-1", HOST_DISK_FULL)
        made.urls["operator"] = "http://127.0.0.1:1"
        code, found = await made.status()
        assert (code, found["state"]) == (1, "degraded")
        assert found["title"].startswith("The component host-1 does not do all of its work")
        states = {each["name"]: each["state"] for each in found["components"]}
        assert (states["host-1"], states["operator"]) == ("degraded", "down")
        (problem,) = [each for each in found["problems"] if each["where"] == "host-1"]
        assert (problem["code"], problem["fix"]) == ("host-disk-full", HOST_DISK_FULL.fix)

    on_machine(scenario, tmp_path)


def test_a_machine_whose_server_is_gone_is_critical_and_names_the_log(tmp_path: Path) -> None:
    async def scenario(made: Machine) -> None:
        await made.component("operator")
        made.urls["server"] = "http://127.0.0.1:1"
        made.layout.ports.write_text('{"server": 1}')
        code, found = await made.status()
        assert (code, found["state"]) == (1, "critical")
        assert str(made.layout.log("server")) in found["text"]
        assert found["components"][0]["state"] == "works"

    on_machine(scenario, tmp_path)


def test_damaged_files_of_a_machine_hide_only_what_is_in_them(tmp_path: Path) -> None:
    async def scenario(made: Machine) -> None:
        await made.server()
        made.layout.restarts.write_text("{")
        made.layout.urls.write_text("not json")
        line = ("status", "--data", str(made.layout.root))
        code, out, _ = await asyncio.to_thread(run_here, *line)
        assert code == 0 and out.startswith("HEALTHY: As it is")
        assert "not read: components:" in out

    on_machine(scenario, tmp_path)
