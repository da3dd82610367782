"""The event queue between the threads of this program, and the lines that it prints."""

from __future__ import annotations

import contextlib
import queue
import sys
import time

Events = queue.SimpleQueue  # of tuples whose first item says what happened


def print_line(text: str) -> None:
    """Prints a line; errors are ignored. Line breaks in the text are replaced, because names come from outside."""
    text = "".join(char if char.isprintable() else "?" for char in text)
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.write(f"{time.strftime('%Y-%m-%d %H:%M:%SZ', time.gmtime())}: {text}\n")
        sys.stdout.flush()
