"""What pull and push share: the media types and annotations of tart's images, and another attempt at a request."""

from collections.abc import Callable
from typing import TypeVar

from tests.standins.tart import errors, knobs
from tests.standins.tart.context import Context
from tests.standins.tart.errors import say

_CIRRUS = "application/vnd.cirruslabs.tart"
CONFIG, DISK, NVRAM = f"{_CIRRUS}.config.v1", f"{_CIRRUS}.disk.v2", f"{_CIRRUS}.nvram.v1"
DISK_SIZE = "org.cirruslabs.tart.uncompressed-disk-size"
UPLOADED = "org.cirruslabs.tart.upload-time"
CHUNK_SIZE = "org.cirruslabs.tart.uncompressed-size"
CHUNK_DIGEST = "org.cirruslabs.tart.uncompressed-content-digest"
LAYER = 512 << 20
ATTEMPTS = 5
_T = TypeVar("_T")


def again(context: Context, action: Callable[[], _T], *, attempts: int = ATTEMPTS) -> _T:
    """Try again when the network fails, and nothing else."""
    for attempt in range(1, attempts + 1):
        try:
            return action()
        except errors.NetworkDown as error:
            if attempt == attempts:
                raise errors.other(str(error)) from error
            say(f"Error: {error}")
            say("Attempting to re-try...")
            knobs.pause(context.knobs.number("retry-seconds", 1))
    raise AssertionError("the last attempt returns or raises")
