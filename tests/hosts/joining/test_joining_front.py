"""Tests that the listener for hosts serves hosts, and nothing and no one else."""

from collections.abc import Awaitable, Callable

import jwt
import pytest
from tests.hosts.joining.joinsupport import (
    ADMIN,
    MACHINE,
    NODES,
    OTHER_MACHINE,
    PRACTICE,
    Main,
    code_of,
    on_main,
)

from runyard.embedded.up.hosts import host_names
from runyard.hosts.joining.accounts import NameTaken, check_name, grant, revoke
from runyard.hosts.joining.failures import ALLOWED, WINDOW
from runyard.http.errors import OutcomeUnknown
from runyard.http.loopback import Loopback
from runyard.http.messages import Request, Response, Stream
from runyard.kube.errors import error_for
from runyard.kube.kinds import SERVICE_ACCOUNTS
from runyard.wire import names, rights
from runyard.wire.joining import JOIN, JoinToken
from runyard.wire.paths import DISPATCH

DATA = "/api/v1/namespaces/tuist-runners"


def node(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


async def account_token(main: Main, account: str) -> str:
    body = {"metadata": {"name": account}}
    await main.kube.create(SERVICE_ACCOUNTS, body, namespace=names.CONTROLLER_NAMESPACE)
    return await main.kube.create_token(
        account, namespace=names.CONTROLLER_NAMESPACE, audience="", seconds=3600
    )


# ── joining ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_host_that_joined_may_register_its_own_node_and_no_other() -> None:
    async def test(main: Main) -> None:
        given = await main.join()
        own = await main.ask("POST", NODES, token=given.token, body=node("mini-2"))
        other = await main.ask("POST", NODES, token=given.token, body=node("host-1"))
        assert (own.status, other.status) == (201, 403)
        assert (given.fleet, given.practice_url) == ("local", "http://127.0.0.1:9")
        secrets = await main.ask("GET", "/api/v1/secrets", token=given.token)
        assert secrets.status == 403

    on_main(test)


def test_each_reason_for_a_refused_token_is_told_to_its_holder_and_none_to_others() -> None:
    async def test(main: Main) -> None:
        used, expired = await main.token(), await main.token(seconds=60)
        named = await main.token(name="mini-9")
        assert (await main.try_join(used)).status == 201
        assert code_of(await main.try_join(used)) == "join-token-used"
        assert code_of(await main.try_join(named)) == "join-token-other-name"
        main.clock.ahead = 61
        assert code_of(await main.try_join(expired)) == "join-token-expired"
        guessed = [JoinToken(each.id, "00" * 20, "") for each in (used, expired, named)]
        unknown = JoinToken("ffffffffff", "00" * 20, "")
        answers = [await main.try_join(each, peer="192.0.2.8") for each in (*guessed, unknown)]
        assert {code_of(each) for each in answers} == {"join-token-wrong"}
        assert len({each.body for each in answers}) == 1  # no oracle for ids

    on_main(test)


def test_a_refusal_that_can_be_corrected_does_not_use_the_token_up() -> None:
    async def test(main: Main) -> None:
        token = await main.token()
        await main.join(name="mini-1", machine=OTHER_MACHINE)
        assert code_of(await main.try_join(token, name="mini-1")) == "join-name-taken"
        assert code_of(await main.try_join(token, name="../x")) == "join-name-invalid"
        assert (await main.try_join(token, name="mini-2")).status == 201

    on_main(test)


@pytest.mark.parametrize("name", ["host-1", "mini-1"], ids=["own", "joined"])
def test_a_machine_cannot_take_the_name_of_another_host(name: str) -> None:
    async def test(main: Main) -> None:
        await account_token(main, rights.host_account("host-1"))
        await main.join(name="mini-1", machine=OTHER_MACHINE)
        before = await main.kube.get(
            SERVICE_ACCOUNTS, rights.host_account(name), namespace=names.CONTROLLER_NAMESPACE
        )
        answer = await main.try_join(await main.token(), name=name)
        after = await main.kube.get(
            SERVICE_ACCOUNTS, rights.host_account(name), namespace=names.CONTROLLER_NAMESPACE
        )
        assert (code_of(answer), before) == ("join-name-taken", after)

    on_main(test)


@pytest.mark.parametrize(
    "machine",
    ["", "machine", "0" * 31, "0" * 33, "0" * 31 + "g", "0" * 32 + "\n", "A" * 32],
    ids=["none", "a word", "short", "long", "no hex", "a line break", "capitals"],
)
def test_a_request_without_the_identifier_of_a_machine_takes_no_name(machine: str) -> None:
    async def test(main: Main) -> None:
        account = rights.host_account("rack-1")  # made by hand: it is no machine's
        await account_token(main, account)
        token = await main.token()
        for name in ("rack-1", "mini-2"):
            answer = await main.try_join(token, name=name, machine=machine)
            assert (answer.status, code_of(answer)) == (400, "body-unexpected")
        assert [each.state(0.0) for each in await main.tokens.all()] == ["valid"]

    on_main(test)


def test_an_account_that_no_join_made_is_no_machines_own() -> None:
    async def test(main: Main) -> None:
        await account_token(main, rights.host_account("rack-1"))
        for machine in ("", MACHINE):
            with pytest.raises(NameTaken):
                await check_name(main.kube, "rack-1", machine)
            with pytest.raises(NameTaken):
                await grant(main.kube, "rack-1", machine)

    on_main(test)


def test_a_name_that_the_main_machine_may_give_its_own_hosts_later_is_refused() -> None:
    async def test(main: Main) -> None:
        token = await main.token()
        for name in host_names(50):
            answer = await main.try_join(token, name=name)
            assert (answer.status, code_of(answer)) == (409, "join-name-taken")
        assert (await main.try_join(token, name="host-a")).status == 201

    on_main(test)


def test_joining_again_ends_the_credential_that_may_have_been_lost() -> None:
    async def test(main: Main) -> None:
        old = await main.join()
        new = await main.join()
        assert (await main.ask("GET", f"{NODES}/mini-2", token=old.token)).status == 401
        assert (await main.ask("GET", f"{NODES}/mini-2", token=new.token)).status == 404

    on_main(test)


def test_an_address_that_guesses_is_stopped_also_with_the_right_token() -> None:
    async def test(main: Main) -> None:
        token = await main.token()
        wrong = JoinToken(token.id, "00" * 20, "")
        for _ in range(ALLOWED):
            assert (await main.try_join(wrong)).status == 403
        stopped = await main.try_join(token)
        assert (stopped.status, code_of(stopped)) == (429, "join-too-many-failures")
        assert 0 < int(stopped.header("retry-after")) <= WINDOW + 1
        assert (await main.try_join(token, peer="192.0.2.99")).status == 201

    on_main(test)


@pytest.mark.parametrize("body", [None, [], {"id": 1}], ids=["none", "a list", "wrong types"])
def test_a_malformed_request_to_join_counts_as_a_failure(body: object) -> None:
    async def test(main: Main) -> None:
        answers = [await main.ask("POST", JOIN, body=body) for _ in range(ALLOWED + 1)]
        assert [each.status for each in answers] == [400] * ALLOWED + [429]

    on_main(test)


# ── renewing, removing ──────────────────────────────────────────────────────────────────────────────


def test_a_host_renews_its_credential_and_the_old_one_stays_until_it_expires() -> None:
    async def test(main: Main) -> None:
        given = await main.join()
        main.clock.ahead = 86400
        renewed = (await main.renew(given.token)).json()
        assert renewed["name"] == "mini-2" and renewed["token"] != given.token
        assert renewed["expires"] == pytest.approx(given.expires + 86400, abs=5)
        for token in (given.token, renewed["token"]):
            assert (await main.ask("GET", f"{NODES}/mini-2", token=token)).status == 404

    on_main(test)


def test_a_removed_host_is_out_with_its_next_request() -> None:
    async def test(main: Main) -> None:
        given = await main.join()
        assert (await main.ask("GET", f"{NODES}/mini-2", token=given.token)).status == 404
        assert await revoke(main.kube, "mini-2")
        refused = await main.ask("GET", f"{NODES}/mini-2", token=given.token)
        assert refused.status == 401
        assert "join again" in str(error_for(refused, what="GET")), "its agent logs nothing else"
        assert code_of(await main.renew(given.token)) == "host-credential-revoked"
        assert not await revoke(main.kube, "mini-2")

    on_main(test)


class Between(Loopback):
    """The API, to which something else happens right before a token is requested."""

    def __init__(self, main: Main, happens: Callable[[], Awaitable[object]]) -> None:
        super().__init__(main.core.handle)
        self._happens = happens
        self._done = False

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        if request.path.endswith("/token") and not self._done:
            self._done = True
            await self._happens()
        return await super().send(request, timeout=timeout)


def test_a_host_that_is_replaced_while_it_renews_gets_no_credential_of_its_successor() -> None:
    async def test(main: Main) -> None:
        given = await main.join()

        async def replaced() -> None:
            await revoke(main.kube, "mini-2")
            await grant(main.kube, "mini-2", OTHER_MACHINE)

        front = main.front_with(Between(main, replaced))
        answer = await main.renew(given.token, front=front)
        assert (answer.status, code_of(answer)) == (401, "host-credential-revoked")
        assert "token" not in answer.json()

    on_main(test)


def test_a_machine_that_is_replaced_while_it_joins_gets_no_credential_of_its_successor() -> None:
    async def test(main: Main) -> None:
        async def replaced() -> None:
            await revoke(main.kube, "mini-2")
            await grant(main.kube, "mini-2", OTHER_MACHINE)

        front = main.front_with(Between(main, replaced))
        answer = await main.try_join(await main.token(), front=front)
        assert (answer.status, code_of(answer)) == (409, "join-name-taken")
        assert "token" not in answer.json()

    on_main(test)


class Stops(Loopback):
    """An API that stops responding at a request."""

    def __init__(self, main: Main, method: str, path: str) -> None:
        super().__init__(main.core.handle)
        self._at, self._stopped = (method, path), False

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        self._stopped = self._stopped or (
            request.method == self._at[0] and self._at[1] in request.path
        )
        if self._stopped:
            raise OutcomeUnknown("it stopped")
        return await super().send(request, timeout=timeout)


STOPS = {
    "while the token is read": ("GET", "/secrets/", "control-plane-away"),
    "while the token is used": ("PATCH", "/secrets/", "join-interrupted"),
    "before the account": ("POST", "/serviceaccounts", "join-interrupted"),
    "before the credential": ("POST", "/token", "join-interrupted"),
}


@pytest.mark.parametrize(("method", "path", "code"), STOPS.values(), ids=STOPS)
def test_a_token_that_may_be_used_up_is_not_to_be_tried_again(
    method: str, path: str, code: str
) -> None:
    async def test(main: Main) -> None:
        token = await main.token()
        answer = await main.try_join(token, front=main.front_with(Stops(main, method, path)))
        assert (answer.status, code_of(answer)) == (503, code)
        again = await main.try_join(token)
        assert (again.status == 201) is (code != "join-interrupted" or method == "PATCH")
        if again.status != 201:
            assert (await main.try_join(await main.token())).status == 201  # under the same name

    on_main(test)


def test_an_expired_credential_cannot_be_renewed() -> None:
    async def test(main: Main) -> None:
        given = await main.join()
        main.clock.ahead = 30 * 86400 + 1
        assert code_of(await main.renew(given.token)) == "host-credential-revoked"

    on_main(test)


# ── who and what is refused ─────────────────────────────────────────────────────────────────────────


def forged(main: Main) -> str:
    """A token with the claims of a host and another signature."""
    claims = {"sub": f"system:serviceaccount:tuist:{rights.host_account('mini-2')}"}
    return jwt.encode(claims, b"another key, which is long enough for it", algorithm="HS256")


@pytest.mark.parametrize("who", ["anonymous", "administrator", "server", "forged", "certificate"])
def test_the_api_is_closed_to_everything_but_a_host(who: str) -> None:
    async def test(main: Main) -> None:
        tokens = {
            "administrator": ADMIN,
            "server": await account_token(main, rights.SERVER_ACCOUNT),
            "forged": forged(main),
        }
        headers: tuple[tuple[str, str], ...] = ()
        if who == "certificate":
            headers = (
                ("x-runyard-client-cert-cn", "x"),
                ("x-runyard-client-cert-o", "system:masters"),
            )
        for path in (
            NODES,
            f"{DATA}/pods",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            "/version",
        ):
            answer = await main.ask("GET", path, token=tokens.get(who, ""), headers=headers)
            assert answer.status == 401

    on_main(test)


def test_the_guard_of_the_listener_is_what_refuses_the_administrator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("runyard.hosts.joining.front.host_claimed", lambda token: "any")

    async def test(main: Main) -> None:
        assert (await main.ask("GET", "/api/v1/secrets", token=ADMIN)).status == 200

    on_main(test)


def test_a_host_cannot_act_for_another_user() -> None:
    async def test(main: Main) -> None:
        given = await main.join()
        headers = (
            ("impersonate-user", "boss"),
            ("impersonate-group", "system:masters"),
            ("x-runyard-client-cert-o", "system:masters"),
        )
        answer = await main.ask("GET", "/api/v1/secrets", token=given.token, headers=headers)
        assert answer.status == 403

    on_main(test)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/login",
        "/metrics",
        "/readyz",
        "/openapi.json",
        "/webhooks/github",
        "/api/internal/runners/desired_replicas",
        "/practice/jobs",
        "/openapi/v2",
        "/apish",
    ],
)
def test_the_dashboard_and_everything_else_has_no_path_here(path: str) -> None:
    async def test(main: Main) -> None:
        given = await main.join()
        for method in ("GET", "POST"):
            answer = await main.ask(method, path, token=given.token)
            assert code_of(answer) == "path-unknown"
        assert (main.server.requests, main.github.requests) == ([], [])

    on_main(test)


@pytest.mark.parametrize("path", ["/api/v1/overview", "/api/v1/tenants", "/api/v1/jobs"])
def test_the_rest_api_of_the_server_is_not_behind_the_path_of_the_kubernetes_api(path: str) -> None:
    async def test(main: Main) -> None:
        given = await main.join()
        assert (await main.ask("GET", path, token=given.token)).status in (403, 404)
        assert main.server.requests == []

    on_main(test)


def test_polls_of_runners_reach_the_server_with_their_own_credential_and_nothing_else() -> None:
    async def test(main: Main) -> None:
        sent = (("prefer", "wait=20"), ("cookie", "a=b"), ("x-runyard-actor", "me"))
        answer = await main.ask("POST", DISPATCH, token="of-the-pod", body={}, headers=sent)
        (request,) = main.server.requests
        assert dict(request.headers) == {
            "prefer": "wait=20",
            "content-type": "application/json",
            "authorization": "Bearer of-the-pod",
        }
        assert isinstance(answer, Response) and answer.header("set-cookie") == ""
        method, path = PRACTICE[0]
        assert (await main.ask(method, path)).status == 200
        assert [each.path for each in main.github.requests] == [path]
        assert (await main.ask("GET", DISPATCH)).status == 404

    on_main(test)
