"""The real kubectl: access reviews, roles, tokens, certificate approval and impersonation."""

import asyncio
import base64
import json
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import yaml
from tests.embedded.kube_access.certificaterequests import request_for
from tests.embedded.kube_http.kubectlsupport import ADMIN, SPACE, Served

from runyard.clock import RealClock
from runyard.embedded.kube import kubeconfig
from runyard.embedded.kube.access.login import authenticator
from runyard.embedded.kube.core import KubeCore, Security
from runyard.http.server import listen
from runyard.http.tls import issue_client, issue_server, make_authority, server_context, write_pair

Scenario = Callable[[Served], Awaitable[None]]
Play = Callable[[Scenario], None]
ALICE = "--user=alice"


@pytest.fixture
def play(tmp_path: Path, kubectl: Path) -> Play:
    return lambda scenario: asyncio.run(_serve(tmp_path, scenario))


async def _serve(folder: Path, scenario: Scenario) -> None:
    """Serves an API with roles; Alice has a certificate and the administrator a token."""
    now = RealClock().now()
    authority = make_authority(now=now)
    served = Served(folder)
    served.core = KubeCore(
        clock=RealClock(), rng=random.Random(5), security=Security(rbac=True, authority=authority)
    )
    served.core.guard(authenticator([ADMIN], served.core.tokens, certificates=True))
    server = write_pair(folder, "server", issue_server(authority, ["127.0.0.1"], now=now))
    alice = write_pair(folder, "alice", issue_client(authority, "alice", ["devs"], now=now))
    listening = await listen(
        served.handle, tls=server_context(server, clients=authority.certificate)
    )
    config = yaml.safe_load(
        kubeconfig.render(listening.url, token=ADMIN, ca=authority.certificate, namespace=SPACE)
    )
    files = {"client-certificate": str(alice.certificate), "client-key": str(alice.key)}
    config["users"].append({"name": "alice", "user": files})
    (folder / "config").write_text(yaml.safe_dump(config))
    (folder / "config").chmod(0o600)
    try:
        await scenario(served)
    finally:
        await listening.close()
    assert not served.core.failures


@pytest.mark.slow
def test_whoami_and_can_i(play: Play) -> None:
    async def scenario(served: Served) -> None:
        who = (await served.kubectl("auth", "whoami", ALICE)).split()
        assert "alice" in who and "[devs" in who and "system:authenticated]" in who
        assert (await served.kubectl("auth", "can-i", "delete", "nodes")) == "yes\n"
        code, out, _ = await served.run("auth", "can-i", "list", "pods", ALICE)
        assert (code, out) == (1, "no\n")
        await served.kubectl("create", "role", "reader", "--verb=get,list", "--resource=pods")
        await served.kubectl("create", "rolebinding", "readers", "--role=reader", "--group=devs")
        assert (await served.kubectl("auth", "can-i", "list", "pods", ALICE)) == "yes\n"
        listed = await served.kubectl("auth", "can-i", "--list", ALICE)
        rows = [line.split() for line in listed.splitlines()]
        assert ["pods", "[]", "[]", "[get", "list]"] in rows
        assert (await served.kubectl("auth", "can-i", "get", "/healthz", ALICE)) == "yes\n"
        assert (await served.kubectl("get", "pods", ALICE)) == ""
        code, _, why = await served.run("get", "nodes", ALICE)
        assert code == 1 and 'User "alice" cannot list resource "nodes" in API group ""' in why

    play(scenario)


def test_impersonation(play: Play) -> None:
    async def scenario(served: Served) -> None:
        code, _, why = await served.run("get", "pods", "--as=eve", "--as-group=devs")
        assert code == 1 and 'User "eve" cannot list resource "pods"' in why
        code, _, why = await served.run("get", "pods", "--as=eve", ALICE)
        assert code == 1 and 'User "alice" cannot impersonate resource "users"' in why

    play(scenario)


def test_a_token_made_by_kubectl_opens_the_api_as_its_account(play: Play) -> None:
    async def scenario(served: Served) -> None:
        await served.kubectl("create", "serviceaccount", "robot")
        token = (await served.kubectl("create", "token", "robot", "--duration=20m")).strip()
        account = f"--serviceaccount={SPACE}:robot"
        await served.kubectl(
            "create", "clusterrolebinding", "robots", "--clusterrole=view", account
        )
        code, out, err = await served.run(
            "auth", "whoami", "--user=", f"--token={token}", "-o", "json"
        )
        assert code == 0, err
        info = json.loads(out)["status"]["userInfo"]
        assert info["username"] == f"system:serviceaccount:{SPACE}:robot"
        code, _, err = await served.run("get", "pods", "--user=", f"--token={token}")
        assert code == 0, err
        code, _, why = await served.run("create", "token", "robot", "--duration=1s")
        assert code == 1 and "may not specify a duration less than 10 minutes" in why

    play(scenario)


def test_a_certificate_is_approved_and_issued(play: Play, tmp_path: Path) -> None:
    async def scenario(served: Served) -> None:
        body = request_for("mini-1", hostnames=("mini-1",), addresses=("127.0.0.1",))
        body |= {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"}
        (tmp_path / "csr.json").write_text(json.dumps(body))
        await served.kubectl("apply", "-f", str(tmp_path / "csr.json"))
        assert "Pending" in await served.kubectl("get", "csr")
        await served.kubectl("certificate", "approve", "of-mini-1")
        assert "Approved,Issued" in await served.kubectl("get", "csr")
        found = await served.kubectl(
            "get", "csr", "of-mini-1", "-o", "jsonpath={.status.certificate}"
        )
        assert base64.b64decode(found).startswith(b"-----BEGIN CERTIFICATE-----")

    play(scenario)
