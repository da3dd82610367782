"""Builds the keys of test results in object storage.

    ACCOUNT/PROJECT/uploads/RUN/SHARD/NONCE/result_bundle.zip      a bundle as it was uploaded
    ACCOUNT/PROJECT/payloads/DIGEST/NONCE                          the bytes of an attachment, once per project

Invariants:
- No key is used twice: each contains the `nonce` of the row that was made with it. So an object that is to be deleted
  (its key is in `blob_graves`) is never one that was uploaded again.
- Keys are valid on every store (`blobs.keys`): a content id, which is case-sensitive, is written as hexadecimal digits.
- Payloads are shared within one project only: a content id is untrusted, and must not give one project access to the
  bytes of another.
"""

import hashlib
import re

_DROP = re.compile(r"[^a-z0-9_=-]", re.ASCII)


def upload_key(account: str, project: str, *, run_id: str, shard: int, nonce: str) -> str:
    """The key of the uploaded bundle of one shard of a run."""
    return f"{_home(account, project)}/uploads/{run_id}/{shard}/{nonce}/result_bundle.zip"


def payload_key(account: str, project: str, *, content_id: str, nonce: str) -> str:
    """The key of the bytes with that content id; `nonce` is new for every row of `test_payloads`."""
    digest = hashlib.sha256(content_id.encode()).hexdigest()
    return f"{_home(account, project)}/payloads/{digest}/{nonce}"


def owner_of(key: str) -> tuple[str, ...]:
    """The account and the project of a key, as the key spells them."""
    return tuple(key.split("/")[:2])


def _home(account: str, project: str) -> str:
    """The readable beginning of a key; the rest makes the key unique."""
    return f"{_segment(account)}/{_segment(project)}"


def _segment(name: str) -> str:
    return _DROP.sub("-", name.lower())[:100] or "-"
