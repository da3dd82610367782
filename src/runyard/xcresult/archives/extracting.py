"""From an upload to a directory: what kind of archive it is, and what of it is written where.

The kind is told by the first bytes, never by the name: an upload is called `.zip` whatever it is. Memory
does not depend on the size of the archive or of its files.
"""

import os
import stat
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from runyard.xcresult.archives.apple import (
    BLOCKS_MAGIC,
    ENTRY_MAGICS,
    block_pieces,
    block_sizes,
    extract_apple,
)
from runyard.xcresult.archives.limits import Limits
from runyard.xcresult.archives.meter import Check, Meter, unhindered
from runyard.xcresult.archives.paths import needed, parts_of
from runyard.xcresult.archives.pieces import Pieces
from runyard.xcresult.archives.sink import Sink
from runyard.xcresult.archives.streams import gzip_pieces, raw_pieces, xz_pieces, zstd_pieces
from runyard.xcresult.archives.tars import BLOCK, extract_tar, is_header
from runyard.xcresult.archives.zips import entries, extract_zip, find_directory
from runyard.xcresult.errors import UnsupportedFormat, XcresultError, XcresultNotFound

CLUSTER = 4096
"""What a file takes on a disk is a multiple of this."""
GUESS = 4
"""How much larger than its archive a bundle is thought to be where no header says it."""

_COMPRESSED_TAR: dict[str, Callable[[BinaryIO, Meter], Iterator[bytes]]] = {
    "gzip": gzip_pieces,
    "zstd": zstd_pieces,
    "xz": xz_pieces,
}
_KINDS = (
    (b"PK", "zip"),
    (BLOCKS_MAGIC, "apple blocks"),
    *((magic, "apple") for magic in ENTRY_MAGICS),
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\xfd7zXZ\0", "xz"),
)
_REFUSED = (
    (b"AEA1", "an encrypted Apple Archive"),
    (b"BZh", "a bzip2 file"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"Rar!", "a RAR archive"),
    (b"xar!", "a xar archive"),
    (b"\x04\x22\x4d\x18", "an LZ4 file"),
    (b"\x1f\x9d", "a compress file"),
    (b"bplist", "a property list"),
    (b"SQLite format 3", "a database"),
)
_READ = "ZIP, Apple Archive and tar (also gzip, zstd or xz) are read"


def extract(
    path: Path,
    to: Path,
    *,
    limits: Limits = Limits(),  # noqa: B008  (frozen)
    check: Check = unhindered,
) -> None:
    """Write what the reader needs of an archive below `to`, an empty directory of the caller's own.

    `check` is called between pieces; what it raises ends the extraction. Raises XcresultError for what
    is wrong with the archive, OSError for what is wrong with the disk.
    """
    with open_archive(path) as file:
        size = os.fstat(file.fileno()).st_size
        sink, meter = Sink(to), Meter(limits, archive_bytes=size, check=check)
        kind = kind_of(file)
        if kind == "zip":
            extract_zip(file, sink, meter)
        elif kind == "apple":
            extract_apple(Pieces(raw_pieces(file, meter)), sink, meter)
        elif kind == "apple blocks":
            extract_apple(Pieces(block_pieces(file, meter)), sink, meter)
        elif kind == "tar":
            extract_tar(Pieces(raw_pieces(file, meter)), sink, meter)
        else:
            stream = Pieces(_COMPRESSED_TAR[kind](file, meter))
            _expect_tar(stream, kind)
            extract_tar(stream, sink, meter)


def kind_of(file: BinaryIO) -> str:
    """What a file is, by its first bytes; the file is left at its start."""
    head = file.read(BLOCK)
    file.seek(0)
    if not head:
        raise XcresultNotFound("the upload is empty")
    if is_header(head):
        return "tar"
    for magic, kind in _KINDS:
        if head.startswith(magic):
            return kind
    for magic, what in _REFUSED:
        if head.startswith(magic):
            raise UnsupportedFormat(f"this is {what}: {_READ}")
    raise UnsupportedFormat(f"this is no archive of a kind that is known: {_READ}")


def needed_bytes(path: Path, *, limits: Limits = Limits()) -> int:  # noqa: B008  (frozen)
    """About how much disk the extraction takes: by the archive's headers, where they say it.

    Headers may lie, so this is for asking whether to begin; the limits are for when to stop, and never is
    more needed than they let through. What is wrong with the archive is left for the extraction to say.
    """
    with open_archive(path) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            told = _needed(file, kind_of(file), size, limits)
        except XcresultError:
            told = GUESS * size
        return min(told, limits.total_bytes, max(limits.ratio_floor, limits.ratio * size))


def _needed(file: BinaryIO, kind: str, size: int, limits: Limits) -> int:
    if kind == "zip":
        total = 0
        for entry in islice(entries(file, find_directory(file)), limits.entries):
            if not entry.is_directory and needed(parts_of(entry.name, limits)):
                total += -(-entry.size // CLUSTER) * CLUSTER
        return total
    if kind == "apple blocks":
        file.seek(12)
        total = 0
        for raw, stored in block_sizes(file):
            total += raw
            file.seek(stored, os.SEEK_CUR)
        return total
    if kind == "gzip":
        file.seek(max(0, size - 4))
        told = int.from_bytes(file.read(4), "little")  # of the last member, modulo 4 GiB
        return told if size < told < 100 * size else GUESS * size
    return size if kind in {"apple", "tar"} else GUESS * size


def open_archive(path: Path) -> BinaryIO:
    """The upload, opened for reading: a regular file, so that no pipe can keep us waiting."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise XcresultNotFound(f"there is nothing at {path}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise XcresultNotFound(f"neither a file nor a directory: {path}")
    return open(descriptor, "rb")  # noqa: PTH123  (a descriptor, not a path)


def _expect_tar(stream: Pieces, kind: str) -> None:
    if not is_header(stream.peek(BLOCK)):
        raise UnsupportedFormat(f"a {kind} file that holds no tar archive: {_READ}")
