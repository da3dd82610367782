"""REST of tenants and jobs: every change is recorded, bad input is refused, GitHub's refusals are reported."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.dispatch.dispatchharness import Harness
from tests.dispatch.dispatchharness import play as play_dispatch

from runyard.embedded.github.identity import KeyPair
from runyard.http.messages import Request, Response
from runyard.http.routes import Routes
from runyard.wire.reasons_dispatch import Requested
from runyard.wire.rest import ACTOR


class Client:
    """An authenticated client."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self._table = Routes("rest", "v1", harness.server.rest.routes(), guard=_allow_all)

    async def ask(
        self, method: str, path: str, body: bytes | None = None, **query: str
    ) -> Response:
        headers: tuple[tuple[str, str], ...] = ((ACTOR, "mona@client"),)
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


async def _allow_all(_: Request) -> None:
    return None


def play(scenario: Callable[[Client], Awaitable[None]], url: str, keys: KeyPair) -> None:
    async def main(harness: Harness) -> None:
        await scenario(Client(harness))

    play_dispatch(main, url, keys)


def test_a_change_of_a_tenant_is_recorded_with_actor_and_values(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(client: Client) -> None:
        await client.harness.queued()
        answer = await client.patch(
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
        given = "the release"
        for each in changes.values():
            assert (each["actor"], each["why"]) == ("mona@client", given)
        assert (changes["weight"]["source"], changes["weight"]["target"]) == ("1", "2.5")
        assert changes["limit/macos"]["source"] == "80 vCPU, 200 GB"
        assert changes["limit/macos"]["target"] == "6 vCPU, 200 GB"

    play(scenario, database_url, app_keys)


def test_a_patch_that_changes_nothing_is_not_recorded(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(client: Client) -> None:
        await client.harness.queued()
        for _ in range(2):
            answer = await client.patch("acme", b'{"paused": true, "why": "frozen"}')
            assert answer.status == 200
        assert [each["field"] for each in answer.json()["changes"]] == ["paused"]

    play(scenario, database_url, app_keys)


def test_a_paused_tenant_keeps_its_jobs_and_gets_no_runner_until_it_is_resumed(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(client: Client) -> None:
        harness = client.harness
        await harness.pool()
        guest = await harness.pod()
        job = await harness.queued()
        assert (await client.patch("acme", b'{"paused": true}')).status == 200
        async with harness.waiting(guest):
            await harness.match()
            assert harness.slot(guest)["state"] == "idle"
            assert harness.job(job)["state"] == "queued"
            assert (await client.patch("acme", b'{"paused": false}')).status == 200
            await harness.match()
        assert harness.slot(guest)["state"] == "offered"
        await harness.mint()

    play(scenario, database_url, app_keys)


def test_resuming_a_refused_tenant_tries_it_at_once(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(client: Client) -> None:
        harness = client.harness
        await harness.pool()
        guest = await harness.pod()
        await harness.offered(guest)
        harness.github.faults.fail_next("/orgs/acme/actions/runners/generate-jitconfig", 403)
        await harness.mint()
        await harness.queued()
        async with harness.waiting(guest):
            await harness.match()
            assert harness.slot(guest)["state"] == "idle"
            answer = await client.patch("acme", b'{"paused": false, "why": "rights are back"}')
            (change,) = answer.json()["changes"]
            assert (change["field"], change["source"], change["target"]) == (
                "exclusion/account/acme",
                "mint-refused",
                "tried-again",
            )
            assert change["detail"]["kind"] == "not-allowed" and change["text"]
            await harness.match()
        assert harness.slot(guest)["state"] == "offered"
        await harness.mint()

    play(scenario, database_url, app_keys)


def test_queued_jobs_get_the_new_priority_of_their_repository(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(client: Client) -> None:
        old, new = await client.harness.queued(), await client.harness.queued("acme/lib")
        await client.patch("acme", b'{"repositories": [{"repository": "acme/lib", "priority": 5}]}')
        assert client.harness.job(old)["priority"] == 0
        assert client.harness.job(new)["priority"] == 5
        late = await client.harness.queued("acme/lib")
        assert client.harness.job(late)["priority"] == 5
        answer = await client.patch(
            "acme", b'{"repositories": [{"repository": "Acme/LIB", "priority": 6}]}'
        )
        assert answer.status == 200, answer.body  # GitHub's names are case-insensitive
        assert client.harness.job(late)["priority"] == 6
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
def test_an_invalid_patch_changes_nothing(
    body: bytes, database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(client: Client) -> None:
        await client.harness.queued()
        before = await client.get("/api/v1/tenants/acme")
        answer = await client.patch("acme", body)
        assert answer.status in (400, 422) and answer.json()["error"]
        assert await client.get("/api/v1/tenants/acme") == before

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
def test_an_unknown_tenant_or_job_is_404_with_a_fix(
    path: str, database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(client: Client) -> None:
        answer = await client.ask("GET", path)
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
def test_an_invalid_parameter_is_400_with_the_valid_values(
    query: dict[str, str], database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(client: Client) -> None:
        answer = await client.ask("GET", "/api/v1/jobs", **query)
        assert answer.status == 400
        assert next(iter(query)) in answer.json()["reason"]

    play(scenario, database_url, app_keys)


def test_pages_contain_every_item_once(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(client: Client) -> None:
        jobs = [
            await client.harness.queued(repo) for repo in ("acme/app", "acme/lib", "mona/dots") * 3
        ]
        seen: list[int] = []
        before = ""
        while True:
            page = await client.get(
                "/api/v1/jobs", limit="2", **({"before": before} if before else {})
            )
            seen += [each["job"] for each in page["items"]]
            if not page["next"]:
                break
            before = str(page["next"])
        assert seen == sorted(jobs, reverse=True)
        only = await client.get("/api/v1/jobs", repository="acme/lib", state="queued")
        assert [each["repository"] for each in only["items"]] == ["acme/lib"] * 3
        first = await client.get("/api/v1/tenants", limit="1")
        rest = await client.get("/api/v1/tenants", limit="1", after=first["next"])
        assert [page["items"][0]["tenant"] for page in (first, rest)] == ["acme", "mona"]
        assert rest["next"] == ""

    play(scenario, database_url, app_keys)


def test_a_job_is_shown_with_its_transitions_and_without_its_jit(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(client: Client) -> None:
        harness = client.harness
        await harness.pool()
        guest = await harness.pod()
        job = await harness.armed(guest)
        shown = await client.get(f"/api/v1/jobs/{job}")
        assert shown["job"]["state"] == "bound" and shown["job"]["repository"] == "acme/app"
        assert [slot["pod_name"] for slot in shown["slots"]] == [guest.name]
        assert shown["slots"][0]["state"] == "armed"
        steps = [(each["source"], each["target"]) for each in shown["transitions"]]
        assert ("idle", "offered") in steps and ("offered", "armed") in steps
        assert all(
            each["reason"] and each["text"] and each["actor"] for each in shown["transitions"]
        )
        assert "jit" not in str(shown["slots"][0])

    play(scenario, database_url, app_keys)


def test_a_run_with_other_jobs_is_cancelled_only_when_confirmed(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(client: Client) -> None:
        harness = client.harness
        first = await harness.queued()
        run = harness.github.jobs()[first].run_id
        second = harness.queue(run_id=run)
        await harness.github.settle()
        path = f"/api/v1/jobs/{first}/cancel"
        answer = await client.ask("POST", path, b"{}")
        assert answer.status == 409 and answer.json()["code"] == Requested.RUN_HAS_OTHERS
        assert str(second) in answer.json()["reason"] and "--with-others" in answer.json()["fix"]
        assert harness.github.jobs()[first].status == "queued"
        answer = await client.ask("POST", path, b'{"others": true}')
        assert answer.status == 202 and answer.json()["others"] == [second]
        await harness.github.settle()
        assert [harness.job(each)["conclusion"] for each in (first, second)] == ["cancelled"] * 2
        assert (await client.ask("POST", path, b"{}")).status == 409

    play(scenario, database_url, app_keys)


def test_the_only_job_of_a_run_can_be_cancelled_and_rerun(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(client: Client) -> None:
        harness = client.harness
        job = await harness.queued()
        assert (await client.ask("POST", f"/api/v1/jobs/{job}/retry", b"{}")).status == 409
        assert (await client.ask("POST", f"/api/v1/jobs/{job}/cancel", b"{}")).status == 202
        await harness.github.settle()
        answer = await client.ask("POST", f"/api/v1/jobs/{job}/retry", b"{}")
        assert answer.status == 202, answer.body
        await harness.github.settle()
        (again,) = (each for each in (await client.get("/api/v1/jobs", state="queued"))["items"])
        assert again["job"] != job and again["run_attempt"] == 2
        asked = (await client.get(f"/api/v1/jobs/{job}"))["asked"]
        assert [(each["what"], each["outcome"], each["actor"]) for each in asked] == [
            ("retry", Requested.RERUN_QUEUED, "mona@client"),
            ("cancel", Requested.CANCELLING, "mona@client"),
            ("retry", Requested.JOB_NOT_OVER, "mona@client"),
        ]
        assert (await client.get("/api/v1/tenants/acme"))["changes"] == []

    play(scenario, database_url, app_keys)


def test_without_a_json_body_github_is_not_called(database_url: str, app_keys: KeyPair) -> None:
    """Another site's page can post a form from a visitor's browser, but no JSON."""

    async def scenario(client: Client) -> None:
        job = await client.harness.queued()
        for word in ("cancel", "retry"):
            assert (await client.ask("POST", f"/api/v1/jobs/{job}/{word}")).status == 415
        assert client.harness.github.jobs()[job].status == "queued"

    play(scenario, database_url, app_keys)


def test_an_unanswered_request_to_github_is_502(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(client: Client) -> None:
        job = await client.harness.queued()
        client.harness.github.faults.outage = True
        answer = await client.ask("POST", f"/api/v1/jobs/{job}/cancel", b"{}")
        assert answer.status == 502 and answer.json()["reason"]
        client.harness.github.faults.outage = False
        (asked,) = (await client.get(f"/api/v1/jobs/{job}"))["asked"]  # GitHub may have done it
        assert (asked["what"], asked["actor"]) == ("cancel", "mona@client")
        assert asked["outcome"] == Requested.GITHUB_FAILED
        assert answer.json()["reason"] == asked["detail"]["message"]

    play(scenario, database_url, app_keys)
