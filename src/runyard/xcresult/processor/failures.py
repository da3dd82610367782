"""Maps an exception of an attempt to the attempt's outcome."""

import errno

from runyard.blobs.errors import BlobError, BlobsRefused, NoSuchBlob
from runyard.db.contract import CommitUnknown, DatabaseError, Unavailable
from runyard.xcresult.errors import XcresultError
from runyard.xcresult.plans.attempts import Outcome

FULL = (errno.ENOSPC, errno.EDQUOT)
EXPECTED = (BlobError, OSError, XcresultError, DatabaseError)
"""Errors of the database, object storage and disk. Every other exception is a defect and logged as one."""


def is_full(error: BaseException) -> bool:
    """Whether the error means a full disk: a problem of the machine, not of the bundle."""
    return isinstance(error, OSError) and error.errno in FULL


def outcome_of(error: Exception) -> Outcome:
    """The outcome of an attempt that raised this."""
    reason = " ".join((str(error) or type(error).__name__).split())[:500]
    if isinstance(error, XcresultError):
        return Outcome(end="refused", code=error.code, reason=reason)
    if isinstance(error, TimeoutError):
        return Outcome(end="late", code="timeout", reason=reason)
    if isinstance(error, Unavailable | CommitUnknown):  # not caused by the run: costs no attempt
        return Outcome(end="released", code="database", reason=reason)
    if is_full(error):
        return Outcome(end="no_room", code="no_space", reason=reason)
    return Outcome(end="failed", code=_code(error), reason=reason)


def _code(error: Exception) -> str:
    if isinstance(error, NoSuchBlob):
        return "upload_missing"
    if isinstance(error, BlobsRefused):
        return "storage_refused"
    if isinstance(error, BlobError):
        return "storage_unavailable"
    if isinstance(error, MemoryError):
        return "out_of_memory"
    if isinstance(error, DatabaseError):
        return "database"
    return "io_error" if isinstance(error, OSError) else "defect"
