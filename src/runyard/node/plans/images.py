"""The state of a Pod's image on this host, and how a pull is described in the Pod's status."""

from enum import StrEnum

import msgspec

from runyard.vm.contract import Fault, PullProgress

_GB, _MB = 10**9, 10**6
_WINDOW = 300.0  # seconds over which the rate is computed: of a slow pull one percent takes minutes
_EVERY = 5.0  # seconds between samples


class ImageState(StrEnum):
    """Where an image is."""

    ABSENT = "absent"
    PULLING = "pulling"
    HELD = "held"
    FAILED = "failed"  # and not yet time to try again


class Sample(msgspec.Struct, frozen=True):
    """How much was there at some moment."""

    now: float  # monotonic
    bytes_done: int


class PullState(msgspec.Struct, frozen=True, kw_only=True):
    """How far a pull has come."""

    percent: float
    bytes_total: int = 0  # 0 if unknown
    rate: float = 0.0  # bytes a second lately; 0 if unknown
    at: float  # when it last moved on
    samples: tuple[Sample, ...] = ()  # the rate is computed from these


class ImageFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the Pod's image on this host."""

    state: ImageState = ImageState.ABSENT
    pinned: str = ""  # of a held image: the reference with its digest
    pull: PullState | None = None  # of an image that is being pulled
    error: str = ""
    fault: Fault | None = None  # the kind of the error, if the driver raised it
    retry_in: float = 0.0


def advanced(before: PullState | None, found: PullProgress, *, at: float, now: float) -> PullState:
    """The state of a pull after a report; `now` is monotonic.

    The rate is of the last minutes: what an interrupted pull has left counts at once, and lines change.
    """
    samples = () if before is None else before.samples
    if samples and found.bytes_done < samples[-1].bytes_done:
        samples = ()  # it began again
    if not samples or now - samples[-1].now >= _EVERY:
        samples = (*samples, Sample(now, found.bytes_done))
    while len(samples) > 2 and samples[1].now <= now - _WINDOW:
        samples = samples[1:]
    oldest = samples[0]
    passed = now - oldest.now
    return PullState(
        percent=found.percent,
        bytes_total=found.bytes_total,
        rate=(found.bytes_done - oldest.bytes_done) / passed if passed > 0 else 0.0,
        at=at,
        samples=samples,
    )


def describe(pull: PullState | None) -> str:
    """A pull in one line: `37 % of 52.1 GB, 110 MB/s, about 5 min left`."""
    if pull is None:
        return ""
    words = f"{pull.percent:.0f} %"
    if pull.bytes_total:
        words += f" of {pull.bytes_total / _GB:.1f} GB"
    if not pull.rate:
        return words
    words += f", {pull.rate / _MB:.0f} MB/s"
    if not pull.bytes_total:
        return words
    left = pull.bytes_total * (1.0 - pull.percent / 100.0) / pull.rate
    return f"{words}, about {max(1, round(left / 60))} min left"
