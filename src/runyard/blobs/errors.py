"""Errors of object storage, one class for each conclusion that a caller can draw.

    BlobError
    ├── BadKey             the text is not a valid key: a defect of ours, or untrusted input
    ├── NoSuchBlob         no object has that key
    ├── BlobTooLarge       the content has more bytes than allowed; nothing was stored
    ├── BlobsRefused       the store denies access: credentials, bucket, permissions
    └── BlobsUnavailable   everything else (no response, a full disk); a retry may succeed

Invariant: no message contains a credential or a signed URL.
"""


class BlobError(Exception):
    """An operation of object storage failed."""


class BadKey(BlobError, ValueError):
    """The text is not a valid key."""


class NoSuchBlob(BlobError):
    """The object does not exist."""


class BlobTooLarge(BlobError):
    """The content has more bytes than allowed; nothing was stored."""


class BlobsRefused(BlobError):
    """The store denies access: a retry fails until credentials, bucket or permissions are changed."""


class BlobsUnavailable(BlobError):
    """The store cannot be used now; a retry may succeed."""
