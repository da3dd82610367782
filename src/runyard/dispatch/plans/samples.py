"""Validates the samples of a runner, which are untrusted input, and rounds them for storage.

At most one sample per second is kept, so that a runner cannot fill the table. Samples that are more than a day off are
rejected: they would not be shown with their job.
"""

import math

import msgspec

from runyard.wire.bodies import Sample, Samples
from runyard.wire.instants import from_rfc3339

MOST = 500  # in one report
_AWAY = 86400.0  # how far a runner's clock may differ from the server's
_PERCENT = 1e6
_BYTES = float(1 << 62)


class StoredSample(msgspec.Struct, frozen=True, kw_only=True):
    """One sample as it is stored; `at` in whole seconds since the epoch."""

    at: int
    cpu: float
    iowait: float
    used: int
    total: int
    received: int
    sent: int
    disk_used: int
    disk_total: int


def validate(report: Samples, *, now: float) -> tuple[StoredSample, ...]:
    """Return the valid samples of a report, the last of each second; raises `ValueError` for an invalid one."""
    if len(report.samples) > MOST:
        raise ValueError(
            f"{len(report.samples)} samples in one report; at most {MOST} are accepted"
        )
    by_second = {each.at: each for each in (_read(sample, now) for sample in report.samples)}
    return tuple(by_second[at] for at in sorted(by_second))


def _read(sample: Sample, now: float) -> StoredSample:
    at = (
        sample.timestamp if isinstance(sample.timestamp, int | float) else _moment(sample.timestamp)
    )
    if not abs(at - now) <= _AWAY:  # written this way so that NaN is rejected too
        raise ValueError("timestamp differs by more than a day from the server's clock")
    return StoredSample(
        at=int(at),
        cpu=_within("cpu_usage_percent", sample.cpu_usage_percent, _PERCENT),
        iowait=_within("cpu_iowait_percent", sample.cpu_iowait_percent, _PERCENT),
        used=int(_within("memory_used_bytes", sample.memory_used_bytes, _BYTES)),
        total=int(_within("memory_total_bytes", sample.memory_total_bytes, _BYTES)),
        received=int(_within("network_bytes_in", sample.network_bytes_in, _BYTES)),
        sent=int(_within("network_bytes_out", sample.network_bytes_out, _BYTES)),
        disk_used=int(_within("disk_used_bytes", sample.disk_used_bytes, _BYTES)),
        disk_total=int(_within("disk_total_bytes", sample.disk_total_bytes, _BYTES)),
    )


def _moment(text: str) -> float:
    try:
        return from_rfc3339(text)
    except (ValueError, OverflowError):
        raise ValueError("timestamp is neither an RFC 3339 instant nor seconds") from None


def _within(name: str, value: float, most: float) -> float:
    if not math.isfinite(value) or not 0 <= value <= most:
        raise ValueError(f"{name} is {value!r}; it must be between 0 and {most:g}")
    return value
