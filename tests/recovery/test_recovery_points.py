"""The crash matrix names and reaches every effect; a missed one would not be tested."""

import asyncio
import random
import signal
from collections import Counter
from pathlib import Path

import msgspec
import psycopg
import pytest
from benches.recovery import run, table
from benches.recovery.faults import FAULTS
from benches.recovery.matrix import Case, Outcome, cases
from benches.recovery.points import (
    Point,
    PointedDatabase,
    PointedTransport,
    Points,
    When,
    answer_name,
    github_name,
    kube_name,
)
from benches.recovery.rows import ROWS, row_of

from runyard.clock import RealClock
from runyard.db.contract import Tx
from runyard.db.pooled import open_pool
from runyard.http.messages import Request, Response

PODS = "/api/v1/namespaces/tuist-runners/pods/pod-1"


class Database:
    def __init__(self) -> None:
        self.committed: list[str] = []

    async def transact(self, work, *, name):
        result = await work(None)
        self.committed.append(name)
        return result


class Peer:
    def __init__(self) -> None:
        self.asked: list[str] = []

    async def send(self, request: Request, *, timeout: float) -> Response:
        self.asked.append(request.path)
        return Response(status=200)


class Dead(BaseException):
    """Raised where the process would be killed."""


@pytest.fixture
def points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Points:
    def die(pid: int, number: int) -> None:
        assert number == signal.SIGKILL
        raise Dead

    monkeypatch.setattr("benches.recovery.points.os.kill", die)
    (tmp_path / "order").touch()
    return Points(tmp_path / "journal", tmp_path / "order")


def order(tmp_path: Path, point: Point) -> None:
    (tmp_path / "order").write_bytes(msgspec.json.encode(point))


def test_a_kill_before_a_commit_leaves_nothing_and_after_it_everything(
    points: Points, tmp_path: Path
) -> None:
    async def nothing(tx: object) -> None:
        return None

    for when, left in (("before", ["claim"]), ("after", ["claim", "claim"])):
        inner = Database()
        order(tmp_path, Point("commit: claim", when, 2))
        database = PointedDatabase(inner, points)
        asyncio.run(database.transact(nothing, name="claim"))
        with pytest.raises(Dead):
            asyncio.run(database.transact(nothing, name="claim"))
        assert inner.committed == left


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize(("when", "left"), [("before", 0), ("after", 1)])
def test_a_kill_before_a_commit_that_travels_with_its_statements_leaves_nothing(
    points: Points, tmp_path: Path, database_url: str, when: When, left: int, direct: bool
) -> None:
    order(tmp_path, Point("commit: claim", when))
    with psycopg.connect(database_url, autocommit=True) as other:
        other.execute("CREATE TABLE killed (id int)")

        async def work(tx: Tx) -> None:
            await tx.all("SELECT 1 AS one")
            await tx.finish(("INSERT INTO killed VALUES (1)", {}))

        async def scenario() -> None:
            pool = open_pool(
                database_url, clock=RealClock(), rng=random.Random(1), patience=30.0, direct=direct
            )
            async with pool as inner:
                await PointedDatabase(inner, points).transact(work, name="claim")

        with pytest.raises(Dead):
            asyncio.run(scenario())
        assert other.execute("SELECT count(*) FROM killed").fetchone() == (left,)


def test_a_kill_before_a_request_prevents_it(points: Points, tmp_path: Path) -> None:
    peer = Peer()
    transport = PointedTransport(peer, points, kube_name)
    request = Request(method="GET", path=PODS)
    for when, sent in (("before", 0), ("after", 1)):
        order(tmp_path, Point("kube: GET pods/*", when))
        with pytest.raises(Dead):
            asyncio.run(transport.send(request, timeout=1.0))
        assert len(peer.asked) == sent
    journal = (tmp_path / "journal").read_text().splitlines()
    assert journal == [
        "kube: GET pods/*",
        "died before kube: GET pods/*",
        "kube: GET pods/*",
        "died after kube: GET pods/*",
    ]


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        (Request(method="GET", path=PODS), "kube: GET pods/*"),
        (
            Request(method="PATCH", path=PODS, body=b'{"metadata":{"labels":{"tuist.dev/runner-pool-owner":"a"}}}'),
            "kube: PATCH pods/* tuist.dev/runner-pool-owner",
        ),
        (
            Request(method="PATCH", path=PODS, body=b'{"metadata":{"labels":{"tuist.dev/runner-pool-owner":null}}}'),
            "kube: PATCH pods/* tuist.dev/runner-pool-owner cleared",
        ),
        (
            Request(method="POST", path="/apis/authentication.k8s.io/v1/tokenreviews"),
            "kube: POST tokenreviews",
        ),
    ],
)  # fmt: skip
def test_different_effects_have_different_names(request_: Request, name: str) -> None:
    assert kube_name(request_) == name


def test_the_same_effect_for_another_tenant_has_the_same_name() -> None:
    mint = "/actions/runners/generate-jitconfig"
    for owner in ("acme", "birch"):
        request = Request(method="POST", path=f"/orgs/{owner}{mint}")
        assert github_name(request) == f"github: POST /orgs/*{mint}"
    job = Request(method="GET", path="/repos/acme/app/actions/jobs/17")
    assert github_name(job) == "github: GET /repos/*/actions/jobs/*"
    assert answer_name("POST", "/x/5/y", 204) == "answer: 204 POST /x/*/y"


def test_the_response_to_a_probe_is_no_effect() -> None:
    """Without probes such a point would not be reached."""
    for path in ("/healthz", "/readyz", "/metrics"):
        assert answer_name("GET", path, 200) == ""


def test_every_effect_has_a_kill_before_and_after_it() -> None:
    usual, repair = (
        Counter({"commit: claim": 9, "kube: GET pods": 1}),
        Counter({"commit: swept": 1}),
    )
    found = cases(usual, repair, rng=random.Random(1))
    met = {(case.point.name, case.point.when, case.second) for case in found}
    assert met == {
        (name, when, second)
        for names, second in ((usual, False), (repair, True))
        for name in names
        for when in ("before", "after")
    }


def test_every_effect_belongs_to_a_row_of_the_table(tmp_path: Path) -> None:
    mint = "github: POST /orgs/*/actions/runners/generate-jitconfig"
    owner, account = (
        f"kube: PATCH pods/* tuist.dev/runner-{each}" for each in ("pool-owner", "account")
    )
    served = "answer: 200 POST /api/internal/runners/dispatch"
    heard, tick = "commit: webhook", "commit: tick"
    labels = ("commit: mark", account, "commit: mark recorded")
    path = ("commit: claim", owner, mint, "commit: arm", *labels, served, heard, tick)
    found = {row_of(Case(Point(name, when))).key for name in path for when in ("before", "after")}
    assert found | {"in-repair"} == {row.key for row in ROWS}


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("commit: arm", "minted", "armed"),
        ("commit: mark", "labelling", "labelling"),
        ("github: GET /repos/*/actions/runs/*", "labelling", "labelling"),
        ("kube: PATCH pods/* tuist.dev/runner-account", "labelling", "labelling"),
        ("commit: mark recorded", "labelling", "unanswered"),
        ("answer: 200 POST /api/internal/runners/dispatch", "unanswered", "answered"),
        ("commit: marks due", "elsewhere", "elsewhere"),
        ("commit: polls dropped", "elsewhere", "elsewhere"),
    ],
)
def test_an_effect_between_arming_and_the_answer_belongs_to_what_it_leaves(
    name: str, before: str, after: str
) -> None:
    found = [row_of(Case(Point(name, when))).key for when in ("before", "after")]
    assert found == [before, after]


def test_a_point_that_was_not_reached_is_a_failure_and_so_is_one_that_took_too_long() -> None:
    arm, claim, swept = (Case(Point(f"commit: {name}", "after")) for name in ("arm", "claim", "x"))
    outcomes = [
        Outcome(case=arm),
        Outcome(case=claim, seconds=row_of(claim).bound + 1, last="a stamp"),
        Outcome(case=swept, seconds=1.0),
    ]
    unreached, late = run.failures(outcomes, [])
    assert unreached.startswith("after commit: arm: not reached")
    assert late.startswith("after commit: claim: 31.0 s, the bound is 30 s") and "a stamp" in late


def test_a_fault_that_was_not_recovered_is_a_failure_of_its_row_only() -> None:
    lost, late, kept = (fault.row for fault in FAULTS[:3])
    unmeasured, missed = run.failures([], [(lost, []), (late, [late.bound + 1]), (kept, [1.0])])
    assert unmeasured.startswith(f"{lost.what}: not recovered")
    assert missed.startswith(f"{late.what}: {late.bound + 1:.1f} s, the bound is {late.bound:g} s")


def test_a_row_without_a_measurement_says_so() -> None:
    lines = table.matrix([], ()).splitlines()
    assert len(lines) == 2 + len(ROWS)
    assert all(line.endswith("| 0 | not measured | not measured |") for line in lines[2:])


def test_the_table_is_written_between_its_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"above\n{table.BEGIN}\nof yesterday\n{table.END}\nbelow\n")
    done = [
        Outcome(case=Case(Point("commit: arm", "after")), seconds=seconds) for seconds in (1.0, 3.0)
    ]
    table.write(page, table.matrix(done, ()))
    text = page.read_text()
    assert text.startswith("above\n") and text.endswith("\nbelow\n") and "of yesterday" not in text
    assert "| 2 | 1.0 s | 3.0 s |" in text
    page.write_text("no markers")
    with pytest.raises(SystemExit, match="no place for the table"):
        table.write(page, "text")
