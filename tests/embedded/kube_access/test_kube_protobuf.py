"""Protobuf: bodies of kubectl are decoded, arbitrary bytes cause a 400, refusals and errors are encoded."""

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conformance.kube.protobuf import envelope, field
from tests.embedded.kube_access.accesssupport import (
    ACCOUNTS,
    BOSS,
    NOBODY,
    SPACE,
    RbacHarness,
    play,
)

from runyard.embedded.kube.protobuf.decoding import MAGIC, PROTOBUF, decode
from runyard.embedded.kube.protobuf.encoding import encoded
from runyard.embedded.kube.protobuf.messages import kinds
from runyard.embedded.kube.status import StatusError, expired
from runyard.http.messages import Request, Stream

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
            "status": {},
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
            "status": {},
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
            "status": {"userInfo": {}},
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
            "status": {},
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
        unserved = MAGIC + b"\n\x0d\n\x02v1\x12\x07Service\x12\x00"
        path = f"/api/v1/namespaces/{SPACE}/pods"
        assert (await harness.send(BOSS, "POST", path, unserved, kind=PROTOBUF)).status == 400
        assert (await harness.send(BOSS, "POST", path, b"{}", kind=PROTOBUF)).status == 400

    play(scenario)


POOLS = f"/apis/tuist.dev/v1alpha1/namespaces/{SPACE}/runnerpools"
WANTED = (("accept", PROTOBUF),)


def test_custom_resources_in_protobuf_are_a_415_and_a_406() -> None:
    async def scenario(harness: RbacHarness) -> None:
        body = envelope("RunnerPool", b"", version="tuist.dev/v1alpha1")
        for method, path in (("POST", POOLS), ("PUT", f"{POOLS}/mac")):
            assert (await harness.send(BOSS, method, path, body, kind=PROTOBUF)).status == 415
        answer = await harness.send(BOSS, "GET", POOLS, headers=WANTED)
        assert answer.status == 406 and decode(answer.body)["reason"] == "NotAcceptable"

    play(scenario)


def test_refusals_are_protobuf_for_a_client_that_asks_for_it() -> None:
    async def scenario(harness: RbacHarness) -> None:
        path = f"/api/v1/namespaces/{SPACE}/pods"
        for caller, code, reason in (
            (BOSS, 404, "NotFound"),
            (NOBODY, 403, "Forbidden"),
        ):
            answer = await harness.send(caller, "GET", f"{path}/absent", headers=WANTED)
            assert (answer.status, answer.header("content-type")) == (code, PROTOBUF)
            assert decode(answer.body)["reason"] == reason

    play(scenario)


def test_a_watch_in_protobuf_that_expires_ends_with_an_error_in_protobuf() -> None:
    async def scenario(harness: RbacHarness) -> None:
        headers = (("x-who", "/".join(BOSS)), *WANTED)
        path = f"/api/v1/namespaces/{SPACE}/pods"
        stream = await harness.core.handle(
            Request(method="GET", path=path, query=(("watch", "true"),), headers=headers)
        )
        assert isinstance(stream, Stream)
        harness.core.expire_watches()
        data = b"".join([chunk async for chunk in stream])
        assert int.from_bytes(data[:4], "big") == len(data) - 4
        status = encoded(expired(harness.core.version, harness.core.version).body())
        assert status is not None and data[4:] == field(1, b"ERROR") + field(2, field(1, status))

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
            "creationTimestamp": "2023-11-14T22:13:20Z",
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


@given(st.sampled_from(sorted(kind for _, kind in kinds())), st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(kind: str, raw: bytes) -> None:
    for body in (envelope(kind, raw), MAGIC + raw):
        assert outcome(body) in (0, 400)


@given(st.sampled_from(sorted(SENT)), st.data())
def test_truncated_or_changed_bodies_are_decoded_or_refused(
    command: str, data: st.DataObject
) -> None:
    body = bytearray(SENT[command][0])
    end = data.draw(st.integers(4, len(body)))
    place = data.draw(st.integers(4, len(body) - 1))
    body[place] = data.draw(st.integers(0, 255))
    assert outcome(bytes(body[:end])) in (0, 400)
