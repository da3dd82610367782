"""Settings of the server for test results: uploads, links, retention."""

import msgspec

HOUR, DAY = 3600.0, 86400.0


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long test results are kept, in seconds."""

    runs: float = 90 * DAY
    attachments: float = 30 * DAY
    uploads: float = 14 * DAY
    """Uploaded bundles, after processing; until then a run can be processed again."""
    awaited: float = DAY
    """Runs that were announced and never uploaded."""
    adopt: float = 900.0
    """Age at which an upload that its client never completed is processed anyway."""
    payloads: float = DAY
    """Payloads without a reference; longer than any processing, because a payload is stored before it is referenced."""
    every: float = 300.0
    within: float = 60.0
    """Limit of one step, in seconds."""
    batch: int = 200
    retry: float = 60.0
    """Delay before the deletion of an object is retried; doubles up to a day."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How the server handles test results."""

    upload_limit: int = 16 << 30
    """Largest upload in bytes; S3 accepts 5 GiB in one request."""
    upload_lasts: float = 4 * 3600.0
    """Seconds for which a link to upload is valid."""
    link_lasts: float = 900.0
    """Seconds for which a link to an attachment is valid."""
    direct_uploads: bool = True
    """On S3: clients upload directly to the bucket. Otherwise uploads pass through this server."""
    direct_downloads: bool = False
    """On S3: clients download directly from the bucket. File names and protective headers are then those of S3."""
    public_url: str = ""
    """The URL at which clients reach this server; empty: that of the request."""
    retention: Retention = Retention()

    @property
    def upload_longest(self) -> float:
        """Seconds that an upload through this server may take: until the run could be deleted as one without upload."""
        return max(HOUR, self.retention.awaited - self.upload_lasts)
