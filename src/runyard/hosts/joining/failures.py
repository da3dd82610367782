"""Limits the failed attempts to join of one address.

Guessing a token is hopeless; the limit keeps an attacker from using the machine's time and from filling its log.

Invariants: memory is bounded (the address that failed longest ago is forgotten first), an IPv6 network of one
subscriber counts as one address, and a success does not reset the count of an address that others may share.
"""

import ipaddress
from collections import OrderedDict, deque

ALLOWED, WINDOW = 10, 60.0  # failures of an address in so many seconds
_ADDRESSES = 4096


class Failures:
    """Recent failures by address. Times are of one monotonic clock."""

    def __init__(self, *, allowed: int = ALLOWED, window: float = WINDOW) -> None:
        self._allowed = allowed
        self._window = window
        self._recent: OrderedDict[str, deque[float]] = OrderedDict()

    def wait(self, address: str, *, now: float) -> float:
        """Seconds until this address may try again; zero if it may now."""
        recent = self._recent.get(_network(address))
        if recent is None:
            return 0.0
        while recent and recent[0] + self._window <= now:
            recent.popleft()
        if len(recent) < self._allowed:
            return 0.0
        return recent[0] + self._window - now

    def failed(self, address: str, *, now: float) -> None:
        """Count a failure."""
        key = _network(address)
        recent = self._recent.setdefault(key, deque(maxlen=self._allowed))
        recent.append(now)
        self._recent.move_to_end(key)
        if len(self._recent) > _ADDRESSES:
            self._recent.popitem(last=False)


def _network(address: str) -> str:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)
