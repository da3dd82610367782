"""Extracts an upload to a directory: detects the kind of archive and writes the files that the reader needs.

The kind is detected by the first bytes, never by the name: uploads are named `.zip` whatever they are. Memory does not
depend on the size of the archive or of its files.
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
from runyard.xcresult.archives.meter import Check, Meter, no_check
from runyard.xcresult.archives.paths import needed, parts_of
from runyard.xcresult.archives.pieces import Pieces
from runyard.xcresult.archives.sink import Sink
from runyard.xcresult.archives.streams import gzip_pieces, raw_pieces, xz_pieces, zstd_pieces
from runyard.xcresult.archives.tars import BLOCK, extract_tar, is_header
from runyard.xcresult.archives.zips import entries, extract_zip, find_directory
from runyard.xcresult.errors import (
    TooLarge,
    UnsupportedFormat,
    XcresultError,
    XcresultNotFound,
)
from runyard.xcresult.reader.budget import Budget

CLUSTER = 4096
"""Disk space of a file is a multiple of this."""
GUESS = 4
"""Assumed ratio of extracted to archived size, if no header has the size."""

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
    check: Check = no_check,
    budget: Budget | None = None,
) -> None:
    """Write the needed files of an archive below `to`, an empty directory owned by the caller.

    `check` is called between pieces and may raise to end the extraction. `budget` is that of the whole reading. Raises
    XcresultError for a bad archive, OSError for problems of the disk.
    """
    with open_archive(path) as file:
        size = os.fstat(file.fileno()).st_size
        meter = Meter(limits, archive_bytes=size, check=check, budget=budget)
        sink = Sink(to)
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
    """The kind of a file, by its first bytes; rewinds the file."""
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
    raise UnsupportedFormat(f"this is not a known kind of archive: {_READ}")


def needed_bytes(path: Path, *, limits: Limits = Limits()) -> int:  # noqa: B008  (frozen)
    """Estimate the disk space that the extraction needs, from the archive's headers if they have sizes.

    Headers may be wrong, so the estimate only decides whether to begin; the limits stop an extraction, and the estimate
    never exceeds them. TooLarge is raised at once, before anything is written; other errors are ignored here and raised
    by the extraction.
    """
    with open_archive(path) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            needed = _needed(file, kind_of(file), size, limits)
        except TooLarge:
            raise
        except XcresultError:
            needed = GUESS * size
        return min(needed, limits.total_bytes, max(limits.ratio_floor, limits.ratio * size))


def _needed(file: BinaryIO, kind: str, size: int, limits: Limits) -> int:
    if kind == "zip":
        total, meter = 0, Meter(limits)
        for number, entry in enumerate(entries(file, find_directory(file)), start=1):
            meter.announced(number)
            if not entry.is_directory and needed(parts_of(entry.name, limits)):
                total += -(-entry.size // CLUSTER) * CLUSTER
        return total
    if kind == "apple blocks":
        file.seek(12)
        total = 0
        for raw, stored in islice(block_sizes(file), limits.entries):
            total += raw
            file.seek(stored, os.SEEK_CUR)
        return total
    if kind == "gzip":
        file.seek(max(0, size - 4))
        declared = int.from_bytes(file.read(4), "little")  # of the last member, modulo 4 GiB
        return declared if size < declared < 100 * size else GUESS * size
    return size if kind in {"apple", "tar"} else GUESS * size


def open_archive(path: Path) -> BinaryIO:
    """Open the upload for reading; only a regular file, because a pipe could block."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise XcresultNotFound(f"{path} does not exist") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise XcresultNotFound(f"{path} is neither a file nor a directory")
    return open(descriptor, "rb")  # noqa: PTH123  (a descriptor, not a path)


def _expect_tar(stream: Pieces, kind: str) -> None:
    if not is_header(stream.peek(BLOCK)):
        raise UnsupportedFormat(f"a {kind} file that contains no tar archive: {_READ}")
