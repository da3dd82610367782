"""Tests the outcome of each kind of exception: which end a run, which cost an attempt, which are free."""

import errno

import pytest

from runyard.blobs.errors import BlobsRefused, BlobsUnavailable, NoSuchBlob
from runyard.db.contract import CommitUnknown, Constraint, Unavailable
from runyard.wire.reasons_results import Unprocessed
from runyard.xcresult.errors import (
    BundleInvalid,
    TooLarge,
    UnsupportedFormat,
    XcresultError,
    XcresultNotFound,
)
from runyard.xcresult.processor.failures import outcome_of


@pytest.mark.parametrize(
    ("error", "end", "code"),
    [
        (BundleInvalid("x"), "refused", Unprocessed.BUNDLE_INVALID),
        (XcresultError("x"), "refused", Unprocessed.BUNDLE_INVALID),
        (XcresultNotFound("x"), "refused", Unprocessed.XCRESULT_NOT_FOUND),
        (UnsupportedFormat("x"), "refused", Unprocessed.UNSUPPORTED_FORMAT),
        (TooLarge("two\nlines\0"), "refused", Unprocessed.TOO_LARGE),
        (OSError(errno.ENOSPC, "full"), "no_space", Unprocessed.NO_SPACE),
        (OSError(errno.EDQUOT, "full"), "no_space", Unprocessed.NO_SPACE),
        (OSError(errno.EIO, "broken"), "failed", Unprocessed.IO_ERROR),
        (TimeoutError(), "late", Unprocessed.TIMEOUT),
        (Unavailable("away"), "released", Unprocessed.DATABASE),
        (CommitUnknown("away"), "released", Unprocessed.DATABASE),
        (Constraint("name", "refused"), "failed", Unprocessed.DATABASE),
        (NoSuchBlob("x"), "failed", Unprocessed.UPLOAD_MISSING),
        (BlobsUnavailable("x"), "failed", Unprocessed.STORAGE_UNAVAILABLE),
        (BlobsRefused("x"), "failed", Unprocessed.STORAGE_REFUSED),
        (MemoryError(), "failed", Unprocessed.OUT_OF_MEMORY),
        (ZeroDivisionError("x"), "failed", Unprocessed.DEFECT),
    ],
    ids=lambda value: repr(value) if isinstance(value, Exception) else "",
)
def test_an_error_has_one_meaning(error: Exception, end: str, code: Unprocessed) -> None:
    outcome = outcome_of(error)
    assert outcome.reason is not None
    assert (outcome.end, outcome.reason.code) == (end, code)
    assert all(value and "\n" not in str(value) for value in outcome.reason.fields.values())
