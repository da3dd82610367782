"""The durable records of this host's VMs: one small file each.

Invariants:
- A file is replaced whole: written beside its place, synced, renamed, and the directory synced. A crash
  at any point leaves the old record or the new one.
- A file that cannot be read is set aside under another name and reported, never fatal and never
  deleted: its Pod's uid stays *suspect*, and a suspect uid is not started (it may have run).
- The methods are synchronous on purpose: between two effects there is a point at which a crash can be
  put, and a test puts one there.
"""

import os
import re
from pathlib import Path

import msgspec

from runyard.node.plans.values import Record

_SUFFIX = ".json"
_TEMPORARY = ".tmp"
_UNREADABLE = ".unreadable"
_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
_decoder = msgspec.json.Decoder(Record)


class Records:
    """The directory of records. One agent owns it."""

    def __init__(self, directory: Path, *, durable: bool = True) -> None:
        self._directory = directory
        self._durable = durable

    def load(self) -> dict[str, Record]:
        """Every readable record by uid; sets unreadable ones aside and drops torn writes."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        held: dict[str, Record] = {}
        for path in sorted(self._directory.iterdir()):
            if path.name.endswith(_TEMPORARY):
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
        """Put a record in place of the previous one of that uid."""
        path = self._path(record.uid)
        temporary = path.with_suffix(_TEMPORARY)
        with temporary.open("wb") as file:
            file.write(msgspec.json.encode(record))
            if self._durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
        self._sync_directory()

    def forget(self, uid: str) -> None:
        """Remove what is kept of a uid; nothing to remove is success."""
        path = self._path(uid)
        path.unlink(missing_ok=True)
        path.with_suffix(_UNREADABLE).unlink(missing_ok=True)
        self._sync_directory()

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
            raise ValueError(f"not a uid: {uid!r}")
        return self._directory / (uid + _SUFFIX)

    def _sync_directory(self) -> None:
        if not self._durable:
            return
        handle = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class Ledger:
    """The records in memory, with the lookups that the loops need; every change goes to disk first."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._held: dict[str, Record] = {}
        self._suspects: dict[str, None] = {}

    def load(self) -> tuple[str, ...]:
        """Read the disk; returns the suspect uids."""
        self._held = self._records.load()
        self._suspects = dict.fromkeys(self._records.suspects())
        return tuple(self._suspects)

    def get(self, uid: str) -> Record | None:
        """The record of a Pod's uid."""
        return self._held.get(uid)

    def suspect(self, uid: str) -> bool:
        """Whether there was a record that nobody can read."""
        return uid in self._suspects

    def values(self) -> tuple[Record, ...]:
        """All records, oldest uid order of insertion."""
        return tuple(self._held.values())

    def of_key(self, key: str) -> tuple[Record, ...]:
        """Records of all Pods that had this namespace and name, one after the other."""
        return tuple(record for record in self._held.values() if record.key == key)

    def save(self, record: Record) -> None:
        """Disk first, then memory."""
        self._records.write(record)
        self._held[record.uid] = record
        self._suspects.pop(record.uid, None)

    def forget(self, uid: str) -> None:
        """Disk first, then memory."""
        self._records.forget(uid)
        self._held.pop(uid, None)
        self._suspects.pop(uid, None)
