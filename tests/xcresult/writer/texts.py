"""Formats dates, ids and source locations of synthetic bundles."""

import random
from datetime import UTC, datetime, timedelta, timezone

from tests.xcresult.writer.encoding import Scalar

BEGIN = 1_760_000_000.0
"""When synthetic tests run: seconds since 1970."""
ZONES = (UTC, timezone(timedelta(hours=2)), timezone(timedelta(hours=-7, minutes=-30)))


class Texts:
    """Draws ids and formats times for one bundle."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self._zone = ZONES[seed % len(ZONES)]

    def date(self, seconds: float) -> Scalar:
        """Format a date with milliseconds, in the time zone of the build machine."""
        text = datetime.fromtimestamp(seconds, self._zone).isoformat(timespec="milliseconds")
        return Scalar("Date", (text[:-3] + text[-2:]).encode())

    def uuid(self) -> str:
        """Draw a new UUID."""
        text = f"{self.chance.getrandbits(128):032X}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def source_file(target: str, name: str) -> str:
    """The path of a source file on the build machine."""
    return f"/Users/builder/Developer/Shop/{target}/{name}.swift"


def source_url(path: str, line: int) -> str:
    """As Xcode's document locations have it: lines from zero on."""
    where = f"EndingLineNumber={line - 1}&StartingLineNumber={line - 1}"
    return f"file://{path.replace(' ', '%20')}#{where}"
