"""Login links: each opens the dashboard in one browser, once, for a few minutes.

The holder of the token requests one and gives it to a browser, which then needs no token. The server keeps a hash of
each open code in memory: a code ends with its use, with its time and with the process.
"""

import hashlib
import random

from runyard.clock import Clock

SECONDS = 300.0
_MOST = 20  # open codes; a new one then replaces the oldest


class LoginLinks:
    """The open codes. `rng` must be the system's generator wherever the dashboard can be reached."""

    def __init__(self, clock: Clock, rng: random.Random) -> None:
        self._clock = clock
        self._rng = rng
        self._ends: dict[bytes, float] = {}  # by the code's hash, oldest first

    def issue(self) -> str:
        """Return a new code."""
        self._forget_expired()
        while len(self._ends) >= _MOST:
            del self._ends[next(iter(self._ends))]
        code = self._rng.randbytes(16).hex()
        self._ends[_hash(code)] = self._clock.monotonic() + SECONDS
        return code

    def redeem(self, code: str) -> bool:
        """Return whether the code is open, and end it."""
        self._forget_expired()
        return self._ends.pop(_hash(code), None) is not None

    def _forget_expired(self) -> None:
        now = self._clock.monotonic()
        self._ends = {code: end for code, end in self._ends.items() if end > now}


def _hash(code: str) -> bytes:
    return hashlib.sha256(code.encode("utf-8", "surrogatepass")).digest()
