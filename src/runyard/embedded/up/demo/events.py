"""What the demo reports while it runs: jobs, faults, and what is left over at the end."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec


class Fault(StrEnum):
    """The demo's faults."""

    AGENT_KILLED = "agent-killed"
    SERVER_KILLED = "server-killed"
    POD_LEAKED = "pod-leaked"
    IMAGE_ROLLED = "image-rolled"


class FaultView(msgspec.Struct, frozen=True, kw_only=True):
    """One fault; `seconds` is how long the recovery took, None until it is over."""

    fault: Fault
    what: str
    detail: str = ""  # what was done
    seconds: float | None = None

    def line(self) -> str:
        """The fault, or its recovery, in one line."""
        if self.seconds is None:
            return f"fault: {self.detail}"
        return f"healed: {self.what}, after {self.seconds:.1f} s"


class LeftOver(msgspec.Struct, frozen=True, kw_only=True):
    """The names of what has no owner at the end, by kind."""

    kinds: Mapping[str, tuple[str, ...]]

    @property
    def count(self) -> int:
        """How many there are."""
        return sum(map(len, self.kinds.values()))

    def line(self) -> str:
        """The counts in one line, with the names where there are any."""
        counts = [
            f"{kind} {len(names)}" + (f" ({', '.join(names)})" if names else "")
            for kind, names in self.kinds.items()
        ]
        return f"left over: {', '.join(counts)}"


class JobState(msgspec.Struct, frozen=True, kw_only=True):
    """One job, for display."""

    name: str
    state: str = "waiting"
    conclusion: str = ""
    runner: str = ""


class DemoListener:
    """Receives what happens in the demo; this base class ignores it."""

    def report(self, text: str) -> None:
        """Takes a line of text."""

    def jobs(self, states: tuple[JobState, ...]) -> None:
        """Takes the state of all jobs whenever one of them may have changed."""

    def fault(self, view: FaultView) -> None:
        """A fault was applied, or the fleet has recovered from it."""

    def left_over(self, left: LeftOver) -> None:
        """Takes what is left over at the end."""
