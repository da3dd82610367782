"""Keeps the durable records of this host's VMs, one small file each, and beside them those of its images.

Invariants:
- A file is replaced whole and synced (`files.write_whole`): a crash leaves the old record or the new one.
- A file that cannot be read is renamed and reported, never fatal and never deleted: its Pod's uid stays
  *suspect*, and a suspect uid is not started, because it may have run.
- The methods are synchronous on purpose: tests crash the agent between two of them.
"""

import re
from pathlib import Path

import msgspec

from runyard.files import sync_directory, write_whole
from runyard.node.owned_images import OwnedImages
from runyard.node.plans.values import Record

IMAGES = "images"  # the records of images, in a directory of their own
_SUFFIX = ".json"
_DRAFT = "."  # the beginning of the name of a file that is being written
_UNREADABLE = ".unreadable"
_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
_decoder = msgspec.json.Decoder(Record)


class Records:
    """Reads and writes the directory of records. One agent owns it."""

    def __init__(self, directory: Path, *, durable: bool = True) -> None:
        self._directory = directory
        self._durable = durable
        self.images = OwnedImages(directory / IMAGES, durable=durable)

    def load(self) -> dict[str, Record]:
        """Return every readable record by uid; renames unreadable ones and removes unfinished drafts."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        held: dict[str, Record] = {}
        for path in sorted(self._directory.iterdir()):
            if path.name.startswith(_DRAFT):
                path.unlink(missing_ok=True)
            elif path.name.endswith(_SUFFIX):
                record = self._read(path)
                if record is not None:
                    held[record.uid] = record
        return held

    def suspects(self) -> tuple[str, ...]:
        """The uids whose records could not be read."""
        found = self._directory.glob(f"*{_UNREADABLE}")
        return tuple(sorted(path.name.removesuffix(_UNREADABLE) for path in found))

    def write(self, record: Record) -> None:
        """Replace the record of a uid."""
        write_whole(self._path(record.uid), msgspec.json.encode(record), sync=self._durable)

    def forget(self, uid: str) -> None:
        """Remove the record of a uid; a missing one is no error."""
        path = self._path(uid)
        path.unlink(missing_ok=True)
        path.with_suffix(_UNREADABLE).unlink(missing_ok=True)
        if self._durable:
            sync_directory(self._directory)

    def _read(self, path: Path) -> Record | None:
        try:
            record = _decoder.decode(path.read_bytes())
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            record = None
        if record is None or record.uid != path.name.removesuffix(_SUFFIX):
            path.replace(path.with_suffix(_UNREADABLE))
            return None
        return record

    def _path(self, uid: str) -> Path:
        if not _UID.fullmatch(uid):
            raise ValueError(f"{uid!r} is not a Pod's uid")
        return self._directory / (uid + _SUFFIX)


class Ledger:
    """Holds the records in memory; every change is written to disk first."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._held: dict[str, Record] = {}
        self._suspects: dict[str, None] = {}

    def load(self) -> tuple[str, ...]:
        """Read the directory; returns the suspect uids."""
        self._held = self._records.load()
        self._suspects = dict.fromkeys(self._records.suspects())
        return tuple(self._suspects)

    def get(self, uid: str) -> Record | None:
        """The record of a Pod's uid."""
        return self._held.get(uid)

    def suspect(self, uid: str) -> bool:
        """Return whether this uid has a record that cannot be read."""
        return uid in self._suspects

    def values(self) -> tuple[Record, ...]:
        """Return all records in the order of insertion."""
        return tuple(self._held.values())

    def of_key(self, key: str) -> tuple[Record, ...]:
        """Return the records of all Pods that had this namespace and name."""
        return tuple(record for record in self._held.values() if record.key == key)

    def save(self, record: Record) -> None:
        """Write a record to disk, then to memory."""
        self._records.write(record)
        self._held[record.uid] = record
        self._suspects.pop(record.uid, None)

    def forget(self, uid: str) -> None:
        """Remove a record from disk, then from memory."""
        self._records.forget(uid)
        self._held.pop(uid, None)
        self._suspects.pop(uid, None)
