"""Reads an object store from files: the `Data/` directory of a bundle, and its Info.plist.

Invariants:
- Only a valid id becomes a path. A data file that is a link, a pipe or a directory is an error of that object; links
  are not followed.
- A file is closed before the next one is opened, also if the reader stops early.
- Bytes that do not match their id are an error of that object, because payloads are shared by id. An object without a
  refs file cannot be verified and is accepted.
- An OSError that is not about the file (no space, too many open files, a broken disk) passes through.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from runyard.xcresult.archives.limits import Limits
from runyard.xcresult.errors import BundleInvalid, TooLarge, UnsupportedFormat
from runyard.xcresult.reader.budget import OBJECT, REFERENCE, Budget
from runyard.xcresult.reader.fields import brief
from runyard.xcresult.reader.frames import FrameDamaged, pieces, whole
from runyard.xcresult.reader.ids import REFERENCE as REFERENCE_BYTES
from runyard.xcresult.reader.ids import RefsDamaged, decode_refs, hashed_id, is_id, new_hash
from runyard.xcresult.reader.objects import Info, ObjectProblem, Objects
from runyard.xcresult.reader.plists import PlistDamaged, load_plist

DATA = "Data"
INFO = "Info.plist"
INFO_BYTES = 1 << 20
BLOCK = 1 << 18
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MISSING = (errno.ENOENT, errno.ENOTDIR)


class Directory(Objects):
    """A bundle in a directory."""

    def __init__(
        self,
        path: Path,
        *,
        limits: Limits = Limits(),  # noqa: B008  (frozen)
        checked: bool = True,
        budget: Budget | None = None,
    ) -> None:
        self.path = path
        self.limits = limits
        self.budget = budget or limits.budget()
        self.checked = checked
        self._data = os.fspath(path / DATA)
        self._stored = 0
        self._decoded = 0

    def info(self) -> Info:
        """The content of Info.plist; raises if the format is not supported."""
        return read_info(self.path)

    def has(self, object_id: str) -> bool:
        """Whether the store has a data file for this id."""
        if not is_id(object_id):
            return False
        try:
            found = os.lstat(f"{self._data}/data.{object_id}")
        except FileNotFoundError:
            return False
        return stat.S_ISREG(found.st_mode)

    def read(self, object_id: str) -> bytes:
        """Return the decompressed payload."""
        self.budget.spend(OBJECT)
        self._count(0, 0)
        stored = self.stored(object_id)
        # Most objects have no references, so the refs file is read only if the hash without references does not match.
        if self.checked and hashed_id(hashlib.blake2b(stored)) != object_id:
            digest = self._hash(object_id)
            if digest is not None:
                digest.update(stored)
                _check_hash(object_id, digest)
        try:
            payload = whole(stored, limit=self.limits.object_bytes)
        except FrameDamaged as error:
            raise ObjectProblem(object_id, str(error)) from error
        except TooLarge:
            # it was decompressed up to the limit, so those bytes count
            self._count(len(stored), self.limits.object_bytes)
            raise
        self._count(len(stored), len(payload))
        return payload

    def _count(self, stored: int, decoded: int) -> None:
        """Check the total, because many objects just below the limit of one object are a decompression bomb too."""
        self.budget.spend_kib(stored + decoded)
        self._stored += stored
        self._decoded += decoded
        most = max(self.limits.ratio_floor, self.limits.ratio * self._stored)
        if self._decoded > most:
            raise TooLarge(
                f"the objects hold more than {self.limits.ratio} bytes for each that is stored"
                " (limit ratio)"
            )

    def stream(self, object_id: str) -> Iterator[bytes]:
        """Yield the decompressed payload in pieces. Its bytes are not work of the reading: attachments may be large."""
        self.budget.spend(OBJECT)
        digest = self._hash(object_id) if self.checked else None
        try:
            yield from pieces(_hashed(self.blocks(object_id), digest))
        except FrameDamaged as error:
            raise ObjectProblem(object_id, str(error)) from error
        if digest is not None:
            _check_hash(object_id, digest)

    def refs(self, object_id: str) -> tuple[str, ...]:
        """Return the ids of the objects that this object references."""
        found = _open(self._data, "refs", object_id)
        if found is None:
            return ()
        most = self.limits.references * (REFERENCE_BYTES + 1) + 16
        data = _all(found, limit=most, what="a list of references", name="references")
        self.budget.spend(len(data) // REFERENCE_BYTES * REFERENCE)
        try:
            return decode_refs(data, limit=self.limits.references)
        except RefsDamaged as error:
            raise ObjectProblem(object_id, str(error)) from error

    def _hash(self, object_id: str) -> hashlib.blake2b | None:
        """Return the hash of an object's references; None if it has no refs file."""
        return new_hash(self.refs(object_id)) if self.has_refs(object_id) else None

    def has_refs(self, object_id: str) -> bool:
        """Whether the object has a refs file: without one its id cannot be verified."""
        return is_id(object_id) and os.path.lexists(f"{self._data}/refs.{object_id}")

    def ids(self) -> Iterator[str]:
        """All ids that have a payload, sorted."""
        try:
            with os.scandir(self._data) as entries:
                names = [entry.name for entry in entries if entry.name.startswith("data.")]
        except (FileNotFoundError, NotADirectoryError):
            return
        if len(names) > self.limits.entries:
            raise TooLarge(f"more than {self.limits.entries} objects (limit entries)")
        yield from sorted(name for name in (n.removeprefix("data.") for n in names) if is_id(name))

    def stored(self, object_id: str) -> bytes:
        """The stored bytes of the data file."""
        found = self._opened(object_id)
        return _all(found, limit=self.limits.object_bytes, what="an object", name="object_bytes")

    def blocks(self, object_id: str) -> Iterator[bytes]:
        """Yield the stored bytes of the data file in blocks."""
        with open(self._opened(object_id), "rb", buffering=0) as file:  # noqa: PTH123  (as above)
            while block := file.read(BLOCK):
                yield block

    def _opened(self, object_id: str) -> int:
        found = _open(self._data, "data", object_id)
        if found is None:
            raise ObjectProblem(object_id, "the object is missing")
        return found


def _hashed(blocks: Iterator[bytes], digest: hashlib.blake2b | None) -> Iterator[bytes]:
    for block in blocks:
        if digest is not None:
            digest.update(block)
        yield block


def _check_hash(object_id: str, digest: hashlib.blake2b) -> None:
    if hashed_id(digest) != object_id:
        raise ObjectProblem(object_id, "its bytes do not match its id (hash mismatch)")


def read_info(bundle: Path) -> Info:
    """Read and check Info.plist; raises BundleInvalid if it is damaged, UnsupportedFormat for other formats."""
    try:
        descriptor = os.open(bundle / INFO, _FLAGS)
    except OSError as error:
        if error.errno in (*_MISSING, errno.ELOOP):
            raise BundleInvalid(f"no {INFO} in the bundle") from error
        raise
    with open(descriptor, "rb") as file:  # noqa: PTH123  (a descriptor, not a path)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise BundleInvalid(f"{INFO} is not a regular file")
        data = file.read(INFO_BYTES + 1)
    if len(data) > INFO_BYTES:
        raise BundleInvalid(f"{INFO} is larger than {INFO_BYTES} bytes")
    try:
        return _info_of(load_plist(data))
    except PlistDamaged as error:
        raise BundleInvalid(f"{INFO} is damaged: {error}") from error


def _info_of(info: object) -> Info:
    if not isinstance(info, dict):
        raise BundleInvalid(f"{INFO} is damaged: it is not a dictionary")
    version, storage, root = (_part(info, name) for name in ("version", "storage", "rootId"))
    major, minor = version.get("major"), version.get("minor")
    if not isinstance(major, int) or not isinstance(minor, int):
        raise BundleInvalid(f"{INFO} has no format version")
    backend, compression = str(storage.get("backend")), str(storage.get("compression"))
    if major != 3:
        raise UnsupportedFormat(f"format {major}.{minor}: only format 3 can be read")
    if backend != "fileBacked2" or compression != "standard":
        raise UnsupportedFormat(
            f"storage {brief(backend)}, compression {brief(compression)}: cannot be read"
        )
    root_id = root.get("hash")
    if not isinstance(root_id, str) or not is_id(root_id):
        raise BundleInvalid(f"{INFO} has no root object")
    created = info.get("dateCreated")
    return Info(
        major=major,
        minor=minor,
        root_id=root_id,
        backend=backend,
        compression=compression,
        created=_seconds(created) if isinstance(created, datetime) else None,
    )


def _part(info: dict[str, object], name: str) -> dict[str, object]:
    part = info.get(name)
    return part if isinstance(part, dict) else {}


def _seconds(moment: datetime) -> float:
    """Property lists have dates in UTC without a time zone."""
    return (moment - datetime(1970, 1, 1)).total_seconds()  # noqa: DTZ001  (both without a zone)


def _open(data: str, kind: str, object_id: str) -> int | None:
    """Open a regular file without following links; returns a descriptor, None if the file does not exist."""
    if not is_id(object_id):
        raise ObjectProblem(object_id, "not an object id")
    try:
        descriptor = os.open(f"{data}/{kind}.{object_id}", _FLAGS)
    except OSError as error:
        if error.errno in _MISSING:
            return None
        if error.errno in (errno.ELOOP, errno.EACCES, errno.ENXIO, errno.EISDIR):
            raise ObjectProblem(object_id, f"the {kind} file: {error.strerror}") from error
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise ObjectProblem(object_id, f"the {kind} file is not a regular file")


def _all(descriptor: int, *, limit: int, what: str, name: str) -> bytes:
    """Read a whole file after checking its size, without allocating the limit itself."""
    with open(descriptor, "rb", buffering=0) as file:
        if os.fstat(descriptor).st_size > limit:
            raise TooLarge(f"{what} is larger than {limit} bytes (limit {name})")
        return file.readall()
