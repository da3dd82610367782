"""What every command gets: the storage, the knobs, the time."""

from tests.standins.tart import knobs
from tests.standins.tart.knobs import Knobs
from tests.standins.tart.storage import Home


class Context:
    """One invocation."""

    __slots__ = ("home", "knobs")

    def __init__(self, home: Home, settings: Knobs) -> None:
        self.home = home
        self.knobs = settings

    def now(self) -> float:
        """The time of day."""
        return knobs.now()
