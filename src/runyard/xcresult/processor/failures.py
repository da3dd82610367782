"""Maps an exception of an attempt to the attempt's outcome."""

import errno

from runyard.blobs.errors import BlobError, BlobsRefused, NoSuchBlob
from runyard.db.contract import CommitUnknown, DatabaseError, Unavailable
from runyard.wire.reasons import Reason
from runyard.wire.reasons_results import Unprocessed
from runyard.xcresult.errors import TooLarge, UnsupportedFormat, XcresultError, XcresultNotFound
from runyard.xcresult.plans.attempts import Outcome
from runyard.xcresult.processor.rows_file import clean

FULL = (errno.ENOSPC, errno.EDQUOT)
EXPECTED = (BlobError, OSError, XcresultError, DatabaseError)
"""Errors of the database, object storage and disk. Every other exception is a defect and logged as one."""


def is_full(error: BaseException) -> bool:
    """Whether the error means a full disk: a problem of the machine, not of the bundle."""
    return isinstance(error, OSError) and error.errno in FULL


def line(text: str) -> str:
    """A text of another program in one line that Postgres accepts."""
    return clean(" ".join(text.split())[:500])


def outcome_of(error: Exception) -> Outcome:
    """The outcome of an attempt that raised this."""
    if isinstance(error, XcresultError):
        return Outcome(end="refused", reason=because(refusal(error), error))
    if isinstance(error, TimeoutError):
        return Outcome(end="late", reason=because(Unprocessed.TIMEOUT, error))
    if isinstance(error, Unavailable | CommitUnknown):  # not caused by the run: costs no attempt
        return Outcome(end="released", reason=because(Unprocessed.DATABASE, error))
    if is_full(error):
        return Outcome(end="no_space", reason=because(Unprocessed.NO_SPACE, error))
    if isinstance(error, NoSuchBlob):
        return Outcome(end="failed", reason=Unprocessed.UPLOAD_MISSING.because())
    return Outcome(end="failed", reason=because(_code(error), error))


def because(code: Unprocessed, error: Exception) -> Reason:
    """A reason whose message is that of an exception."""
    return code.because(message=line(str(error) or type(error).__name__))


def refusal(error: XcresultError) -> Unprocessed:
    """The code of a bundle that can never be read."""
    if isinstance(error, XcresultNotFound):
        return Unprocessed.XCRESULT_NOT_FOUND
    if isinstance(error, UnsupportedFormat):
        return Unprocessed.UNSUPPORTED_FORMAT
    return Unprocessed.TOO_LARGE if isinstance(error, TooLarge) else Unprocessed.BUNDLE_INVALID


def _code(error: Exception) -> Unprocessed:
    if isinstance(error, BlobsRefused):
        return Unprocessed.STORAGE_REFUSED
    if isinstance(error, BlobError):
        return Unprocessed.STORAGE_UNAVAILABLE
    if isinstance(error, MemoryError):
        return Unprocessed.OUT_OF_MEMORY
    if isinstance(error, DatabaseError):
        return Unprocessed.DATABASE
    return Unprocessed.IO_ERROR if isinstance(error, OSError) else Unprocessed.DEFECT
