"""Where an extraction writes: new files below one directory, and nowhere else.

The directory is the extraction's own: made by it, empty, private. Below it only directories that this
sink made and regular files are ever created, each under a name that did not exist (O_EXCL) and that is
no link (O_NOFOLLOW); the components come from `paths.parts_of`. So no path can lead outside, whatever
the archive says. Owners, modes, times and attributes of the archive are ignored.

A name that cannot be created because of the other names in the archive is the archive's fault; a full
disk is not, and stays the OSError that it is.
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
"""A bundle has one in it; around it there may be some, of which we keep those that hold a bundle's files."""
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Sink:
    """The files of one archive, below `root`."""

    def __init__(self, root: Path) -> None:
        self._root = os.path.abspath(root)  # noqa: PTH100  (resolve() would follow links)
        self._made: set[Parts] = {()}

    def wants(self, parts: Parts) -> bool:
        """Whether this file is needed. A bundle's directory is made even if nothing in it is."""
        if needed(parts):
            return True
        bundle = bundle_of(parts)
        if bundle is not None:
            self.directory(bundle)
        return False

    def directory(self, parts: Parts) -> None:
        """Make a directory and those above it, once."""
        if parts in self._made:
            return
        self.directory(parts[:-1])
        if len(self._made) > DIRECTORIES:
            raise TooLarge(f"the archive makes more than {DIRECTORIES} directories")
        try:
            os.mkdir(self._path(parts), 0o700)  # noqa: PTH102  (beside os.open, without Path's cost)
        except OSError as error:
            raise _blamed(error, parts) from error
        self._made.add(parts)

    def file(self, parts: Parts, pieces: Iterable[bytes]) -> None:
        """Write one new file, piece by piece."""
        self.directory(parts[:-1])
        try:
            descriptor = os.open(self._path(parts), _CREATE, 0o600)
        except OSError as error:
            raise _blamed(error, parts) from error
        with open(descriptor, "wb", buffering=0) as file:  # noqa: PTH123  (a descriptor)
            for piece in pieces:
                _write(file.fileno(), piece)

    def _path(self, parts: Parts) -> str:
        return "/".join((self._root, *parts))


def _write(descriptor: int, piece: bytes) -> None:
    rest = memoryview(piece)
    while rest:  # a regular file takes less than all of it when the disk is nearly full
        rest = rest[os.write(descriptor, rest) :]


def _blamed(error: OSError, parts: Parts) -> Exception:
    if error.errno not in _ARCHIVES_FAULT:
        return error
    name = shown("/".join(parts))
    if error.errno in {errno.EEXIST, errno.ENOTDIR, errno.EISDIR}:
        return BundleInvalid(f"the archive holds a name twice: {name}")
    return BundleInvalid(f"the archive holds a name that no file may have: {name}")
