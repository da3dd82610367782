"""A scope that cannot have runners of ours, or is no longer there, does not block the reaping of unknown owners."""

import msgspec
import pytest
from tests.dispatch.dispatchharness import Harness, Onward, play
from tests.dispatch.unknownowners import Fleet

from runyard.embedded.github.identity import KeyPair
from runyard.github.app import TokenAuth
from runyard.http.messages import Request, Response, Stream, json_response


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
    pytest.param("acme-old", "Organization", "acme", True, id="a renamed organisation"),
    pytest.param("mona-old", "User", "mona", True, id="a renamed person"),
    pytest.param("gone", "Organization", "", False, id="the App is not installed any more"),
]


@pytest.mark.parametrize(("tenant", "kind", "now", "reaped"), STALE)
def test_a_row_under_an_old_name_blocks_no_reaping_while_its_installation_is_listed(
    database_url: str, app_keys: KeyPair, tenant: str, kind: str, now: str, reaped: bool
) -> None:
    async def scenario(harness: Harness) -> None:
        fleet = Fleet(harness)
        await fleet.known()
        installed = {"acme": harness.acme, "mona": harness.mona}.get(now, 999999)
        harness.execute(
            "INSERT INTO tenants (tenant, installation_id, kind) VALUES (%s, %s, %s)",
            *(tenant, installed, kind),
        )
        repository = f"{tenant}/{'dots' if now == 'mona' else 'app'}"
        harness.execute(
            "INSERT INTO repositories (tenant, repository) VALUES (%s, %s)", tenant, repository
        )
        guest = await fleet.leak()
        await fleet.tick()
        assert fleet.there(guest) == [not reaped]
        assert (f"orgs/{tenant}" in fleet.reported) is not reaped

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize("selection", ["all", "selected"])
def test_a_deleted_repository_blocks_no_reaping_if_the_app_has_access_to_all(
    database_url: str, app_keys: KeyPair, selection: str
) -> None:
    async def scenario(harness: Harness) -> None:
        fleet = Fleet(harness)
        await fleet.known()
        harness.execute(
            "INSERT INTO tenants (tenant, installation_id, kind) VALUES ('mona', %s, 'User')",
            harness.mona,
        )
        harness.execute("INSERT INTO repositories (tenant, repository) VALUES ('mona', 'mona/x')")
        guest = await fleet.leak()

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            answer = await onward()
            if request.path != "/app/installations" or not isinstance(answer, Response):
                return answer
            found = msgspec.json.decode(answer.body)
            return json_response(
                200, [{**each, "repository_selection": selection} for each in found]
            )

        harness.github_wire.tamper = tamper
        await fleet.tick()
        assert fleet.there(guest) == [selection != "all"]
        assert ("repos/mona/x" in fleet.reported) is (selection != "all")

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
