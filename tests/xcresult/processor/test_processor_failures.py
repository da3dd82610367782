"""Tests the outcome of each kind of exception: which end a run, which cost an attempt, which are free."""

import errno

import pytest

from runyard.blobs.errors import BlobsRefused, BlobsUnavailable, NoSuchBlob
from runyard.db.contract import CommitUnknown, Constraint, Unavailable
from runyard.xcresult.errors import BundleInvalid, TooLarge
from runyard.xcresult.processor.failures import outcome_of


@pytest.mark.parametrize(
    ("error", "end", "code"),
    [
        (BundleInvalid("x"), "refused", "bundle_invalid"),
        (TooLarge("x"), "refused", "too_large"),
        (OSError(errno.ENOSPC, "full"), "no_room", "no_space"),
        (OSError(errno.EDQUOT, "full"), "no_room", "no_space"),
        (OSError(errno.EIO, "broken"), "failed", "io_error"),
        (TimeoutError(), "late", "timeout"),
        (Unavailable("away"), "released", "database"),
        (CommitUnknown("away"), "released", "database"),
        (Constraint("name", "refused"), "failed", "database"),
        (NoSuchBlob("x"), "failed", "upload_missing"),
        (BlobsUnavailable("x"), "failed", "storage_unavailable"),
        (BlobsRefused("x"), "failed", "storage_refused"),
        (MemoryError(), "failed", "out_of_memory"),
        (ZeroDivisionError("x"), "failed", "defect"),
    ],
    ids=lambda value: repr(value) if isinstance(value, Exception) else "",
)
def test_an_error_has_one_meaning(error: Exception, end: str, code: str) -> None:
    outcome = outcome_of(error)
    assert (outcome.end, outcome.code) == (end, code)
    assert outcome.reason and "\n" not in outcome.reason
