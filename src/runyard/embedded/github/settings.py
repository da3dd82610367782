"""Settings of the practice GitHub: its timeouts and its limits.

Defaults are GitHub's as far as they are known; rate limits are off by default. Secrets are not settings: the core
takes them as separate arguments, so that settings can be printed.
"""

import msgspec

PRACTICE_HEADER = ("x-runyard-practice", "github")


class PracticeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of the practice GitHub, in seconds where they are times."""

    epoch: int = 0  # where numbers begin, at least; see `numbers.py`
    lost_after: float = 600.0  # a job on a runner that vanished is failed
    unused_after: float = 86400.0  # an ephemeral registration that is offline is removed
    token_seconds: int = 3600
    delivery_timeout: float = 10.0
    deliveries_kept: float = 3 * 86400.0
    runners_per_scope: int = 10_000
    primary_per_hour: int | None = None
    secondary_points_per_minute: int | None = None
    secondary_retry_after: int = 60
    limit_status: int = 403  # GitHub uses 403 and 429 interchangeably

    # For runner programs that connect over HTTP.
    public_url: str = ""  # the URL of this GitHub; empty: no runner connects over HTTP
    poll_seconds: float = 25.0  # the longest time that a request waits
    silent_after: float = 30.0  # a runner program without contact has vanished
    log_limit: int = 4 << 20  # bytes of one job's log
    log_chunk: int = 64 << 10  # bytes of one append
    logs_kept: int = 1000  # jobs, the newest
    logs_total: int = 256 << 20  # bytes of all logs; the newest job's is kept in any case
