"""Settings of the processor."""

from pathlib import Path

import msgspec

from runyard.xcresult.archives.limits import Limits
from runyard.xcresult.plans.attempts import Retrying

MEBIBYTE = 1024 * 1024
QUEUE = "process_xcresult"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How one processor works."""

    scratch: Path
    slots: int = 2
    """Number of runs processed at the same time."""
    poll: float = 1.0
    """Seconds between two checks of an empty queue."""
    lease: float = 20.0
    """Seconds for which a claim is valid without a heartbeat; with `sweep`, how soon a dead worker is noticed."""
    beat: float = 5.0
    sweep: float = 5.0
    """Seconds between two checks for runs of dead workers."""
    limit: float = 600.0
    """Limit for reading one bundle, in seconds."""
    grace: float = 30.0
    """Additional seconds for the child to clean up."""
    memory: int = 512 * MEBIBYTE
    """Limit of memory for reading one bundle, in bytes."""
    reserve: int = 64 * MEBIBYTE
    """Bytes of the scratch filesystem that must stay free."""
    uploads: int = 30
    """Number of attachments uploaded at the same time."""
    upload_within: float = 120.0
    results_within: float = 120.0
    """Limit for the transaction that writes a run's results, in seconds."""
    patience: float = 600.0
    """Seconds for which an attempt waits for an unavailable database before it fails."""
    keep_jobs_hours: int = 24
    """How long the queue keeps finished deliveries, in hours."""
    retrying: Retrying = Retrying()
    limits: Limits = Limits()
    verify_with: str = ""
    """The program that runs xcresulttool: `xcrun` on a Mac with Xcode. Empty: results are not compared."""
