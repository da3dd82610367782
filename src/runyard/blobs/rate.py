"""Measures at which rate an upload arrives, over the last seconds in which the server waited for it."""

WINDOW = 20.0  # seconds; the measure covers between half of it and all of it


class Rate:
    """Bytes per second of waiting, over a window of two halves."""

    __slots__ = ("_before", "_now", "received", "waited")

    def __init__(self) -> None:
        self.received = 0
        self.waited = 0.0
        self._before = (0, 0.0)  # bytes and seconds of the previous half
        self._now = (0, 0.0)

    def add(self, size: int, waited: float) -> None:
        """Count bytes and the seconds that the server waited for them."""
        self.received += size
        self.waited += waited
        self._now = (self._now[0] + size, self._now[1] + waited)
        if self._now[1] >= WINDOW / 2:
            self._before, self._now = self._now, (0, 0.0)

    def value(self, pending: float = 0.0) -> float:
        """The rate, when the server has waited for `pending` more seconds; infinite while it never waited."""
        size = self._before[0] + self._now[0]
        waited = self._before[1] + self._now[1] + pending
        return size / waited if waited > 0 else float("inf")
