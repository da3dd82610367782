"""How runs are processed, in one place."""

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
    """How many runs at once."""
    poll: float = 1.0
    """Seconds between two looks into an empty queue."""
    lease: float = 20.0
    """Seconds for which a claim holds without a heartbeat; with `sweep` it bounds how soon a dead worker is noticed."""
    beat: float = 5.0
    sweep: float = 5.0
    """Seconds between two looks for runs that nobody processes any more."""
    limit: float = 600.0
    """Seconds for reading one bundle."""
    grace: float = 30.0
    """Seconds more, to unwind."""
    memory: int = 2048 * MEBIBYTE
    """Bytes that reading one bundle may take."""
    reserve: int = 64 * MEBIBYTE
    """Bytes of the scratch filesystem that stay free."""
    uploads: int = 30
    """How many attachments at once."""
    upload_within: float = 120.0
    results_within: float = 120.0
    """Seconds for the transaction that writes a run's results."""
    patience: float = 600.0
    """Seconds for which an attempt waits for a database that does not answer, before it fails."""
    keep_jobs_hours: int = 24
    """How long the queue remembers what it has delivered."""
    retrying: Retrying = Retrying()
    limits: Limits = Limits()
    verify_with: str = ""
    """The program to compare with: `xcrun` on a Mac with Xcode. Empty: nothing is compared."""
