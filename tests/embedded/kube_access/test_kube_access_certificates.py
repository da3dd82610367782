"""Serving certificates for hosts: approved by users, signed once, and only for what a node may have."""

import base64
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from tests.embedded.kube_access.accesssupport import BOB, BOSS, MERGE, RbacHarness, play, rule
from tests.embedded.kube_access.certificaterequests import request_for

from runyard.http.tls import make_authority

GROUP = "certificates.k8s.io"
REQUESTS = f"/apis/{GROUP}/v1/certificatesigningrequests"
AUTHORITY = make_authority(now=0.0, days=36500)
ONE = f"{REQUESTS}/of-mini-1"


async def approve(
    harness: RbacHarness, caller: tuple[str, ...] = BOSS, kind: str = "Approved", code: int = 200
) -> dict[str, Any]:
    found = await harness.ok(BOSS, "GET", ONE)
    before = found["status"].get("conditions", []) if "status" in found else []
    condition = {
        "type": kind,
        "status": "True",
        "reason": "KubectlApprove",
        "message": "looks good",
    }
    body = {**found, "status": {"conditions": [*before, condition]}}
    answer = await harness.send(caller, "PUT", f"{ONE}/approval", body)
    assert answer.status == code, answer.body
    after: dict[str, Any] = await harness.ok(BOSS, "GET", ONE)
    return after.get("status", {})


def test_an_approved_request_is_signed_by_the_machines_authority() -> None:
    async def scenario(harness: RbacHarness) -> None:
        body = request_for(
            "mini-1", hostnames=("mini-1",), addresses=("10.0.0.1",), expirationSeconds=7200
        )
        made = await harness.ok(BOSS, "POST", REQUESTS, body)
        assert made["spec"]["username"] == "boss" and "system:masters" in made["spec"]["groups"]
        assert "certificate" not in made.get("status", {})
        status = await approve(harness)
        (condition,) = status["conditions"]
        assert condition["type"] == "Approved" and condition["lastUpdateTime"]
        signed = x509.load_pem_x509_certificate(base64.b64decode(status["certificate"]))
        authority = x509.load_pem_x509_certificate(AUTHORITY.certificate)
        signed.verify_directly_issued_by(authority)
        assert signed.subject.rfc4514_string() == "CN=system:node:mini-1,O=system:nodes"
        names = signed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == ["mini-1"]
        usage = signed.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
        life = signed.not_valid_after_utc.timestamp() - harness.clock.now()
        assert 7190 <= life <= 7200
        version = harness.core.version
        await harness.ok(BOSS, "PATCH", ONE, {"metadata": {"labels": {"a": "b"}}}, kind=MERGE)
        assert harness.core.version == version + 1, "signed twice"

    play(scenario, authority=AUTHORITY)


FAILED = {
    "no node": (request_for("x", name="mini-1", hostnames=("mini-1",)), "common name"),
    "another group": (
        request_for("mini-1", organizations=("system:masters",), hostnames=("a",)),
        "organization",
    ),
    "no name": (request_for("mini-1"), "subjectAltName is required"),
    "an address of mail": (
        request_for("mini-1", hostnames=("a",), emails=("a@b.example",)),
        "Email",
    ),
    "to be a client": (
        request_for("mini-1", hostnames=("a",), usages=("digital signature", "client auth")),
        "usages",
    ),
    "to be two": (
        request_for("mini-1", more_names=("system:node:mini-2",), hostnames=("a",)),
        "more than one common name",
    ),
    "not to be a server": (
        request_for("mini-1", hostnames=("a",), usages=("digital signature",)),
        "usages",
    ),
}


@pytest.mark.parametrize("case", FAILED)
def test_an_approved_invalid_request_is_not_signed(case: str) -> None:
    body, why = FAILED[case]
    body["metadata"]["name"] = "of-mini-1"

    async def scenario(harness: RbacHarness) -> None:
        await harness.ok(BOSS, "POST", REQUESTS, body)
        status = await approve(harness)
        failed = status["conditions"][-1]
        assert "certificate" not in status
        assert (failed["type"], failed["reason"]) == ("Failed", "SignerValidationFailure")
        assert why in failed["message"]

    play(scenario, authority=AUTHORITY)


def test_a_create_cannot_set_an_approval() -> None:
    async def scenario(harness: RbacHarness) -> None:
        body = request_for("mini-1", hostnames=("a",))
        body["status"] = {"conditions": [{"type": "Approved", "status": "True"}]}
        made = await harness.ok(BOSS, "POST", REQUESTS, body)
        assert not made.get("status")
        assert not (await harness.ok(BOSS, "GET", ONE)).get("status")

    play(scenario, authority=AUTHORITY)


@pytest.mark.parametrize("state", ["False", "Unknown", ""])
def test_an_approval_condition_that_is_not_true_signs_nothing(state: str) -> None:
    async def scenario(harness: RbacHarness) -> None:
        await harness.ok(BOSS, "POST", REQUESTS, request_for("mini-1", hostnames=("a",)))
        for sub in ("approval", "status"):
            body = {"status": {"conditions": [{"type": "Approved", "status": state}]}}
            answer = await harness.send(BOSS, "PATCH", f"{ONE}/{sub}", body, kind=MERGE)
            assert answer.status == 422, answer.body
        assert not (await harness.ok(BOSS, "GET", ONE)).get("status")

    play(scenario, authority=AUTHORITY)


def test_a_denied_request_or_one_for_another_signer_is_not_signed() -> None:
    async def scenario(harness: RbacHarness) -> None:
        await harness.ok(BOSS, "POST", REQUESTS, request_for("mini-1", hostnames=("a",)))
        assert "certificate" not in await approve(harness, kind="Denied")
        await approve(harness, code=422)  # and it stays denied
        await harness.ok(BOSS, "DELETE", ONE)
        other = request_for("mini-1", hostnames=("a",), signer="example.com/other")
        await harness.ok(BOSS, "POST", REQUESTS, other)
        assert "certificate" not in await approve(harness)

    play(scenario, authority=AUTHORITY)


def test_an_approval_needs_a_right_on_the_signer_too() -> None:
    async def scenario(harness: RbacHarness) -> None:
        await harness.ok(BOSS, "POST", REQUESTS, request_for("mini-1", hostnames=("a",)))
        await harness.grant_cluster_wide(
            "bob", rule("certificatesigningrequests/approval", "update", groups=GROUP)
        )
        found = await harness.ok(BOSS, "GET", ONE)
        why = await harness.refused(
            BOB,
            "PUT",
            f"{ONE}/approval",
            {**found, "status": {"conditions": [{"type": "Approved", "status": "True"}]}},
        )
        assert (
            'not permitted to approve requests with signerName "kubernetes.io/kubelet-serving"'
            in why
        )
        await harness.grant_cluster_wide(
            "bob2", rule("signers", "approve", groups=GROUP, resourceNames=["kubernetes.io/*"])
        )
        await harness.bind(
            "of-bob2",
            {"kind": "Group", "name": "devs"},
            role="ClusterRole",
            where="/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
        )
        await approve(harness, BOB, code=403)  # a signer belongs to no namespace

    play(scenario, authority=AUTHORITY)


INVALID = {
    "no request": {"request": "", "signerName": "a.b/c", "usages": ["server auth"]},
    "no PEM": {"request": "eA==", "signerName": "a.b/c", "usages": ["server auth"]},
    "no signer": request_for("mini-1", signer="")["spec"],
    "a signer without a path": request_for("mini-1", signer="x")["spec"],
    "no usages": request_for("mini-1", usages=())["spec"],
    "a moment": request_for("mini-1", expirationSeconds=5)["spec"],
}


@pytest.mark.parametrize("case", INVALID)
def test_an_invalid_request_is_refused(case: str) -> None:
    async def scenario(harness: RbacHarness) -> None:
        body = {"metadata": {"name": "x"}, "spec": INVALID[case]}
        answer = await harness.send(BOSS, "POST", REQUESTS, body)
        assert (answer.status, answer.json()["reason"]) == (422, "Invalid"), answer.body

    play(scenario, authority=AUTHORITY)


def test_the_requester_and_the_spec_are_immutable() -> None:
    async def scenario(harness: RbacHarness) -> None:
        body = request_for("mini-1", hostnames=("a",), username="root", groups=["system:masters"])
        await harness.grant_cluster_wide(
            "bob", rule("certificatesigningrequests", "create patch", groups=GROUP)
        )
        made = await harness.ok(BOB, "POST", REQUESTS, body)
        assert made["spec"]["username"] == "bob"
        assert made["spec"]["groups"] == ["devs", "system:authenticated"]
        await harness.ok(BOB, "PATCH", ONE, {"spec": {"username": "root"}}, kind=MERGE)
        assert (await harness.ok(BOSS, "GET", ONE))["spec"] == made["spec"]

    play(scenario, authority=AUTHORITY)
