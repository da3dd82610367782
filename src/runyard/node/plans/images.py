"""The state of a Pod's image on this host, and how a pull is described in the Pod's status."""

from enum import StrEnum

import msgspec

from runyard.vm.contract import Fault

_GB, _MB = 10**9, 10**6


class ImageState(StrEnum):
    """Where an image is."""

    ABSENT = "absent"
    PULLING = "pulling"
    HELD = "held"
    FAILED = "failed"  # and not yet time to try again


class PullState(msgspec.Struct, frozen=True, kw_only=True):
    """How far a pull has come."""

    percent: float
    bytes_total: int = 0  # 0 if unknown
    rate: float = 0.0  # bytes a second since the pull began; 0 if unknown
    at: float  # when it last moved on


class ImageFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the Pod's image on this host."""

    state: ImageState = ImageState.ABSENT
    pinned: str = ""  # of a held image: the reference with its digest
    pull: PullState | None = None  # of an image that is being pulled
    error: str = ""
    fault: Fault | None = None  # the kind of the error, if the driver raised it
    retry_in: float = 0.0


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
