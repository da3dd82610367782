"""What can go wrong with object storage, by what the caller may conclude.

    BlobError
    ├── BadKey             no key that we use: a defect of ours, or a stranger's text
    ├── NoSuchBlob         there is no object of that key
    ├── BlobTooLarge       more bytes came than were allowed; nothing was stored
    ├── BlobsRefused       the store knows us and says no: credentials, bucket, rights
    └── BlobsUnavailable   everything else: no answer, a full disk; it may be tried again

Invariant: no message holds a credential or a signed address.
"""


class BlobError(Exception):
    """Object storage did not do what was asked."""


class BadKey(BlobError, ValueError):
    """This is no key."""


class NoSuchBlob(BlobError):
    """There is no such object."""


class BlobTooLarge(BlobError):
    """The content passed its limit; nothing was stored."""


class BlobsRefused(BlobError):
    """The store refuses us: asking again does not help until somebody changes something."""


class BlobsUnavailable(BlobError):
    """The store cannot be used now."""
