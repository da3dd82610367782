"""Builds small uploads that cost a naive reader far more time or memory than their size suggests.

Each function writes one upload and returns its path. The sizes are parameters: tests use small ones and small limits,
`child_cost.py` measures the full ones.
"""

import lzma
import random
import sqlite3
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from tests.xcresult.archives import building
from tests.xcresult.cache.databases import ONE_CASE, write
from tests.xcresult.hostile.bundles import Bundle, case, record
from tests.xcresult.writer.encoding import encode

from runyard.xcresult.reader.ids import content_id, encode_refs

EMPTY_FRAME = bytes.fromhex("28b52ffd2000010000")
"""A zstd frame without content."""
SKIPPABLE_FRAME = struct.pack("<II", 0x184D2A50, 0)
NO_OBJECT = "0~" + "A" * 86 + "=="


def skippable_frames(path: Path, *, size: int = 20_000_000) -> Path:
    """Write a zstd stream of skippable frames, which have no content."""
    path.write_bytes(EMPTY_FRAME + SKIPPABLE_FRAME * (size // len(SKIPPABLE_FRAME)))
    return path


def empty_object_frames(path: Path, *, size: int = 16_000_000) -> Path:
    """Write a bundle with one object that is stored as millions of empty frames."""
    bundle = Bundle(path.parent / "frames" / "X.xcresult")
    stored = EMPTY_FRAME * (size // len(EMPTY_FRAME))
    object_id = content_id((), (stored,))
    bundle.file(object_id).write_bytes(stored)
    bundle.file(object_id, "refs").write_bytes(encode_refs(()))
    return zipped(path, bundle.finish(case("one", object_id, testStatus="Failure")))


def many_entries(path: Path, *, count: int = 1_000_000) -> Path:
    """Write a ZIP archive with this many empty files, all of which a reader needs."""
    with path.open("wb") as file:
        places = []
        for name in entry_names(count):
            places.append((name, file.tell()))
            file.write(struct.pack("<4s5H3L2H", b"PK\3\4", 20, 0, 0, 0, 0, 0, 0, 0, len(name), 0))
            file.write(name)
        start = file.tell()
        for name, offset in places:
            fixed = (b"PK\1\2", 20, 20, 0, 0, 0, 0, 0, 0, 0, len(name), 0, 0, 0, 0, 0, offset)
            file.write(struct.pack("<4s6H3L5H2L", *fixed) + name)
        end = file.tell()
        file.write(
            struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, end - start, start)
        )
        file.write(struct.pack("<4sLQL", b"PK\6\7", 0, end, 1))
        file.write(
            struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
        )
    return path


def entry_names(count: int) -> Iterator[bytes]:
    for number in range(count):
        yield f"X.xcresult/Data/data.{number}".encode()


def stuffed_database(path: Path, *, rows: int = 1_700_000) -> Path:
    """Write a bundle without a store whose database has millions of rows, each of a few bytes."""
    bundle = Bundle(path.parent / "stuffed" / "X.xcresult")
    # the root names tests that the store lacks, so the database is read
    directory = bundle.finish_with(bundle.store.put(encode(record(NO_OBJECT)).payload))
    tables = {**ONE_CASE, "TestIssues": [{"testCaseRun_fk": 1}]}
    database = write(directory / "database.sqlite3", tables)
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.executemany("INSERT INTO TestIssues VALUES (?)", ((1,) for _ in range(rows)))
    return zipped(path, directory)


def object_bomb(path: Path, *, objects: int = 4_900_000) -> Path:
    """Write a bundle with one typed object that has millions of members and compresses to kilobytes."""
    bundle = Bundle(path.parent / "bomb" / "X.xcresult")
    payload = b"[T[K2:_nV17:ActionTestSummary]K1:a[T[K2:_nV5:Array]" + b"[S1:A]" * objects + b"]]"
    return zipped(path, bundle.finish(case("one", bundle.store.put(payload), testStatus="Failure")))


def distinct_members(path: Path, *, objects: int = 1_450_000) -> Path:
    """Write a bundle with one typed object of small nodes, none of which shares a text with another."""
    bundle = Bundle(path.parent / "distinct" / "X.xcresult")
    payload = distinct_nodes(objects)
    return zipped(path, bundle.finish(case("one", bundle.store.put(payload), testStatus="Failure")))


def distinct_nodes(count: int) -> bytes:
    nodes = b"".join(b"[S1:AK9:%09dV19:%019d]" % (number, number) for number in range(count))
    return b"[T[K2:_nV17:ActionTestSummary]K1:a[T[K2:_nV5:Array]" + nodes + b"]]"


FILTERS = (
    {"id": lzma.FILTER_X86},
    {"id": lzma.FILTER_DELTA, "dist": 1},
    {"id": lzma.FILTER_DELTA, "dist": 1},
    {"id": lzma.FILTER_LZMA2, "preset": 0},
)


def xz_filters(
    path: Path, *, members: int = 76, zeros: int = 128 << 20, pad: int = 40 << 20
) -> Path:
    """Write a tar of zeros in xz streams with a chain of filters and SHA-256, as large as the ratio allows."""
    member = lzma.compress(bytes(zeros), check=lzma.CHECK_SHA256, filters=FILTERS)
    small = building.tarred(building.inside("X.xcresult", building.small_bundle()))
    noise = random.Random(1).randbytes(pad)
    with path.open("wb") as file:
        file.write(lzma.compress(_header("skipped", zeros * members), preset=0))
        for _ in range(members):
            file.write(member)
        file.write(lzma.compress(_header("noise", pad) + noise + small, preset=0))
    return path


def _header(name: str, size: int) -> bytes:
    member = tarfile.TarInfo(name)
    member.size = size
    return member.tobuf(tarfile.GNU_FORMAT)


def zipped(path: Path, bundle: Path) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for each in sorted(bundle.rglob("*")):
            if each.is_file():
                archive.write(each, each.relative_to(bundle.parent))
    return path


ATTACKS: dict[str, Callable[[Path], Path]] = {
    "skippable frames": skippable_frames,
    "empty object frames": empty_object_frames,
    "a million entries": many_entries,
    "a stuffed database": stuffed_database,
    "an object bomb": object_bomb,
    "distinct members": distinct_members,
    "filters of xz": xz_filters,
}
