"""A scope that cannot have runners of ours, or is no longer there, does not block the reaping of unknown owners."""

import msgspec
import pytest
from tests.dispatch.dispatchharness import Harness, Onward, play
from tests.dispatch.unknownowners import AGAIN, Fleet

from runyard.embedded.github.identity import KeyPair
from runyard.github.app import TokenAuth
from runyard.http.messages import Request, Response, Stream, json_response

UNINSTALLED = 999999


def permitted(harness: Harness, permission: str, *, denied: str) -> None:
    """Let the App have one of the permissions for runners: GitHub answers 403 for scopes of the other kind."""

    async def tamper(request: Request, onward: Onward) -> Response | Stream:
        if request.path.startswith(denied) and request.path.endswith("/actions/runners"):
            return json_response(403, {"message": "Resource not accessible by integration"})
        answer = await onward()
        if request.path != "/app/installations" or not isinstance(answer, Response):
            return answer
        found = msgspec.json.decode(answer.body)
        shown = {"actions": "write", "metadata": "read", permission: "write"}
        return json_response(200, [{**each, "permissions": shown} for each in found])

    harness.github_wire.tamper = tamper


@pytest.mark.parametrize(
    ("permission", "denied", "scopes"),
    [
        pytest.param("organization_self_hosted_runners", "/repos/", 2, id="of organisations"),
        pytest.param("administration", "/orgs/", 4, id="of repositories"),
    ],
)
def test_an_app_that_may_have_runners_in_one_kind_of_scope_still_proves_their_absence(
    database_url: str, app_keys: KeyPair, permission: str, denied: str, scopes: int
) -> None:
    async def scenario(harness: Harness) -> None:
        fleet = Fleet(harness)
        await fleet.known()
        guest = await fleet.leak()
        permitted(harness, permission, denied=denied)
        await fleet.tick()
        assert fleet.there(guest) == [False] and fleet.reported == ""
        why = harness.rows("SELECT detail FROM transitions WHERE target = 'draining'")
        assert why == [{"detail": {"owner": "nobody-we-know", "scopes": scopes}}]

    play(scenario, database_url, app_keys)


STALE = [
    pytest.param("acme-old", "Organization", "acme", id="a renamed organisation"),
    pytest.param("mona-old", "User", "mona", id="a renamed person"),
    pytest.param("gone", "Organization", "", id="the App is not installed any more"),
]


async def remember(
    harness: Harness, tenant: str, installation_id: int, *, kind: str = "User", repository: str = ""
) -> None:
    """Insert the rows of a tenant, as an earlier webhook left them."""
    harness.execute(
        "INSERT INTO tenants (tenant, installation_id, kind) VALUES (%s, %s, %s)",
        *(tenant, installation_id, kind),
    )
    if repository:
        harness.execute(
            "INSERT INTO repositories (tenant, repository) VALUES (%s, %s)", tenant, repository
        )


@pytest.mark.parametrize(("tenant", "kind", "now"), STALE)
def test_a_row_of_an_account_that_is_not_listed_under_its_name_blocks_no_reaping_for_ever(
    database_url: str, app_keys: KeyPair, tenant: str, kind: str, now: str
) -> None:
    async def scenario(harness: Harness) -> None:
        fleet = Fleet(harness)
        await fleet.known()
        installed = {"acme": harness.acme, "mona": harness.mona}.get(now, UNINSTALLED)
        repository = f"{tenant}/{'dots' if now == 'mona' else 'app'}"
        await remember(harness, tenant, installed, kind=kind, repository=repository)
        guest = await fleet.leak()
        await fleet.tick()
        assert fleet.there(guest) == [False] and fleet.reported == ""
        why = harness.rows("SELECT detail FROM transitions WHERE target = 'draining'")
        assert why == [{"detail": {"owner": "nobody-we-know", "scopes": 6}}], "all others were read"

    play(scenario, database_url, app_keys)


def test_an_account_that_uninstalled_the_app_costs_one_question_for_all_of_its_repositories(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        fleet = Fleet(harness)
        await fleet.known()
        await remember(harness, "gone", UNINSTALLED)
        for number in range(40):
            harness.execute(
                "INSERT INTO repositories (tenant, repository) VALUES ('gone', %s)",
                f"gone/{number}",
            )
        guest = await fleet.leak()
        await fleet.tick()
        asked = [each.path for each in harness.github_wire.requests]
        assert asked.count(f"/app/installations/{UNINSTALLED}") == asked.count("/app") == 1
        assert not [path for path in asked if path.startswith("/repos/gone")]
        assert fleet.there(guest) == [False] and fleet.reported == ""

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        pytest.param(f"/app/installations/{UNINSTALLED}", 500, id="the installation fails"),
        pytest.param(f"/app/installations/{UNINSTALLED}", 401, id="the key is not accepted"),
        pytest.param("/app", 404, id="the App itself is not found"),
        pytest.param("/app", 502, id="the App itself cannot be read"),
    ],
)
def test_an_installation_of_which_github_says_nothing_definite_blocks_and_is_named(
    database_url: str, app_keys: KeyPair, path: str, status: int
) -> None:
    async def scenario(harness: Harness) -> None:
        fleet = Fleet(harness)
        await fleet.known()
        await remember(harness, "gone", UNINSTALLED, kind="Organization")
        guest = await fleet.leak()

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            denied = request.path == path
            return json_response(status, {"message": "no"}) if denied else await onward()

        harness.github_wire.tamper = tamper
        await fleet.tick()
        assert fleet.there(guest) == [True] and "orgs/gone" in fleet.reported
        harness.github_wire.tamper = None
        await harness.clock.sleep(AGAIN)
        await fleet.tick()
        assert fleet.there(guest) == [False] and fleet.reported == ""

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize("listed", [True, False], ids=["and listed", "and missed by the list"])
def test_a_suspended_account_of_our_rows_blocks_and_is_named(
    database_url: str, app_keys: KeyPair, listed: bool
) -> None:
    async def scenario(harness: Harness) -> None:
        fleet = Fleet(harness)
        await fleet.known()
        await remember(harness, "newco", fleet.newco, kind="Organization")
        guest = await fleet.leak()
        harness.github.suspend(fleet.newco)

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            answer = await onward()
            if request.path != "/app/installations" or not isinstance(answer, Response):
                return answer
            found = msgspec.json.decode(answer.body)
            return json_response(200, [each for each in found if each["id"] != fleet.newco])

        harness.github_wire.tamper = None if listed else tamper
        await fleet.tick()
        assert fleet.there(guest) == [True]
        assert "the repositories of newco" in fleet.reported and "suspended" in fleet.reported
        harness.github.suspend(fleet.newco, suspended=False)
        await harness.clock.sleep(AGAIN)
        await fleet.tick()
        assert fleet.there(guest) == [False]

    play(scenario, database_url, app_keys)


def not_shown(harness: Harness, path: str, status: int) -> None:
    """Answer for the runners of a repository as GitHub does where the App may not read it."""

    async def tamper(request: Request, onward: Onward) -> Response | Stream:
        answer = await onward()
        return json_response(status, {}) if request.path == f"{path}/actions/runners" else answer

    harness.github_wire.tamper = tamper


GONE = [
    pytest.param(404, id="deleted, or private and not selected"),
    pytest.param(403, id="public and not selected"),
    pytest.param(301, id="renamed"),
]


@pytest.mark.parametrize("status", GONE)
def test_a_repository_that_its_installation_does_not_have_any_more_blocks_no_reaping_for_ever(
    database_url: str, app_keys: KeyPair, status: int
) -> None:
    async def scenario(harness: Harness) -> None:
        fleet = Fleet(harness)
        await fleet.known()
        await remember(harness, "mona", harness.mona, repository="mona/x")
        guest = await fleet.leak()
        not_shown(harness, "/repos/mona/x", status)
        session = await fleet.register(guest, "repos/mona/dots")  # it is still selected
        harness.github.queue_job("mona/dots", ("lost",))
        await harness.github.settle()
        await fleet.tick()
        busy = f"1: {guest.name} (GitHub says that its runner is busy at repos/mona/dots)"
        assert fleet.there(guest) == [True] and fleet.reported == busy
        session.finish("success")
        await harness.clock.sleep(AGAIN)
        await fleet.tick()
        assert fleet.there(guest) == [False] and fleet.reported == ""

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize("state", ["idle", "closed"])
@pytest.mark.parametrize("place", ["orgs/gone", "repos/mona/x"])
def test_a_place_that_github_does_not_show_blocks_while_a_slot_is_open_there(
    database_url: str, app_keys: KeyPair, place: str, state: str
) -> None:
    async def scenario(harness: Harness) -> None:
        fleet = Fleet(harness)
        await fleet.known()
        await remember(harness, "gone", UNINSTALLED, kind="Organization")
        await remember(harness, "mona", harness.mona, repository="mona/x")
        other = await harness.pod(9)
        await harness.poll(other)
        installation = UNINSTALLED if place == "orgs/gone" else harness.mona
        harness.execute(
            "UPDATE slots SET scope = %s, installation_id = %s, state = %s",
            *(place.replace("mona/x", "Mona/X"), installation, state),
        )
        guest = await fleet.leak()
        await fleet.tick()
        assert fleet.there(guest) == [state != "closed"]
        assert (place in fleet.reported.lower()) is (state != "closed")

    play(scenario, database_url, app_keys)


def test_with_a_token_for_one_repository_no_row_of_another_scope_blocks_the_reaping(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        harness.github.allow_token("secret", repo="acme/app")
        token = TokenAuth("secret", repository_name="acme/app")
        fleet = Fleet(harness, auth=token)
        guest = await fleet.leak()
        await fleet.known()  # orgs/acme is a row then, which the token does not show
        await fleet.register(guest, "repos/acme/app")
        await fleet.tick()
        assert fleet.there(guest) == [False] and not harness.github.runners()
        why = harness.rows("SELECT detail FROM transitions WHERE target = 'draining'")
        assert why == [{"detail": {"owner": "nobody-we-know", "scopes": 1}}]

    play(scenario, database_url, app_keys)
