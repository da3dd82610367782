"""Certificate requests: what may be requested, and which conditions may be set."""

import pytest
from tests.conformance.kube.kit import MERGE, Api, Json, causes
from tests.embedded.kube_access.certificaterequests import request_for

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
INVALID, MISSING, UNKNOWN = "FieldValueInvalid", "FieldValueRequired", "FieldValueNotSupported"
TWICE, FIXED = "FieldValueDuplicate", "FieldValueForbidden"


def asked(api: Api, **spec: object) -> Json:
    body = request_for("mini-1", hostnames=("mini-1",), signer="example.com/nobody")
    body["metadata"]["name"] = api.own("asked")
    body["spec"] |= spec
    return body


ASKED: dict[str, tuple[Json, list[tuple[str, str]]]] = {
    "a usage that is none": ({"usages": ["evil"]}, [(UNKNOWN, "spec.usages[0]")]),
    "a usage twice": ({"usages": ["server auth", "server auth"]}, [(TWICE, "spec.usages[1]")]),
    "no usages": ({"usages": []}, [(MISSING, "spec.usages")]),
    "a moment": ({"expirationSeconds": 599}, [(INVALID, "spec.expirationSeconds")]),
    "no signer": ({"signerName": ""}, [(MISSING, "spec.signerName")]),
    "no domain": ({"signerName": "nope"}, [(INVALID, "spec.signerName")]),
    "two paths": ({"signerName": "a.example/b/c"}, [(INVALID, "spec.signerName")]),
    "a path that ends": (
        {"signerName": "kubernetes.io/kubelet-serving/"},
        [(INVALID, "spec.signerName")],
    ),
    "all domains": ({"signerName": "*/x"}, [(INVALID, "spec.signerName")]),
    "all paths": ({"signerName": "kubernetes.io/*"}, [(INVALID, "spec.signerName")]),
    "a domain of one part": ({"signerName": "a/b"}, [(INVALID, "spec.signerName")]),
    "large letters": ({"signerName": "example.com/A"}, [(INVALID, "spec.signerName")]),
}


@pytest.mark.parametrize("case", ASKED)
async def test_a_request_is_for_one_signer_and_known_usages(api: Api, case: str) -> None:
    spec, expected = ASKED[case]
    told = await api.why("POST", REQUESTS, asked(api, **spec))
    assert (told["code"], causes(told)) == (422, expected)


async def test_nobody_asks_to_be_an_administrator(api: Api) -> None:
    body = request_for(
        "x",
        name="bob",
        organizations=("system:masters",),
        signer="kubernetes.io/kube-apiserver-client",
        usages=("client auth",),
    )
    body["metadata"]["name"] = api.own("asked")
    told = await api.why("POST", REQUESTS, body)
    assert (told["code"], told["reason"]) == (403, "Forbidden")
    assert "system:masters" in told["message"]


def said(kind: str, status: str) -> Json:
    return {"type": kind, "status": status, "reason": "Test", "message": "said"}


STATE, KIND = "status.conditions[0].status", "status.conditions[0].type"
VERDICTS: dict[str, tuple[str, list[Json], list[tuple[str, str]]]] = {
    "a yes that is none": ("approval", [said("Approved", "False")], [(UNKNOWN, STATE)]),
    "a yes that nobody knows": ("approval", [said("Approved", "Unknown")], [(UNKNOWN, STATE)]),
    "a yes without a word": ("approval", [said("Approved", "")], [(MISSING, STATE)]),
    "a no that is none": ("approval", [said("Denied", "False")], [(UNKNOWN, STATE)]),
    "a failure that is none": ("status", [said("Failed", "False")], [(UNKNOWN, STATE)]),
    "nothing in particular": ("approval", [said("", "True")], [(MISSING, KIND)]),
    "any other": ("approval", [said("Seen", "evil")], [(UNKNOWN, STATE)]),
    "yes and no": (
        "approval",
        [said("Approved", "True"), said("Denied", "True")],
        [(INVALID, "status.conditions")],
    ),
    "yes and yes": (
        "approval",
        [said("Approved", "True"), said("Approved", "True")],
        [(TWICE, "status.conditions[1].type")],
    ),
    "a yes of the signer's": (
        "status",
        [said("Approved", "True")],
        [(FIXED, "status.conditions")],
    ),
}


@pytest.mark.parametrize("case", VERDICTS)
async def test_a_verdict_is_a_yes_or_a_no(api: Api, case: str) -> None:
    sub, conditions, expected = VERDICTS[case]
    made = await api.create(REQUESTS, asked(api))
    path = f"{REQUESTS}/{made['metadata']['name']}"
    try:
        body = {**made, "status": {"conditions": conditions}}
        told = await api.why("PUT", f"{path}/{sub}", body)
        assert (told["code"], causes(told)) == (422, expected)
        assert not (await api.get(path)).get("status")
    finally:
        await api.call("DELETE", path)


async def test_a_verdict_stays(api: Api) -> None:
    made = await api.create(REQUESTS, asked(api))
    path = f"{REQUESTS}/{made['metadata']['name']}"
    try:
        seen = [said("Seen", "False"), said("Approved", "True")]
        body: Json = {"status": {"conditions": seen}}
        await api.patch(f"{path}/approval", body, MERGE)
        for left in ([], [said("Seen", "False")]):
            body = {"status": {"conditions": left}}
            told = await api.why("PATCH", f"{path}/approval", body, kind=MERGE)
            assert (told["code"], causes(told)) == (422, [(FIXED, "status.conditions")])
        kept = await api.patch(
            f"{path}/approval", {"status": {"conditions": [said("Approved", "True")]}}
        )
        assert [each["type"] for each in kept["status"]["conditions"]] == ["Approved"]
    finally:
        await api.call("DELETE", path)
