"""What an interrupted put leaves in a directory: a file beside its place, named after it with `#` and a number.

A put that fails removes it; a process that is killed cannot. The name can be no key, so nothing else is ever met.
"""

import contextlib
import os
import re
from pathlib import Path

_STAGED = re.compile(r".+#[0-9]+", re.DOTALL)


def remove_leftovers(directory: Path, before: float) -> int:
    """Remove those last written before that moment; how many there were."""
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
