"""How test results are taken in, shown and kept."""

import msgspec

DAY = 86400.0


class Keeping(msgspec.Struct, frozen=True, kw_only=True):
    """How long things are kept, in seconds."""

    runs: float = 90 * DAY
    attachments: float = 30 * DAY
    uploads: float = 14 * DAY
    """The bundle as it was uploaded, after it was processed; for as long it can be processed again."""
    awaited: float = DAY
    """A run that was announced and never uploaded."""
    adopt: float = 900.0
    """A run that was uploaded and never completed, until it is processed all the same."""
    payloads: float = DAY
    """What no attachment refers to; longer than any processing takes, since it is stored before it is referred to."""
    every: float = 300.0
    within: float = 60.0
    """Seconds of one step."""
    batch: int = 200
    retry: float = 60.0
    """Before an object that the store did not remove is tried again; doubled up to a day."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How the server answers about test results."""

    upload_limit: int = 16 << 30
    """Bytes of one upload; S3 itself takes 5 GiB in one request."""
    upload_lasts: float = 4 * 3600.0
    """Seconds for which a link to upload by is good."""
    link_lasts: float = 900.0
    """Seconds for which a link to an attachment is good."""
    direct_uploads: bool = True
    """On S3: clients upload there. Otherwise everything goes through this server."""
    direct_downloads: bool = False
    """On S3: attachments are read there. Their names, and what keeps a browser from showing them, are then S3's."""
    public_url: str = ""
    """How clients reach this server; empty: as the request did."""
    keeping: Keeping = Keeping()
