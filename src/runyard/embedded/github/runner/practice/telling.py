"""What the threads of this program tell each other, and what it tells whoever reads its output."""

from __future__ import annotations

import contextlib
import queue
import sys
import time

Events = queue.SimpleQueue  # of tuples whose first item says what happened


def say(text: str) -> None:
    """Tell whoever reads our output; nobody need. Names come from elsewhere: they get no line of their own."""
    text = "".join(char if char.isprintable() else "?" for char in text)
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.write(f"{time.strftime('%Y-%m-%d %H:%M:%SZ', time.gmtime())}: {text}\n")
        sys.stdout.flush()
