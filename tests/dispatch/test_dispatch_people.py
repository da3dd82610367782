"""What people may see and change over REST: every change leaves a trace, bad input is refused, GitHub's no is told."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.dispatch.dispatchworld import World
from tests.dispatch.dispatchworld import play as play_dispatch

from runyard.embedded.github.identity import KeyPair
from runyard.http.messages import Request, Response
from runyard.http.routes import Routes
from runyard.wire.people import ACTOR


class Desk:
    """Somebody who may ask."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._table = Routes("people", "v1", world.server.rest.routes(), guard=_anybody)

    async def ask(
        self, method: str, path: str, body: bytes | None = None, **query: str
    ) -> Response:
        headers: tuple[tuple[str, str], ...] = ((ACTOR, "mona@desk"),)
        if body is not None:
            headers = (*headers, ("content-type", "application/json"))
        request = Request(
            method=method,
            path=path,
            query=tuple(query.items()),
            headers=headers,
            body=body or b"",
        )
        answer = await self._table.handle(request)
        assert isinstance(answer, Response)
        return answer

    async def get(self, path: str, **query: str) -> Any:
        answer = await self.ask("GET", path, **query)
        assert answer.status == 200, answer.body
        return answer.json()

    async def patch(self, tenant: str, body: bytes) -> Response:
        return await self.ask("PATCH", f"/api/v1/tenants/{tenant}", body)


async def _anybody(_: Request) -> None:
    return None


def play(scenario: Callable[[Desk], Awaitable[None]], url: str, keys: KeyPair) -> None:
    async def main(world: World) -> None:
        await scenario(Desk(world))

    play_dispatch(main, url, keys)


def test_a_change_of_a_tenant_says_who_made_it_from_what_to_what(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(desk: Desk) -> None:
        await desk.world.queued()
        answer = await desk.patch(
            "acme",
            b'{"weight": 2.5, "limits": [{"platform": "macos", "vcpus": 6}],'
            b' "repositories": [{"repository": "acme/app", "priority": 7}], "why": "the release"}',
        )
        assert answer.status == 200, answer.body
        found = answer.json()
        assert found["weight"] == 2.5
        assert {u["platform"]: (u["vcpus"], u["memory_gb"]) for u in found["limits"]} == {
            "linux": (80, 200),
            "macos": (6, 200),
        }
        changes = {each["field"]: each for each in found["changes"]}
        assert set(changes) == {"weight", "limit/macos", "repository/acme/app"}
        for each in changes.values():
            assert (each["actor"], each["why"]) == ("mona@desk", "the release")
        assert (changes["weight"]["source"], changes["weight"]["target"]) == ("1", "2.5")
        assert changes["limit/macos"]["source"] == "80 vCPU, 200 GB"
        assert changes["limit/macos"]["target"] == "6 vCPU, 200 GB"

    play(scenario, database_url, app_keys)


def test_asking_for_what_is_so_already_leaves_no_trace(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(desk: Desk) -> None:
        await desk.world.queued()
        for _ in range(2):
            answer = await desk.patch("acme", b'{"paused": true, "why": "frozen"}')
            assert answer.status == 200
        assert [each["field"] for each in answer.json()["changes"]] == ["paused"]

    play(scenario, database_url, app_keys)


def test_a_paused_tenant_keeps_its_jobs_and_gets_no_runner_until_it_is_resumed(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(desk: Desk) -> None:
        world = desk.world
        await world.pool()
        guest = await world.pod()
        job = await world.queued()
        assert (await desk.patch("acme", b'{"paused": true}')).status == 200
        async with world.waiting(guest):
            await world.match()
            assert world.slot(guest)["state"] == "idle"
            assert world.job(job)["state"] == "queued"
            assert (await desk.patch("acme", b'{"paused": false}')).status == 200
            await world.match()
        assert world.slot(guest)["state"] == "offered"
        await world.mint()

    play(scenario, database_url, app_keys)


def test_whoever_resumes_a_tenant_that_github_refused_has_it_tried_at_once(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(desk: Desk) -> None:
        world = desk.world
        await world.pool()
        guest = await world.pod()
        await world.offered(guest)
        world.github.faults.fail_next("/orgs/acme/actions/runners/generate-jitconfig", 403)
        await world.mint()
        await world.queued()
        async with world.waiting(guest):
            await world.match()
            assert world.slot(guest)["state"] == "idle"
            answer = await desk.patch("acme", b'{"paused": false, "why": "rights are back"}')
            (change,) = answer.json()["changes"]
            assert (change["field"], change["target"]) == (
                "passed over account acme",
                "tried again",
            )
            await world.match()
        assert world.slot(guest)["state"] == "offered"
        await world.mint()

    play(scenario, database_url, app_keys)


def test_jobs_that_wait_already_follow_the_new_priority_of_their_repository(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(desk: Desk) -> None:
        old, new = await desk.world.queued(), await desk.world.queued("acme/lib")
        await desk.patch("acme", b'{"repositories": [{"repository": "acme/lib", "priority": 5}]}')
        assert desk.world.job(old)["priority"] == 0
        assert desk.world.job(new)["priority"] == 5
        late = await desk.world.queued("acme/lib")
        assert desk.world.job(late)["priority"] == 5
        answer = await desk.patch(
            "acme", b'{"repositories": [{"repository": "Acme/LIB", "priority": 6}]}'
        )
        assert answer.status == 200, answer.body  # GitHub's names have no case
        assert desk.world.job(late)["priority"] == 6
        known = [each["repository"] for each in answer.json()["repositories"]]
        assert known == ["acme/app", "acme/lib"]

    play(scenario, database_url, app_keys)


BAD_PATCHES = {
    "nothing": b"",
    "no JSON": b"{",
    "no weight": b'{"weight": 0}',
    "a weight without end": b'{"weight": 1e999}',
    "a limit below nothing": b'{"limits": [{"platform": "linux", "vcpus": -1}]}',
    "another platform": b'{"limits": [{"platform": "windows", "vcpus": 1}]}',
    "another's repository": b'{"repositories": [{"repository": "mona/dots", "weight": 2}]}',
    "a path": b'{"repositories": [{"repository": "acme/../x", "weight": 2}]}',
    "a repository of nobody": b'{"repositories": [{"repository": "acme/ap", "weight": 2}]}',
    "a repository twice": b'{"repositories": [{"repository": "acme/app"}, {"repository": "acme/APP"}]}',
    "a platform twice": b'{"limits": [{"platform": "linux", "vcpus": 1}, {"platform": "linux"}]}',
    "a name with a line end": b'{"repositories": [{"repository": "acme/app\\n", "weight": 2}]}',
    "a word that ends with a line": b'{"why": "a\\n", "weight": 2}',
    "a field that is none": b'{"wieght": 2}',
    "a word with a line end": b'{"why": "a\\nb", "weight": 2}',
    "a word with nothing in it": b'{"why": "a\\u0000b", "weight": 2}',
}


@pytest.mark.parametrize("body", BAD_PATCHES.values(), ids=BAD_PATCHES)
def test_a_wish_that_makes_no_sense_changes_nothing(
    body: bytes, database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(desk: Desk) -> None:
        await desk.world.queued()
        before = await desk.get("/api/v1/tenants/acme")
        answer = await desk.patch("acme", body)
        assert answer.status in (400, 422) and answer.json()["error"]
        assert await desk.get("/api/v1/tenants/acme") == before

    play(scenario, database_url, app_keys)


STRANGE = (
    "/api/v1/tenants/nobody",
    "/api/v1/tenants/a\x00b",
    "/api/v1/tenants/é",
    "/api/v1/tenants/" + "x" * 200,
    "/api/v1/jobs/1",
    "/api/v1/jobs/0x1",
    "/api/v1/jobs/99999999999999999999",
    "/api/v1/jobs/٣",
)


@pytest.mark.parametrize("path", STRANGE)
def test_what_is_not_there_is_said_with_where_to_look(
    path: str, database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(desk: Desk) -> None:
        answer = await desk.ask("GET", path)
        assert answer.status == 404
        assert "runyard" in answer.json()["fix"]

    play(scenario, database_url, app_keys)


BAD_QUERIES = (
    {"limit": "0"},
    {"limit": "501"},
    {"limit": "x"},
    {"state": "asleep"},
    {"tenant": "a b"},
    {"repository": "acme"},
    {"before": "-1"},
)


@pytest.mark.parametrize("query", BAD_QUERIES, ids=str)
def test_a_question_that_makes_no_sense_is_told_what_is_possible(
    query: dict[str, str], database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(desk: Desk) -> None:
        answer = await desk.ask("GET", "/api/v1/jobs", **query)
        assert answer.status == 400
        assert next(iter(query)) in answer.json()["reason"]

    play(scenario, database_url, app_keys)


def test_pages_lose_nobody_and_show_nobody_twice(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(desk: Desk) -> None:
        jobs = [await desk.world.queued(repo) for repo in ("acme/app", "acme/lib", "mona/dots") * 3]
        seen: list[int] = []
        before = ""
        while True:
            page = await desk.get(
                "/api/v1/jobs", limit="2", **({"before": before} if before else {})
            )
            seen += [each["job"] for each in page["items"]]
            if not page["next"]:
                break
            before = str(page["next"])
        assert seen == sorted(jobs, reverse=True)
        only = await desk.get("/api/v1/jobs", repository="acme/lib", state="queued")
        assert [each["repository"] for each in only["items"]] == ["acme/lib"] * 3
        first = await desk.get("/api/v1/tenants", limit="1")
        rest = await desk.get("/api/v1/tenants", limit="1", after=first["next"])
        assert [page["items"][0]["tenant"] for page in (first, rest)] == ["acme", "mona"]
        assert rest["next"] == ""

    play(scenario, database_url, app_keys)


def test_a_job_is_shown_with_its_runner_and_why_each_step_was_taken_and_without_its_secret(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(desk: Desk) -> None:
        world = desk.world
        await world.pool()
        guest = await world.pod()
        job = await world.armed(guest)
        shown = await desk.get(f"/api/v1/jobs/{job}")
        assert shown["job"]["state"] == "bound" and shown["job"]["repository"] == "acme/app"
        assert [slot["pod_name"] for slot in shown["slots"]] == [guest.name]
        assert shown["slots"][0]["state"] == "armed"
        steps = [(each["source"], each["target"]) for each in shown["transitions"]]
        assert ("idle", "offered") in steps and ("offered", "armed") in steps
        assert all(each["why"] and each["actor"] for each in shown["transitions"])
        assert "jit" not in str(shown["slots"][0])

    play(scenario, database_url, app_keys)


def test_a_run_with_other_jobs_is_cancelled_only_when_that_was_said(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(desk: Desk) -> None:
        world = desk.world
        first = await world.queued()
        run = world.github.jobs()[first].run_id
        second = world.queue(run_id=run)
        await world.github.settle()
        path = f"/api/v1/jobs/{first}/cancel"
        answer = await desk.ask("POST", path, b"{}")
        assert answer.status == 409
        assert str(second) in answer.json()["reason"] and "--with-others" in answer.json()["fix"]
        assert world.github.jobs()[first].status == "queued"
        answer = await desk.ask("POST", path, b'{"others": true}')
        assert answer.status == 202 and answer.json()["others"] == [second]
        await world.github.settle()
        assert [world.job(each)["conclusion"] for each in (first, second)] == ["cancelled"] * 2
        assert (await desk.ask("POST", path, b"{}")).status == 409

    play(scenario, database_url, app_keys)


def test_a_job_that_is_alone_in_its_run_is_cancelled_and_can_be_run_once_more(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(desk: Desk) -> None:
        world = desk.world
        job = await world.queued()
        assert (await desk.ask("POST", f"/api/v1/jobs/{job}/retry", b"{}")).status == 409
        assert (await desk.ask("POST", f"/api/v1/jobs/{job}/cancel", b"{}")).status == 202
        await world.github.settle()
        answer = await desk.ask("POST", f"/api/v1/jobs/{job}/retry", b"{}")
        assert answer.status == 202, answer.body
        await world.github.settle()
        (again,) = (each for each in (await desk.get("/api/v1/jobs", state="queued"))["items"])
        assert again["job"] != job and again["run_attempt"] == 2
        asked = (await desk.get(f"/api/v1/jobs/{job}"))["asked"]
        assert [(each["what"], each["outcome"], each["actor"]) for each in asked] == [
            ("retry", "queued again, under a new number", "mona@desk"),
            ("cancel", "cancelling", "mona@desk"),
            ("retry", "refused: it is not over yet", "mona@desk"),
        ]
        assert (await desk.get("/api/v1/tenants/acme"))["changes"] == []

    play(scenario, database_url, app_keys)


def test_without_a_json_body_nothing_is_asked_of_github(
    database_url: str, app_keys: KeyPair
) -> None:
    """Another site's page can post a form from a visitor's browser, but no JSON."""

    async def scenario(desk: Desk) -> None:
        job = await desk.world.queued()
        for word in ("cancel", "retry"):
            assert (await desk.ask("POST", f"/api/v1/jobs/{job}/{word}")).status == 415
        assert desk.world.github.jobs()[job].status == "queued"

    play(scenario, database_url, app_keys)


def test_a_github_that_does_not_answer_is_told_as_such(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(desk: Desk) -> None:
        job = await desk.world.queued()
        desk.world.github.faults.outage = True
        answer = await desk.ask("POST", f"/api/v1/jobs/{job}/cancel", b"{}")
        assert answer.status == 502 and answer.json()["reason"]
        desk.world.github.faults.outage = False
        (asked,) = (await desk.get(f"/api/v1/jobs/{job}"))["asked"]  # it may have done it
        assert (asked["what"], asked["actor"]) == ("cancel", "mona@desk")
        assert answer.json()["reason"] in asked["outcome"]

    play(scenario, database_url, app_keys)
