"""`runyard status`: one verdict, whatever can be read; nothing secret, nothing healthy that is only unknown."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from tests.cli.server_harness import run_here
from tests.web.web_harness import EVIL, TOKEN, Site, visit
from tests.web.web_samples import NOW, OVERVIEW

from runyard.cli.statusrun import repeat
from runyard.cli.statusscreen import screen
from runyard.cli.statusview import (
    EXIT,
    Component,
    Ended,
    Event,
    Problem,
    Readings,
    StatusView,
    status_of,
)
from runyard.kube.kinds import NODES, PODS, RUNNER_POOLS
from runyard.sim.clock import VirtualClock
from runyard.sim.loop import run_virtual
from runyard.web.settings import Settings
from runyard.web.values import Overview, Pool, Runner, Source, Tone, Verdict
from runyard.wire.names import RUNNERS_NAMESPACE as SPACE


@pytest.fixture(autouse=True)
def nothing_else_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No machine and no server of the tester's own."""
    for name in ("RUNYARD_SERVER", "RUNYARD_DATA", "RUNYARD_TOKEN_FILE", "RUNYARD_CA_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))


def overview(tone: Tone = "good", **changes: Any) -> Overview:
    """A fleet of which only the verdict matters."""
    source = Source(name="Postgres", state="ok", as_of=NOW)
    kube = Source(name="Kubernetes", state="ok", as_of=NOW)
    shown = Verdict(tone=tone, title="As it is", text="Details.", reason="a-code")
    whole = Overview(at=NOW, verdict=shown, sources=(source, kube))
    return msgspec.structs.replace(whole, **changes)


def readings(seen: Overview | None, *components: Component, **more: Any) -> Readings:
    base = {"at": NOW, "where": "the machine of DIR", "version": "1.2.3", **more}
    return Readings(overview=seen, components=components, **base)


# ── the verdict ─────────────────────────────────────────────────────────────────────────────────────

STATES = {
    "good": "healthy",
    "work": "healthy",
    "wait": "healthy",
    "off": "healthy",
    "warn": "degraded",
    "bad": "critical",
}


@pytest.mark.parametrize("tone", get_args(Tone))
def test_the_verdict_is_the_dashboards(tone: Tone) -> None:
    view = status_of(readings(overview(tone)))
    assert (view.state, view.reason) == (STATES[tone], "a-code")
    shown = screen(view, width=80)
    assert shown[0].endswith(": As it is") and shown[1].strip() == "Details."
    assert EXIT[view.state] == (0 if STATES[tone] == "healthy" else 1)


DOWN = Component(name="operator", state="down", text="no answer within 5 s")
STALLED = Component(name="host-1", state="degraded", text="Virtual machines cannot be run")


def test_a_component_that_the_server_cannot_see_makes_a_healthy_fleet_degraded() -> None:
    view = status_of(readings(overview("good"), DOWN))
    assert (view.state, view.reason) == ("degraded", "component-down")
    shown = " ".join(screen(view, width=80))
    assert "operator does not respond" in shown and "As it is" in shown
    view = status_of(readings(overview("good"), STALLED, DOWN))
    assert (view.state, view.reason) == ("degraded", "component-degraded")
    assert "host-1" in view.title and "1 more" in view.title
    view = status_of(readings(overview("bad"), DOWN))  # the server's own verdict is worse
    assert (view.state, view.reason) == ("critical", "a-code")


def test_a_ready_host_whose_disk_is_full_is_a_problem_although_another_one_runs_jobs() -> None:
    stuck = Runner(
        uid="u",
        name="mac-1",
        pool="mac",
        state="starting",
        tone="wait",
        words="starting: there isn't enough space",
        since=NOW - 90.0,
        host="mini-1",
        blocked="NoSpace",
    )
    seen = overview("warn", pools=(Pool(name="mac", desired=2, busy=1),), runners=(stuck,))
    (problem,) = status_of(readings(seen)).problems
    assert (problem.where, problem.code) == ("host mini-1", "host-starts-nothing")
    assert problem.since == stuck.since


@pytest.mark.parametrize(("local", "state"), [(True, "critical"), (False, "unknown")])
def test_without_the_servers_verdict_nothing_is_healthy(*, local: bool, state: str) -> None:
    server = Component(name="server", state="down", text="refused")
    view = status_of(readings(None, server, local=local, failure="It cannot be read", fix="Wait"))
    assert view.state == state
    first, second, *_ = screen(view, width=80)
    assert first.endswith(": It cannot be read") and second.strip() == "Wait"
    assert (view.hosts, view.pools, view.queue) == (None, None, None)
    other = Component(name="operator", state="works")
    assert status_of(readings(None, other, local=True, failure="x")).state == "unknown"


def test_a_source_that_was_never_read_shows_nothing_instead_of_zero() -> None:
    down = tuple(
        Source(name=name, state="down", message="refused") for name in ("Postgres", "Kubernetes")
    )
    view = status_of(readings(overview("bad", sources=down)))
    assert (view.hosts, view.pools, view.queue) == (None, None, None)
    assert [each.partition(":")[0] for each in view.unread] == ["Postgres", "Kubernetes"]
    assert {each.name: each.state for each in view.components} == {
        "postgres": "down",
        "kube": "down",
    }


def test_restarts_are_counted_for_a_day_and_the_last_one_is_explained() -> None:
    ended = tuple(
        Ended(component="operator", at=NOW - ago, what=f"{ago} s ago") for ago in (90_000, 600, 60)
    )
    view = status_of(
        readings(overview(), Component(name="operator", state="works"), restarts=ended)
    )
    (one, _, _) = view.components
    assert (one.restarts, one.restarted_at, one.restarted) == (2, NOW - 60, "60 s ago")


def test_a_process_of_another_version_is_a_note_that_changes_no_verdict() -> None:
    old = Component(name="server", state="works", version="1.2.2")
    view = status_of(readings(overview(), old))
    assert view.state == "healthy"
    assert [(each.code, each.severity) for each in view.problems] == [("other-version", "note")]


def test_every_problem_has_its_fix_and_none_is_listed_twice() -> None:
    same = Problem(where="server", code="github-budget-low", severity="warning", title="t", fix="f")
    server = Component(name="server", state="works", problems=(same,))
    view = status_of(readings(OVERVIEW, server))
    assert [(each.where, each.severity) for each in view.problems] == [
        ("host mini-07", "error"),
        ("server", "warning"),
        ("host box-1", "warning"),
    ]
    assert all(each.fix for each in view.problems)


def test_the_fix_of_a_drained_host_is_a_command_of_ours() -> None:
    view = status_of(readings(OVERVIEW))
    (drained,) = [each for each in view.problems if each.code == "host-cordoned"]
    command = f"runyard host undrain {drained.where.removeprefix('host ')}"
    assert command in " ".join(" ".join(screen(view, width=200)).split())


# ── the screen ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("width", [80, 40])
def test_a_narrow_terminal_shows_everything_and_nothing_that_it_would_interpret(width: int) -> None:
    hostile = msgspec.structs.replace(OVERVIEW.waiting[1], name="\x1b[2Jmine", since=NOW - 9999)
    seen = msgspec.structs.replace(OVERVIEW, waiting=(hostile,))
    view = status_of(readings(seen, DOWN, STALLED, unread=("x: y",)))
    lines = screen(view, width=width)
    assert lines[0].startswith("CRITICAL: 1 job is waiting")
    assert max(map(len, lines)) <= width
    whole = " ".join(" ".join(lines).split())
    assert "\x1b" not in whole and "\\u001b" in whole
    for words in (
        "mini-07",
        "cordoned",
        "linux-small",
        "fix:",
        "runyard explain job 48190311",
        "x: y",
    ):
        assert words in whole, words


@pytest.mark.parametrize(("hour", "more"), [(3, ""), (4, "  and 1 more: runyard dashboard")])
def test_recoveries_that_are_counted_and_not_listed_are_named(hour: int, more: str) -> None:
    recovered = tuple(Event(at=NOW - age, what="a restart") for age in (1.0, 2.0, 3.0))
    view = msgspec.structs.replace(
        status_of(readings(overview())), recovered_hour=hour, recovered=recovered
    )
    lines = screen(view, width=80)
    assert [line for line in lines if "more" in line] == [more] * bool(more)


def test_a_wide_terminal_has_tables() -> None:
    lines = screen(status_of(readings(OVERVIEW, DOWN)), width=200)
    heads = [line.split()[0] for line in lines if line.isupper()]
    assert heads == ["COMPONENT", "HOST", "POOL"]
    assert screen(status_of(readings(OVERVIEW)), width=200, color=True)[0].startswith("\x1b[")


KEYS = {
    "at",
    "where",
    "state",
    "title",
    "text",
    "reason",
    "components",
    "hosts",
    "hidden_hosts",
    "pools",
    "queue",
    "problems",
    "recovered_hour",
    "recovered",
    "unread",
}


def test_the_shape_of_the_json_is_the_documented_one() -> None:
    found = json.loads(msgspec.json.encode(status_of(readings(OVERVIEW, DOWN))))
    assert set(found) == KEYS
    page = (Path(__file__).parents[2] / "docs" / "status.md").read_text("utf-8")
    assert [key for key in KEYS if f"`{key}`" not in page] == []
    assert set(found["queue"]) == {"queued", "running", "attention", "oldest"}
    assert found["queue"]["oldest"]["job"] == 48190311
    assert {"name", "used", "running", "capacity", "cordoned", "pressure"} <= set(found["hosts"][0])
    assert {"name", "desired", "idle", "busy", "stale", "conditions"} <= set(found["pools"][0])


def test_watching_reads_again_after_each_pause() -> None:
    shown: list[float] = []

    class Enough(Exception):
        pass

    async def main() -> None:
        clock = VirtualClock()
        began = clock.now()

        async def read() -> StatusView:
            if len(shown) == 3:
                raise Enough
            return status_of(readings(overview(), at=clock.now()))

        with pytest.raises(Enough):
            await repeat(read, lambda view: shown.append(view.at - began), clock=clock, every=2.0)

    run_virtual(main())
    assert shown == [0.0, 2.0, 4.0]


# ── a real server ───────────────────────────────────────────────────────────────────────────────────


async def ask(site: Site, folder: Path, *argv: str, token: str = TOKEN) -> tuple[int, str, str]:
    path = folder / "token"
    path.write_text(token)
    options = ("--server", site.url, "--token-file", str(path))
    code, out, err = await asyncio.to_thread(run_here, "status", *argv, *options)
    assert token not in out + err
    return code, out, err


def at_site(scenario: Callable[[Site], Awaitable[None]], database_url: str, **more: Any) -> None:
    quick = Settings(token=TOKEN, every=0.05, cluster_every=0.05, patience=5.0)
    visit(scenario, database_url, quick, **more)


def test_a_fleet_elsewhere_is_shown_with_what_cannot_be_read(
    database_url: str, tmp_path: Path
) -> None:
    async def scenario(site: Site) -> None:
        await site.host("mini-1")
        await site.pool(replicas=1)
        await site.pod("mac-runner-1")
        code, out, err = await ask(site, tmp_path)
        assert (code, err) == (0, "")
        assert out.startswith("HEALTHY: ")
        for words in ("mini-1", "ready", "1 of 2 used", "mac", "jobs: 0 queued, 0 running"):
            assert words in out, (words, out)
        assert "not read: components other than the server" in out

    at_site(scenario, database_url)


def test_a_pool_whose_vms_cannot_be_created_is_named_although_no_job_waits(
    database_url: str, tmp_path: Path
) -> None:
    async def scenario(site: Site) -> None:
        await site.host("mini-1")
        await site.pool()
        await site.pod("mac-runner-1")
        cause = {"reason": "TartCreateFailed", "message": "the registry has no such image"}
        stuck = {"phase": "Pending", "containerStatuses": [{"state": {"waiting": cause}}]}
        await site.admin.patch(
            PODS,
            "mac-runner-1",
            {"status": stuck},
            namespace=SPACE,
            subresource="status",
        )
        _, out, _ = await ask(site, tmp_path, "--json")
        (problem,) = [
            each for each in json.loads(out)["problems"] if each["code"] == "start-failed"
        ]
        assert problem["where"] == "pool mac"
        assert cause["message"] in problem["message"]
        _, out, _ = await ask(site, tmp_path)
        assert "runyard pool create mac --image" in " ".join(out.split())

    at_site(scenario, database_url)


def test_the_oldest_waiting_job_is_explained_and_the_exit_code_says_degraded(
    database_url: str, tmp_path: Path
) -> None:
    async def scenario(site: Site) -> None:
        await site.host("mini-1")
        await site.pool()
        site.job(7, name="tests")
        code, out, _ = await ask(site, tmp_path, "--json")
        found = json.loads(out)
        assert (code, found["state"], found["reason"]) == (1, "degraded", "no-pool")
        oldest = found["queue"]["oldest"]
        assert (oldest["job"], oldest["constraint"]) == (7, "no-pool")
        assert oldest["why"] and oldest["ends"]
        _, out, _ = await ask(site, tmp_path)
        assert 'oldest: job 7 of acme/app "tests"' in out and "why: no-pool" in out
        assert EVIL in oldest["why"] or "runyard explain job 7" in out

    at_site(scenario, database_url)


def test_hosts_and_pools_say_what_is_wrong_and_what_to_do(
    database_url: str, tmp_path: Path
) -> None:
    async def scenario(site: Site) -> None:
        await site.host("mini-1")
        full = [
            {"type": "Ready", "status": "True"},
            {"type": "DiskPressure", "status": "True", "message": "95 % used"},
        ]
        patch = {"status": {"conditions": full}}
        await site.admin.patch(NODES, "mini-1", patch, subresource="status")
        await site.admin.patch(NODES, "mini-1", {"spec": {"unschedulable": True}})
        await site.pool()
        unfilled = {
            "type": "Filled",
            "status": "False",
            "reason": "Backoff",
            "message": "2 of 2 are missing",
        }
        await site.admin.patch(
            RUNNER_POOLS,
            "mac",
            {"status": {"conditions": [unfilled]}},
            namespace=SPACE,
            subresource="status",
        )
        code, out, _ = await ask(site, tmp_path)
        assert code == 1 and out.startswith("DEGRADED: ")
        for words in ("DiskPressure, cordoned", "95 % used", "Free disk", "2 of 2 are missing"):
            assert words in out, (words, out)
        assert "runyard explain pool mac" in out

    at_site(scenario, database_url)


def test_an_outage_is_critical_and_the_rest_is_still_shown(
    database_url: str, tmp_path: Path
) -> None:
    async def scenario(site: Site) -> None:
        await site.host("mini-1")
        assert (await ask(site, tmp_path))[0] == 0
        site.line.cut = True
        for _ in range(200):  # until the dashboard has noticed it
            code, out, _ = await ask(site, tmp_path)
            if code != 0:
                break
        assert code == 1 and out.startswith("CRITICAL: The Kubernetes API does not answer")
        assert (
            "mini-1" in out and "what is shown of it is old" in out and "fix: Check the API" in out
        )

    at_site(scenario, database_url)


def test_without_its_database_a_server_is_critical(database_url: str, tmp_path: Path) -> None:
    async def scenario(site: Site) -> None:
        code, out, _ = await ask(site, tmp_path, "--json")
        found = json.loads(out)
        assert (code, found["state"], found["queue"]) == (1, "critical", None)
        assert found["reason"] == "database-unreachable"

    at_site(scenario, database_url, reachable=False)


def test_a_wrong_token_cannot_tell_and_says_which_one_is_needed(
    database_url: str, tmp_path: Path
) -> None:
    async def scenario(site: Site) -> None:
        code, out, _ = await ask(site, tmp_path, token="an-old-token-of-the-fleet")
        assert code == 2 and out.startswith("UNKNOWN: The server refuses") and "--token-file" in out

    at_site(scenario, database_url)


@pytest.mark.parametrize("login", ["", "somebody:a-password@"])
def test_a_server_that_does_not_respond_cannot_tell_and_shows_no_password(login: str) -> None:
    code, out, err = run_here("status", "--server", f"http://{login}127.0.0.1:1")
    assert code == 2 and out.startswith("UNKNOWN: The server cannot be read")
    assert "a-password" not in out + err
