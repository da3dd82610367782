"""Errors about a result bundle as a whole.

Each error has a `code` that the command line shows and a script may rely on; a processor stores the slug of the same
name (`runyard.wire.reasons_results`). All are permanent: the same bytes fail again. A problem in one part of a readable
bundle is not an error but a `Warning` of the model. A full disk or a lost connection is an OSError and may be retried.
"""

from typing import ClassVar


class XcresultError(Exception):
    """The bundle cannot be read; the message names the cause in one line."""

    code: ClassVar[str] = "bundle_invalid"


class BundleInvalid(XcresultError):
    """The bundle is damaged or contradicts itself."""

    code: ClassVar[str] = "bundle_invalid"


class XcresultNotFound(XcresultError):
    """The input contains no result bundle."""

    code: ClassVar[str] = "xcresult_not_found"


class UnsupportedFormat(XcresultError):
    """A format of bundle or archive that this reader does not support; the message names it."""

    code: ClassVar[str] = "unsupported_format"


class TooLarge(XcresultError):
    """A limit of bytes, entries or depth was exceeded; the message names it."""

    code: ClassVar[str] = "too_large"
