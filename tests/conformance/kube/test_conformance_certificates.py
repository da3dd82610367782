"""Certificate requests: what may be requested, and which conditions may be set."""

import pytest
from tests.conformance.kube.kit import MERGE, Api, Json, causes
from tests.embedded.kube_access.certificaterequests import request_for

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
INVALID, MISSING, UNKNOWN = "FieldValueInvalid", "FieldValueRequired", "FieldValueNotSupported"
TWICE, FIXED = "FieldValueDuplicate", "FieldValueForbidden"


def request(api: Api, **spec: object) -> Json:
    body = request_for("mini-1", hostnames=("mini-1",), signer="example.com/nobody")
    body["metadata"]["name"] = api.own("request")
    body["spec"] |= spec
    return body


INVALID_SPECS: dict[str, tuple[Json, list[tuple[str, str]]]] = {
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


@pytest.mark.parametrize("case", INVALID_SPECS)
async def test_a_request_is_for_one_signer_and_known_usages(api: Api, case: str) -> None:
    spec, expected = INVALID_SPECS[case]
    answer = await api.why("POST", REQUESTS, request(api, **spec))
    assert (answer["code"], causes(answer)) == (422, expected)


async def test_a_request_for_the_masters_group_is_refused(api: Api) -> None:
    body = request_for(
        "x",
        name="bob",
        organizations=("system:masters",),
        signer="kubernetes.io/kube-apiserver-client",
        usages=("client auth",),
    )
    body["metadata"]["name"] = api.own("request")
    answer = await api.why("POST", REQUESTS, body)
    assert (answer["code"], answer["reason"]) == (403, "Forbidden")
    assert "system:masters" in answer["message"]


def condition(kind: str, status: str) -> Json:
    return {"type": kind, "status": status, "reason": "Test", "message": "said"}


STATE, KIND = "status.conditions[0].status", "status.conditions[0].type"
VERDICTS: dict[str, tuple[str, list[Json], list[tuple[str, str]]]] = {
    "a yes that is none": ("approval", [condition("Approved", "False")], [(UNKNOWN, STATE)]),
    "a yes that nobody knows": ("approval", [condition("Approved", "Unknown")], [(UNKNOWN, STATE)]),
    "a yes without a word": ("approval", [condition("Approved", "")], [(MISSING, STATE)]),
    "a no that is none": ("approval", [condition("Denied", "False")], [(UNKNOWN, STATE)]),
    "a failure that is none": ("status", [condition("Failed", "False")], [(UNKNOWN, STATE)]),
    "nothing in particular": ("approval", [condition("", "True")], [(MISSING, KIND)]),
    "any other": ("approval", [condition("Seen", "evil")], [(UNKNOWN, STATE)]),
    "yes and no": (
        "approval",
        [condition("Approved", "True"), condition("Denied", "True")],
        [(INVALID, "status.conditions")],
    ),
    "yes and yes": (
        "approval",
        [condition("Approved", "True"), condition("Approved", "True")],
        [(TWICE, "status.conditions[1].type")],
    ),
    "a yes of the signer's": (
        "status",
        [condition("Approved", "True")],
        [(FIXED, "status.conditions")],
    ),
}


@pytest.mark.parametrize("case", VERDICTS)
async def test_an_approval_condition_is_valid_and_unique(api: Api, case: str) -> None:
    sub, conditions, expected = VERDICTS[case]
    made = await api.create(REQUESTS, request(api))
    path = f"{REQUESTS}/{made['metadata']['name']}"
    try:
        body = {**made, "status": {"conditions": conditions}}
        answer = await api.why("PUT", f"{path}/{sub}", body)
        assert (answer["code"], causes(answer)) == (422, expected)
        assert not (await api.get(path)).get("status")
    finally:
        await api.call("DELETE", path)


async def test_an_approval_condition_cannot_be_removed(api: Api) -> None:
    made = await api.create(REQUESTS, request(api))
    path = f"{REQUESTS}/{made['metadata']['name']}"
    try:
        seen = [condition("Seen", "False"), condition("Approved", "True")]
        body: Json = {"status": {"conditions": seen}}
        await api.patch(f"{path}/approval", body, MERGE)
        for left in ([], [condition("Seen", "False")]):
            body = {"status": {"conditions": left}}
            answer = await api.why("PATCH", f"{path}/approval", body, kind=MERGE)
            assert (answer["code"], causes(answer)) == (422, [(FIXED, "status.conditions")])
        kept = await api.patch(
            f"{path}/approval", {"status": {"conditions": [condition("Approved", "True")]}}
        )
        assert [each["type"] for each in kept["status"]["conditions"]] == ["Approved"]
    finally:
        await api.call("DELETE", path)
