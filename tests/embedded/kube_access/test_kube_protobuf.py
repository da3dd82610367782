"""Bodies in protobuf: those of kubectl are decoded, and arbitrary bytes cause a 400."""

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conformance.kube.protobuf import envelope, field
from tests.embedded.kube_access.accesssupport import ACCOUNTS, BOSS, SPACE, RbacHarness, play

from runyard.embedded.kube.protobuf.decoding import MAGIC, PROTOBUF, decode
from runyard.embedded.kube.protobuf.messages import MESSAGES
from runyard.embedded.kube.status import StatusError

META = b'\n\x10\n\x00\x12\x00\x1a\x00"\x00*\x002\x008\x00B\x00'

# As kubectl 1.37 sent them.
SENT: dict[str, tuple[bytes, dict[str, Any]]] = {
    "auth can-i list pods": (
        b"k8s\x00\n2\n\x17authorization.k8s.io/v1\x12\x17SelfSubjectAccessReview\x12C"
        + META
        + b"\x12%\n#"
        b'\n\rtuist-runners\x12\x04list\x1a\x00"\x00*\x04pods2\x00:\x00\x1a\x08\x08\x00\x12\x00\x1a\x00 \x00'
        b'\x1a\x00"\x00',
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "metadata": {},
            "spec": {
                "resourceAttributes": {
                    "namespace": "tuist-runners",
                    "verb": "list",
                    "resource": "pods",
                }
            },
        },
    ),
    "auth can-i get /healthz": (
        b"k8s\x00\n2\n\x17authorization.k8s.io/v1\x12\x17SelfSubjectAccessReview\x12/"
        + META
        + b"\x12\x11"
        b'\x12\x0f\n\x08/healthz\x12\x03get\x1a\x08\x08\x00\x12\x00\x1a\x00 \x00\x1a\x00"\x00',
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "metadata": {},
            "spec": {"nonResourceAttributes": {"path": "/healthz", "verb": "get"}},
        },
    ),
    "auth whoami": (
        b"k8s\x00\n-\n\x18authentication.k8s.io/v1\x12\x11SelfSubjectReview\x12\x1a"
        + META
        + b"\x12\x06\n"
        b'\x04\n\x00\x12\x00\x1a\x00"\x00',
        {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "SelfSubjectReview",
            "metadata": {},
        },
    ),
    "create token --audience=x --duration=20m": (
        b"k8s\x00\n(\n\x18authentication.k8s.io/v1\x12\x0cTokenRequest\x12 "
        + META
        + b"\x12\x06\n\x01x \xb0"
        b'\t\x1a\x04\n\x00\x12\x00\x1a\x00"\x00',
        {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "metadata": {},
            "spec": {"audiences": ["x"], "expirationSeconds": 1200},
        },
    ),
    "create role r --verb=get,list --resource=pods": (
        (
            b'k8s\x00\n$\n\x1crbac.authorization.k8s.io/v1\x12\x04Role\x12(\n\x11\n\x01r\x12\x00\x1a\x00"\x00*'
            b'\x002\x008\x00B\x00\x12\x13\n\x03get\n\x04list\x12\x00\x1a\x04pods\x1a\x00"\x00'
        ),
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": "r"},
            "rules": [{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}],
        },
    ),
    "create secret generic s --from-literal=a=b": (
        (
            b'k8s\x00\n\x0c\n\x02v1\x12\x06Secret\x12\x1d\n\x11\n\x01s\x12\x00\x1a\x00"\x00*\x002\x008\x00B\x00'
            b'\x12\x06\n\x01a\x12\x01b\x1a\x00\x1a\x00"\x00'
        ),
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "s"},
            "data": {"a": base64.b64encode(b"b").decode()},
        },
    ),
}


@pytest.mark.parametrize("command", SENT)
def test_protobuf_of_kubectl_decodes_to_its_json(command: str) -> None:
    body, meant = SENT[command]
    assert decode(body) == meant


def test_what_kubectl_sends_is_served() -> None:
    async def scenario(harness: RbacHarness) -> None:
        review = SENT["auth can-i list pods"][0]
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        answer = await harness.ok(BOSS, "POST", path, review, kind=PROTOBUF)
        assert answer["status"] == {"allowed": True}
        await harness.ok(BOSS, "POST", ACCOUNTS, {"metadata": {"name": "sa1"}})
        token = SENT["create token --audience=x --duration=20m"][0]
        made = await harness.ok(BOSS, "POST", f"{ACCOUNTS}/sa1/token", token, kind=PROTOBUF)
        assert made["spec"]["audiences"] == ["x"] and made["status"]["token"]
        secret = SENT["create secret generic s --from-literal=a=b"][0]
        path = f"/api/v1/namespaces/{SPACE}/secrets"
        assert (await harness.ok(BOSS, "POST", path, secret, kind=PROTOBUF))["data"] == {
            "a": "Yg=="
        }
        pod = MAGIC + b"\n\x09\n\x02v1\x12\x03Pod\x12\x00"
        path = f"/api/v1/namespaces/{SPACE}/pods"
        assert (await harness.send(BOSS, "POST", path, pod, kind=PROTOBUF)).status == 501
        assert (await harness.send(BOSS, "POST", path, b"{}", kind=PROTOBUF)).status == 400

    play(scenario)


def test_every_type_of_field_is_read() -> None:
    owner = field(1, b"Pod") + field(3, b"p") + field(6, 0) + field(7, 1)
    meta = (
        field(1, b"c")
        + field(7, 0)
        + field(8, field(1, 1_700_000_000) + field(2, 5_000_000))
        + field(9, field(1, 1_700_000_000))
        + field(11, field(1, b"k") + field(2, b"v"))
        + field(13, owner)
        + field(14, b"f1")
        + field(14, b"f2")
        + field(99, b"from the future")
    )
    spec = (
        field(1, b"PEM")
        + field(6, field(1, b"k") + field(2, field(1, b"a") + field(1, b"b")))
        + field(8, 0)
    )
    assert decode(envelope("CertificateSigningRequest", field(1, meta) + field(2, spec))) == {
        "apiVersion": "v1",
        "kind": "CertificateSigningRequest",
        "metadata": {
            "name": "c",
            "creationTimestamp": "2023-11-14T22:13:20.005000Z",
            "deletionTimestamp": "2023-11-14T22:13:20Z",
            "labels": {"k": "v"},
            "ownerReferences": [
                {"kind": "Pod", "name": "p", "controller": False, "blockOwnerDeletion": True}
            ],
            "finalizers": ["f1", "f2"],
        },
        "spec": {
            "request": base64.b64encode(b"PEM").decode(),
            "extra": {"k": ["a", "b"]},
            "expirationSeconds": 0,
        },
    }
    negative = field(1, -1) + field(2, field(1, b"u"))
    assert decode(envelope("DeleteOptions", negative)) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": -1,
        "preconditions": {"uid": "u"},
    }


BROKEN = {
    "not magic": b"x",
    "cut in a number": MAGIC + b"\x80",
    "cut in a field": MAGIC + b"\x0a\x05ab",
    "a number without end": MAGIC + b"\xff" * 11,
    "a group": MAGIC + b"\x0b",
    "a number for a message": MAGIC + field(1, 5),
    "a message for a number": envelope("DeleteOptions", field(1, b"x")),
    "no text": envelope("Role", field(1, field(1, b"\xff\xfe"))),
    "no time": envelope("Role", field(1, field(8, field(1, 2**62)))),
    "a map of numbers": envelope("ConfigMap", field(2, field(1, 5))),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_protobuf_is_a_400(case: str) -> None:
    with pytest.raises(StatusError) as refusal:
        decode(BROKEN[case])
    assert refusal.value.code == 400


def outcome(body: bytes) -> int:
    """The code of its refusal; 0 if it can be read."""
    try:
        decode(body)
    except StatusError as refusal:
        return refusal.code
    return 0


@given(st.sampled_from(sorted(MESSAGES)), st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(kind: str, raw: bytes) -> None:
    for body in (envelope(kind, raw), MAGIC + raw):
        assert outcome(body) in (0, 400, 501)


@given(st.sampled_from(sorted(SENT)), st.data())
def test_truncated_or_changed_bodies_are_decoded_or_refused(
    command: str, data: st.DataObject
) -> None:
    body = bytearray(SENT[command][0])
    end = data.draw(st.integers(4, len(body)))
    place = data.draw(st.integers(4, len(body) - 1))
    body[place] = data.draw(st.integers(0, 255))
    assert outcome(bytes(body[:end])) in (0, 400, 501)
