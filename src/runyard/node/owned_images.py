"""Records which images this agent has pulled, one small file each. Only these are ever removed.

Invariants:
- The record is written before the pull: an image that the agent pulled always has one, whatever dies when.
- An image that was on the host before, or that another tool pulled, has none and is left alone. An image of ours that
  another tool or a person has deleted loses its record: the next pull may be theirs.
- A file that cannot be read proves nothing: its image counts as another tool's.
"""

import hashlib
from pathlib import Path

import msgspec

from runyard.files import remove_drafts, sync_directory, write_whole

_SUFFIX = ".image"


class OwnedImage(msgspec.Struct, frozen=True, kw_only=True):
    """One image that the agent has pulled."""

    reference: str  # with digest
    pulled_at: float


_decoder = msgspec.json.Decoder(OwnedImage)


class OwnedImages:
    """The images that the agent has pulled."""

    def __init__(self, directory: Path, *, durable: bool = True) -> None:
        self._directory = directory
        self._durable = durable
        self._held: dict[str, OwnedImage] = {}

    def load(self) -> None:
        """Read the directory; it is created if it is missing."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        remove_drafts(self._directory)
        self._held = {}
        for path in sorted(self._directory.glob(f"*{_SUFFIX}")):
            try:
                record = _decoder.decode(path.read_bytes())
            except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
                continue
            self._held[record.reference] = record

    def references(self) -> tuple[str, ...]:
        """Every image with a record, on this host or not."""
        return tuple(self._held)

    def __contains__(self, reference: object) -> bool:
        return reference in self._held

    def add(self, reference: str, *, now: float) -> None:
        """Record an image that is about to be pulled."""
        if reference in self._held:
            return
        record = OwnedImage(reference=reference, pulled_at=now)
        write_whole(self._path(reference), msgspec.json.encode(record), sync=self._durable)
        self._held[reference] = record

    def forget(self, reference: str) -> None:
        """Remove the record of an image that is gone; a missing one is no error."""
        self._path(reference).unlink(missing_ok=True)
        if self._durable:
            sync_directory(self._directory)
        self._held.pop(reference, None)

    def _path(self, reference: str) -> Path:
        return self._directory / (hashlib.sha256(reference.encode()).hexdigest() + _SUFFIX)
