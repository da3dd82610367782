"""Bounds the connections of a server: all of them, and those of one address.

A server for untrusted clients needs it, because each connection costs a descriptor and memory before it has shown any
credential. The share of an address keeps one client from taking the places of all others.
"""

from collections import Counter

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How many connections there may be."""

    all: int = 1024
    address: int = 128


class ConnectionLimits:
    """Counts the open connections of one server."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._open: Counter[str] = Counter()

    @property
    def size(self) -> int:
        """How many connections are open."""
        return self._open.total()

    def enter(self, address: str) -> bool:
        """Count a new connection; false if there is no place for it."""
        limits = self._limits
        if self.size >= limits.all or self._open[address] >= limits.address:
            return False
        self._open[address] += 1
        return True

    def leave(self, address: str) -> None:
        """Count one connection less."""
        self._open[address] -= 1
        if self._open[address] <= 0:
            del self._open[address]
