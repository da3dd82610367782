"""Authentication: a valid token for this audience is needed for everything but health and version."""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from runyard.clock import RealClock
from runyard.embedded.kube.access.auth import User
from runyard.embedded.kube.access.login import ADMINISTRATOR, ANONYMOUS, authenticator, only_known
from runyard.embedded.kube.access.tokens import ISSUER
from runyard.embedded.kube.core import KubeCore
from runyard.http.client import HttpTransport
from runyard.http.messages import Request, Response
from runyard.http.server import listen
from runyard.http.tls import (
    client_context,
    issue_client,
    issue_server,
    make_authority,
    server_context,
    write_pair,
)
from runyard.wire import names

ADMIN = "an-administrator-of-tests"
SECOND = "another-administrator-of-tests"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
PODS = "/api/v1/namespaces/default/pods"


def core() -> KubeCore:
    made = KubeCore(clock=RealClock(), rng=random.Random(3))
    made.guard(authenticator([ADMIN, SECOND], made.tokens))
    return made


async def send(
    made: KubeCore, path: str, *, authorization: str = "", method: str = "GET", body: object = None
) -> Response:
    headers = (("authorization", authorization),) if authorization else ()
    raw = b"" if body is None else msgspec.json.encode(body)
    answer = await made.handle(Request(method=method, path=path, headers=headers, body=raw))
    assert isinstance(answer, Response)
    return answer


def play(scenario: Callable[[KubeCore], Awaitable[None]]) -> None:
    async def main() -> None:
        made = core()
        await scenario(made)
        assert not made.failures

    asyncio.run(main())


SENDERS = {
    "nobody": ("/api/v1/namespaces", "", 401),
    "a stranger": ("/api/v1/namespaces", "Bearer a-stranger-with-a-token", 401),
    "without a credential": ("/version", "", 401),
    "an administrator": ("/api/v1/namespaces", f"Bearer {ADMIN}", 413),  # and it was read
}


@pytest.mark.parametrize(("path", "shown", "status"), SENDERS.values(), ids=SENDERS)
def test_a_large_body_is_read_from_authenticated_clients_only(
    path: str, shown: str, status: int
) -> None:
    async def scenario(made: KubeCore) -> None:
        login = authenticator([ADMIN], made.tokens)
        listening = await listen(made.handle, admit=only_known(login))
        size = made.settings.body_limit + 1
        reader, writer = await asyncio.open_connection("127.0.0.1", listening.port)
        who = f"authorization: {shown}\r\n" if shown else ""
        writer.write(
            f"GET {path} HTTP/1.1\r\nhost: x\r\n{who}content-length: {size}\r\n\r\n".encode()
        )
        if status == 413:
            writer.write(b"x" * size)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.split()[1] == b"%d" % status
        assert b'"code":%d' % status in await reader.readuntil(b'"code":%d' % status)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        await listening.close()

    play(scenario)


REFUSED = {
    "nothing": "",
    "no such token": "Bearer nobody-knows-this-one",
    "a beginning": f"Bearer {ADMIN[:-1]}",
    "too much": f"Bearer {ADMIN}x",
    "an empty token": "Bearer ",
    "another scheme": f"Basic {ADMIN}",
    "no scheme": ADMIN,
    "not ASCII": "Bearer é",
    "not text": "Bearer \udcff",
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_invalid_credential_is_a_401(case: str) -> None:
    async def scenario(made: KubeCore) -> None:
        for path in (PODS, "/api", "/apis", "/api/v1", "/openapi/v3", "/metrics"):
            answer = await send(made, path, authorization=REFUSED[case])
            status = answer.json()
            assert (answer.status, status["kind"], status["reason"]) == (
                401,
                "Status",
                "Unauthorized",
            )

    play(scenario)


@pytest.mark.parametrize("token", [ADMIN, SECOND])
def test_every_administrator_token_is_accepted(token: str) -> None:
    async def scenario(made: KubeCore) -> None:
        for scheme in ("Bearer", "bearer"):
            assert (await send(made, PODS, authorization=f"{scheme} {token}")).status == 200

    play(scenario)


@pytest.mark.parametrize("path", ["/version", "/healthz", "/livez", "/readyz"])
def test_health_is_public_but_not_with_an_invalid_credential(path: str) -> None:
    async def scenario(made: KubeCore) -> None:
        assert (await send(made, path)).status == 200
        assert (await send(made, path, authorization="Bearer stale")).status == 401
        assert (await send(made, path, method="POST")).status == 401

    play(scenario)


async def account_token(made: KubeCore, audience: str) -> str:
    admin = f"Bearer {ADMIN}"
    body = {"metadata": {"name": "runner"}}
    await send(made, ACCOUNTS, authorization=admin, method="POST", body=body)
    spec = {"spec": {"audiences": [audience] if audience else []}}
    answer = await send(
        made, f"{ACCOUNTS}/runner/token", authorization=admin, method="POST", body=spec
    )
    token: str = answer.json()["status"]["token"]
    return token


AUDIENCES = {"": 200, ISSUER: 200, names.DISPATCH_AUDIENCE: 401, "elsewhere": 401}


@pytest.mark.parametrize("audience", AUDIENCES)
def test_a_guests_token_for_the_dispatch_server_does_not_open_the_api(audience: str) -> None:
    async def scenario(made: KubeCore) -> None:
        token = await account_token(made, audience)
        answer = await send(made, PODS, authorization=f"Bearer {token}")
        assert answer.status == AUDIENCES[audience]

    play(scenario)


def test_the_token_of_a_deleted_account_is_invalid() -> None:
    async def scenario(made: KubeCore) -> None:
        token = await account_token(made, "")
        path = f"{ACCOUNTS}/runner"
        assert (await send(made, path, authorization=f"Bearer {token}")).status == 200
        await send(made, path, authorization=f"Bearer {ADMIN}", method="DELETE")
        assert (await send(made, path, authorization=f"Bearer {token}")).status == 401

    play(scenario)


def test_the_authenticated_user_reaches_authorization() -> None:
    async def scenario(made: KubeCore) -> None:
        login = authenticator([ADMIN], made.tokens)
        token = await account_token(made, "")

        def who(authorization: str, path: str = PODS) -> User | None:
            headers = (("authorization", authorization),) if authorization else ()
            return login(Request(method="GET", path=path, headers=headers))

        assert who(f"Bearer {ADMIN}") == ADMINISTRATOR
        assert "system:masters" in ADMINISTRATOR.groups
        assert who("", "/version") == ANONYMOUS
        found = who(f"Bearer {token}")
        assert found is not None and found.name == "system:serviceaccount:default:runner"
        assert "system:masters" not in found.groups

    play(scenario)


@pytest.mark.parametrize("token", ["", "short", " with-space-around-it ", "with-a-newline-in\n-it"])
def test_a_weak_administrator_token_is_refused_at_the_start(token: str) -> None:
    with pytest.raises(ValueError, match="administrator's token"):
        authenticator([ADMIN, token], core().tokens)


def test_a_certificate_counts_only_from_tls_and_only_if_enabled(tmp_path: Path) -> None:
    async def main() -> None:
        now = RealClock().now()
        authority = make_authority(now=now)
        server = write_pair(tmp_path, "server", issue_server(authority, ["127.0.0.1"], now=now))
        host = write_pair(tmp_path, "host", issue_client(authority, "mini-1", ["hosts"], now=now))
        made = KubeCore(clock=RealClock(), rng=random.Random(3))
        seen: list[User | None] = []

        def recording(request: Request) -> User | None:
            seen.append(authenticator([ADMIN], made.tokens, certificates=True)(request))
            return seen[-1]

        made.guard(recording)
        tls = server_context(server, clients=authority.certificate)
        listening = await listen(made.handle, tls=tls)
        spoof = (
            ("x-runyard-client-cert-cn", "mini-2"),
            ("x-runyard-client-cert-o", "system:masters"),
        )
        request = Request(method="GET", path=PODS, headers=spoof)
        answers = []
        for files in (host, None):
            client = HttpTransport(
                listening.url, tls=client_context(authority.certificate, files=files)
            )
            answers.append((await client.send(request, timeout=30)).status)
            await client.close()
        made.guard(authenticator([ADMIN], made.tokens))
        inside = await made.handle(request)
        await listening.close()
        assert answers == [200, 401] and inside.status == 401
        assert seen == [User(name="mini-1", groups=("hosts", "system:authenticated")), None]

    asyncio.run(main())
