"""What went wrong with an attempt, sorted into what may be concluded from it."""

import errno

from runyard.blobs.errors import BlobError, BlobsRefused, NoSuchBlob
from runyard.db.contract import CommitUnknown, DatabaseError, Unavailable
from runyard.xcresult.errors import XcresultError
from runyard.xcresult.plans.attempts import Outcome

FULL = (errno.ENOSPC, errno.EDQUOT)
EXPECTED = (BlobError, OSError, XcresultError, DatabaseError)
"""Failures of the outside world. Anything else is a defect, and is told as one."""


def is_full(error: BaseException) -> bool:
    """Whether a disk is full: the machine's trouble, and no statement about a bundle."""
    return isinstance(error, OSError) and error.errno in FULL


def sorted_out(error: Exception) -> Outcome:
    """How an attempt ended that raised this."""
    told = " ".join((str(error) or type(error).__name__).split())[:500]
    if isinstance(error, XcresultError):
        return Outcome(end="refused", code=error.code, reason=told)
    if isinstance(error, TimeoutError):
        return Outcome(end="late", code="timeout", reason=told)
    if isinstance(error, Unavailable | CommitUnknown):  # no fault of the run's: costs no attempt
        return Outcome(end="released", code="database", reason=told)
    if is_full(error):
        return Outcome(end="no_room", code="no_space", reason=told)
    return Outcome(end="failed", code=_code(error), reason=told)


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
