"""The keys that test results have in object storage.

    ACCOUNT/PROJECT/uploads/RUN/SHARD/NONCE/result_bundle.zip      a bundle as it was uploaded
    ACCOUNT/PROJECT/payloads/DIGEST/NONCE                          the bytes of an attachment, once a project

Invariants:
- No key is used twice: each has a `nonce` of the row that is made with it. So an object that is to be removed (its key
  is in `blob_graves`) is never one that somebody has just uploaded again.
- Keys keep to what object storage takes on every system (`blobs.keys`): a content id, which tells capitals from small
  letters, is written in hexadecimal digits.
- Payloads are shared within one project alone: a content id is a stranger's word, and must not lead one project's
  reader to another's bytes.
"""

import hashlib
import re

_DROP = re.compile(r"[^a-z0-9_=-]", re.ASCII)


def upload_key(account: str, project: str, *, run_id: str, shard: int, nonce: str) -> str:
    """Where the bundle of one shard of a run is uploaded to."""
    return f"{_home(account, project)}/uploads/{run_id}/{shard}/{nonce}/result_bundle.zip"


def payload_key(account: str, project: str, *, content_id: str, nonce: str) -> str:
    """Where the bytes with that content id are kept; `nonce` is new for every row of `test_payloads`."""
    digest = hashlib.sha256(content_id.encode()).hexdigest()
    return f"{_home(account, project)}/payloads/{digest}/{nonce}"


def _home(account: str, project: str) -> str:
    """For people who look at the store; what makes a key unique is the rest of it."""
    return f"{_segment(account)}/{_segment(project)}"


def _segment(name: str) -> str:
    return _DROP.sub("-", name.lower())[:100] or "-"
