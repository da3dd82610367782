"""Rights survive a restart, and a serving certificate does not authenticate a client."""

import asyncio
import random
import ssl
from pathlib import Path

import pytest
from tests.embedded.kube_access.accesssupport import PODS, RBAC, SPACE

from runyard.clock import RealClock
from runyard.embedded.kube.access.login import authenticator
from runyard.embedded.kube.core import KubeCore, Security
from runyard.embedded.kube.storage.journal import Journal
from runyard.embedded.up import accounts
from runyard.http.client import HttpTransport
from runyard.http.errors import TransportError
from runyard.http.loopback import Loopback
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
from runyard.kube.client import Kube
from runyard.kube.errors import Forbidden
from runyard.kube.kinds import CLUSTER_ROLES, NODES, ROLES, SERVICE_ACCOUNTS
from runyard.kube.kinds import PODS as POD_KIND
from runyard.wire import names, rights

ADMIN = "an-administrator-of-tests"


def opened(journal: Journal | None) -> KubeCore:
    core = KubeCore(
        clock=RealClock(), rng=random.Random(3), security=Security(rbac=True), journal=journal
    )
    core.guard(authenticator([ADMIN], core.tokens))
    return core


def client(core: KubeCore, token: str) -> Kube:
    return Kube(Loopback(core.handle), token=lambda: token)


def test_component_roles_survive_a_restart_and_are_repaired_at_start(tmp_path: Path) -> None:
    async def first() -> str:
        journal = Journal(tmp_path / "kube.db")
        core = opened(journal)
        admin = client(core, ADMIN)
        await accounts.grant(admin, ("server", "host-1"))
        account = {"metadata": {"name": rights.SERVER_ACCOUNT}}
        await admin.create(SERVICE_ACCOUNTS, account, namespace=names.CONTROLLER_NAMESPACE)
        token = await admin.create_token(
            rights.SERVER_ACCOUNT, namespace=names.CONTROLLER_NAMESPACE, audience="", seconds=3600
        )
        await client(core, token).list(POD_KIND, namespace=SPACE)
        before = core.version
        await accounts.grant(admin, ("server", "host-1"))
        assert core.version == before, "granted again, and nothing changed"
        journal.close()
        return token

    async def second(token: str) -> None:
        journal = Journal(tmp_path / "kube.db")
        core = opened(journal)
        admin, server = client(core, ADMIN), client(core, token)
        await server.list(NODES)
        with pytest.raises(
            Forbidden, match='cannot list resource "pods" in API group "" at the cluster'
        ):
            await server.list(POD_KIND)
        await admin.patch(ROLES, "runyard-server", {"rules": []}, namespace=SPACE)
        with pytest.raises(Forbidden):
            await server.list(POD_KIND, namespace=SPACE)
        await accounts.grant(admin, ("server",))
        await server.list(POD_KIND, namespace=SPACE)
        found = await admin.get(CLUSTER_ROLES, "cluster-admin")
        assert found["metadata"]["resourceVersion"] != str(core.version)
        journal.close()

    asyncio.run(second(asyncio.run(first())))


def test_a_serving_certificate_does_not_authenticate_a_client(tmp_path: Path) -> None:
    """The same CA signs both; only a client certificate authenticates a caller."""

    async def main() -> None:
        now = RealClock().now()
        authority = make_authority(now=now)
        core = KubeCore(clock=RealClock(), rng=random.Random(3), security=Security(rbac=True))
        core.guard(authenticator([ADMIN], core.tokens, certificates=True))
        server = write_pair(tmp_path, "server", issue_server(authority, ["127.0.0.1"], now=now))
        boss = issue_client(authority, "ann", ["system:masters"], now=now)
        shown = write_pair(tmp_path, "boss", boss)
        listening = await listen(
            core.handle, tls=server_context(server, clients=authority.certificate)
        )

        async def send(tls: ssl.SSLContext, path: str = PODS) -> int:
            transport = HttpTransport(listening.url, tls=tls)
            try:
                answer = await transport.send(Request(method="GET", path=path), timeout=30)
                assert isinstance(answer, Response)
                return answer.status
            except TransportError:
                return 0
            finally:
                await transport.close()

        assert await send(client_context(authority.certificate, files=shown)) == 200
        assert await send(client_context(authority.certificate, files=server)) == 0
        assert await send(client_context(authority.certificate)) == 401
        assert await send(client_context(authority.certificate), "/readyz") == 200
        assert await send(client_context(authority.certificate), f"{RBAC}/clusterroles") == 401
        await listening.close()

    asyncio.run(main())
