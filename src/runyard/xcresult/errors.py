"""What can be wrong with a result bundle as a whole.

Each error has a `code`, which a job stores, an API answers and a script may rely on. All of them are
permanent: the same bytes will never read better. What is wrong with a part of a bundle while the rest
is good is no error but a `Warning` of the model. A full disk or a lost connection is neither: those
stay what they are (OSError) and may be tried again.
"""

from typing import ClassVar


class XcresultError(Exception):
    """The bundle cannot be read; one line that names the cause."""

    code: ClassVar[str] = "bundle_invalid"


class BundleInvalid(XcresultError):
    """This is a bundle, and it is damaged or nonsense."""

    code: ClassVar[str] = "bundle_invalid"


class XcresultNotFound(XcresultError):
    """There is no result bundle in what was given."""

    code: ClassVar[str] = "xcresult_not_found"


class UnsupportedFormat(XcresultError):
    """A bundle or an archive of a kind that this reader does not read, named in the message."""

    code: ClassVar[str] = "unsupported_format"


class TooLarge(XcresultError):
    """A limit was passed: of bytes, of entries, of depth. The message names the limit."""

    code: ClassVar[str] = "too_large"
