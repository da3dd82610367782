"""Writes extracted files below one directory, and nowhere else.

The directory belongs to the extraction: created by it, empty, private. Below it only directories made here and regular
files are created, each under a new name (O_EXCL) that is not a link (O_NOFOLLOW); components come from
`paths.parts_of`. So no path can lead outside, whatever the archive contains. Owners, modes, times and attributes of the
archive are ignored.

A name that conflicts with other names in the archive is an error of the archive; a full disk stays an OSError.
"""

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from runyard.xcresult.archives.paths import Parts, bundle_of, needed, shown
from runyard.xcresult.errors import BundleInvalid, TooLarge

_ARCHIVES_FAULT = {
    errno.EEXIST,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.EILSEQ,
    errno.EINVAL,
}
DIRECTORIES = 10_000
"""Largest number of created directories. A bundle needs one, `Data`, and the directories above it."""
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Sink:
    """The files of one archive, below `root`."""

    def __init__(self, root: Path) -> None:
        self._root = os.path.abspath(root)  # noqa: PTH100  (resolve() would follow links)
        self._made: set[Parts] = {()}

    def wants(self, parts: Parts) -> bool:
        """Whether this file is needed. The bundle's directory is created even if none of its files is needed."""
        if needed(parts):
            return True
        bundle = bundle_of(parts)
        if bundle is not None:
            self.directory(bundle)
        return False

    def directory(self, parts: Parts) -> None:
        """Create a directory and its parents, unless they were created before."""
        if parts in self._made:
            return
        self.directory(parts[:-1])
        if len(self._made) > DIRECTORIES:
            raise TooLarge(f"the archive makes more than {DIRECTORIES} directories")
        try:
            os.mkdir(self._path(parts), 0o700)  # noqa: PTH102  (beside os.open, without Path's cost)
        except OSError as error:
            raise _error_for(error, parts) from error
        self._made.add(parts)

    def file(self, parts: Parts, pieces: Iterable[bytes]) -> None:
        """Write one new file, piece by piece."""
        self.directory(parts[:-1])
        try:
            descriptor = os.open(self._path(parts), _CREATE, 0o600)
        except OSError as error:
            raise _error_for(error, parts) from error
        with open(descriptor, "wb", buffering=0) as file:  # noqa: PTH123  (a descriptor)
            for piece in pieces:
                _write(file.fileno(), piece)

    def _path(self, parts: Parts) -> str:
        return "/".join((self._root, *parts))


def _write(descriptor: int, piece: bytes) -> None:
    rest = memoryview(piece)
    while rest:  # a write may be partial when the disk is nearly full
        rest = rest[os.write(descriptor, rest) :]


def _error_for(error: OSError, parts: Parts) -> Exception:
    if error.errno not in _ARCHIVES_FAULT:
        return error
    name = shown("/".join(parts))
    if error.errno in {errno.EEXIST, errno.ENOTDIR, errno.EISDIR}:
        return BundleInvalid(f"the archive holds a name twice: {name}")
    return BundleInvalid(f"the archive holds a name that no file may have: {name}")
