"""Removes the temporary files that interrupted puts leave in a directory.

obstore writes to a temporary file beside the object, named after it with `#` and a number, and renames it. A put that
fails removes the file; a killed process cannot. `#` is not valid in a key, so no object can have such a name.
"""

import contextlib
import os
import re
from pathlib import Path

_STAGED = re.compile(r".+#[0-9]+", re.DOTALL)


def remove_leftovers(directory: Path, before: float) -> int:
    """Remove temporary files last written before that moment; returns how many."""
    gone = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            if _STAGED.fullmatch(name):
                with contextlib.suppress(FileNotFoundError):
                    path = Path(folder, name)
                    if path.lstat().st_mtime < before:
                        path.unlink()
                        gone += 1
    return gone
