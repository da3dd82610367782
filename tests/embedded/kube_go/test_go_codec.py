"""Protobuf of every kind, compared byte for byte with what Kubernetes' own types write."""

import base64
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.embedded.kube_go.gosupport import converted
from tests.embedded.kube_go.samples import Samples

from runyard.embedded.kube.protobuf.decoding import decode
from runyard.embedded.kube.protobuf.encoding import encoded
from runyard.embedded.kube.protobuf.messages import kinds

pytestmark = pytest.mark.slow

SHARES = (0.0, 0.1, 0.4, 0.8, 1.0, 1.0)


def samples() -> list[dict[str, Any]]:
    rng = random.Random(11)
    return [
        {"apiVersion": version, "kind": kind} | Samples(rng, share).of(name)
        for (version, kind), name in kinds().items()
        for share in SHARES
    ]


def differing(objects: list[dict[str, Any]], found: list[bytes], written: list[bytes]) -> list[str]:
    return [
        f"{obj['kind']}: {msgspec.json.encode(obj).decode()[:2000]}"
        for obj, one, two in zip(objects, found, written, strict=True)
        if one != two
    ]


def test_every_field_of_every_kind_is_written_and_read_as_go_does(kube_client: Path) -> None:
    objects = samples()
    told = converted(kube_client, "encode", [msgspec.json.encode(obj) for obj in objects])
    written = [base64.b64decode(item["protobuf"]) for item in told]
    ours = [encoded(obj) or b"" for obj in objects]
    assert not differing(objects, ours, written)
    read = [encoded(decode(body)) or b"" for body in written]
    assert not differing(objects, read, written), "something is lost when it is read"
    shown = [encoded(msgspec.json.decode(item["json"])) or b"" for item in told]
    assert not differing(objects, shown, written), "the JSON of a Go client means something else"
