"""Tokens in private files of a data directory, each readable by its owner alone.

The file is the truth: a user who may read it has the token, and another text in it is another token at the next start.
"""

import contextlib
import random
from pathlib import Path

from runyard.embedded.up.layout import FULL, BadDirectory
from runyard.files import write_whole

_BYTES = 32
_LIMIT = 4096


def ensure_token(path: Path, rng: random.Random, *, first: str = "") -> str:
    """The token in the file; the first call writes `first`, or a new one. `rng` must be the system's generator."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            draft = path.with_name(f"{path.name}.{rng.randbytes(8).hex()}")
            _create(path, draft, (first or rng.randbytes(_BYTES).hex()) + "\n")
    except OSError as error:
        if error.errno in FULL:
            raise  # a full disk has its own message
        raise BadDirectory(f"{path} cannot be written ({error.strerror})") from error
    return read_token(path)


def _create(path: Path, draft: Path, content: str) -> None:
    """Writes the file unless another process has just done so: both must use the same token."""
    write_whole(draft, content)
    try:
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(draft)
    finally:
        draft.unlink()


def read_token(path: Path) -> str:
    """The token in the file; raises `BadDirectory` if there is none."""
    try:
        with path.open("rb") as file:
            text = file.read(_LIMIT).decode("ascii").strip()
    except (OSError, UnicodeError) as error:
        raise BadDirectory(f"the token in {path} cannot be read ({error})") from error
    if not text or not text.isprintable():
        raise BadDirectory(f"{path} contains no token. Remove it: the next start writes a new one")
    return text
