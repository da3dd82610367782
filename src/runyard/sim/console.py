"""The console of a simulated VM: what it has written, and who waits for more."""

import asyncio


class ConsoleLog:
    """What a VM has written to its console."""

    def __init__(self) -> None:
        self.text = bytearray()
        self.changed = asyncio.Event()

    def write(self, text: bytes) -> None:
        """Appends, and wakes those who follow."""
        self.text += text
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()
