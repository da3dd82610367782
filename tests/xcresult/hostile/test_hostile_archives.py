"""Tests malicious archives: each is refused with a typed error, and nothing is written outside scratch."""

import errno
import gzip
import io
import lzma
import os
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.xcresult.archives import building
from tests.xcresult.hostile import tracing

from runyard.xcresult.archives import sink
from runyard.xcresult.archives.extracting import needed_bytes
from runyard.xcresult.archives.limits import MIB, Limits
from runyard.xcresult.bundle.opening import opened
from runyard.xcresult.errors import (
    BundleInvalid,
    TooLarge,
    UnsupportedFormat,
    XcresultError,
    XcresultNotFound,
)
from runyard.xcresult.reader.frames import compress

BUNDLE = building.inside("X.xcresult", building.small_bundle())
SMALL = Limits(
    total_bytes=64 * MIB,
    entry_bytes=32 * MIB,
    entries=200,
    ratio=50,
    ratio_floor=4 * MIB,
    block_bytes=4 * MIB,
)


@contextmanager
def nothing_outside(tmp_path: Path) -> Iterator[Path]:
    """A scratch directory; at the end it is empty, and nothing was written anywhere else."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    before = tracing.tree(tmp_path)
    with tracing.written() as written:
        yield scratch
    assert [path for path in written if not Path(path).is_relative_to(scratch)] == []
    assert tracing.tree(tmp_path) == before


def refused(
    tmp_path: Path, data: bytes, error: type[XcresultError], match: str, limits: Limits = SMALL
) -> None:
    upload = tmp_path / "upload"
    upload.write_bytes(data)
    with nothing_outside(tmp_path) as scratch:
        with (
            pytest.raises(error, match=match) as caught,
            opened(upload, scratch=scratch, limits=limits),
        ):
            pass
        assert type(caught.value) is error
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


NAMES = {
    "up": ("../Info.plist", "leaves it"),
    "up in the middle": ("X.xcresult/../../../Info.plist", "leaves it"),
    "up into the store": ("X.xcresult/Data/../../data.x", "leaves it"),
    "absolute": ("/tmp/runyard-absolute/Info.plist", "absolute path"),
    "a drive": ("C:/Info.plist", "absolute path"),
    "backslashes": ("..\\..\\Info.plist", "backslash"),
    "needless but up": ("../../etc/cron.d/job", "leaves it"),
    "far too long a component": ("a" * 300 + "/Info.plist", "no file may have"),
}

MAKERS: dict[str, Callable[[dict[str, bytes]], bytes]] = {
    "zip": building.zipped,
    "apple": building.apple_entries,
    "apple LZFSE": lambda files: building.blocks(building.apple_entries(files)),
    "tar": building.tarred,
    "tar GNU": lambda files: building.tarred(files, format=tarfile.GNU_FORMAT),
    "tar.zst": lambda files: compress(building.tarred(files)),
}


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("name", NAMES)
def test_no_name_leads_out_of_the_scratch_directory(maker: str, name: str, tmp_path: Path) -> None:
    text, match = NAMES[name]
    refused(tmp_path, MAKERS[maker]({**BUNDLE, text: b"evil"}), BundleInvalid, match)


def test_a_name_with_nul_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, building.entry(b"Info.plist\0.txt", b"x"), BundleInvalid, "NUL")


@pytest.mark.parametrize("maker", MAKERS)
def test_absurd_paths_are_too_large(maker: str, tmp_path: Path) -> None:
    make = MAKERS[maker]
    refused(tmp_path, make({"a/" * 40 + "Info.plist": b"x"}), TooLarge, "path_depth")
    (tmp_path / "scratch").rmdir()
    refused(tmp_path, make({"a" * 200 + "/b" * 900 + "/Info.plist": b"x"}), TooLarge, "path_bytes")


@pytest.mark.parametrize("maker", ["zip", "apple", "tar"])
def test_a_name_that_comes_twice_is_refused(maker: str, tmp_path: Path) -> None:
    pairs = [("Info.plist", b"one"), ("./Info.plist", b"two")]
    make = {
        "zip": building.zipped,
        "apple": lambda pairs: b"".join(building.entry(name, data) for name, data in pairs),
        "tar": building.tarred,
    }[maker]
    refused(tmp_path, make(pairs), BundleInvalid, "twice")


def test_a_file_cannot_be_a_directory_too(tmp_path: Path) -> None:
    refused(
        tmp_path,
        building.tarred([("Info.plist", b"one"), ("Info.plist/Info.plist", b"two")]),
        BundleInvalid,
        "twice",
    )


def link_in_zip(mode: int) -> bytes:
    info = zipfile.ZipInfo("X.xcresult/Data")
    info.external_attr = (mode | 0o777) << 16
    return building.zipped([(info, b"/etc"), *BUNDLE.items()])


def special_in_tar(kind: bytes) -> bytes:
    member = tarfile.TarInfo("X.xcresult/Data")
    member.type, member.linkname = kind, "/etc"
    return building.tarred([(member, b""), *BUNDLE.items()])


LINKS = {
    "zip symlink": link_in_zip(stat.S_IFLNK),
    "zip pipe": link_in_zip(stat.S_IFIFO),
    "tar symlink": special_in_tar(tarfile.SYMTYPE),
    "tar hard link": special_in_tar(tarfile.LNKTYPE),
    "tar pipe": special_in_tar(tarfile.FIFOTYPE),
    "tar device": special_in_tar(tarfile.CHRTYPE),
    "apple symlink": building.entry("X.xcresult/Data", kind="L") + building.apple_entries(BUNDLE),
    "apple device": building.entry("X.xcresult/Data", kind="B"),
}


@pytest.mark.parametrize("what", LINKS)
def test_links_and_devices_are_refused(what: str, tmp_path: Path) -> None:
    refused(tmp_path, LINKS[what], BundleInvalid, "link|pipe|device|no regular file")


# ---------------------------------------------------------------------------------------------- bombs

ZEROS = bytes(8 * MIB)


def overlapping_zip() -> bytes:
    """Build a ZIP with many entries for the same deflated data."""
    data = building.noise(5000)
    whole = bytearray(building.zipped({"Data/data.a": data}, method=zipfile.ZIP_STORED))
    at = whole.index(b"PK\x01\x02")
    central, local = bytes(whole[at : whole.index(b"PK\x05\x06")]), bytes(whole[:at])
    names = [f"Data/data.{letter}".encode() for letter in "abcdefgh"]
    header = 30 + len(names[0])
    offsets = [header * index for index in range(len(names))]
    body = b""
    for index, name in enumerate(names):  # the headers that follow are declared as its extra field
        rest = header * (len(names) - index - 1)
        body += local[:28] + struct.pack("<H", rest) + name
    directory = b""
    for name, offset in zip(names, offsets, strict=True):
        entry = bytearray(central)
        entry[46:] = name
        entry[42:46] = struct.pack("<L", offset)
        directory += bytes(entry)
    body += data
    end = struct.pack(
        "<4s4H2LH", b"PK\x05\x06", 0, 0, len(names), len(names), len(directory), len(body), 0
    )
    return body + directory + end


def lying_zip(size: int) -> bytes:
    """Build an entry with a wrong size in both headers."""
    whole = bytearray(building.zipped({"Info.plist": bytes(3 * MIB)}))
    central = whole.index(b"PK\x01\x02")
    struct.pack_into("<L", whole, 22, size)
    struct.pack_into("<L", whole, central + 24, size)
    return bytes(whole)


def apple_block(letter: str, raw: int, packed: bytes) -> bytes:
    return b"pbz" + letter.encode() + struct.pack(">QQQ", 1 << 22, raw, len(packed)) + packed


BOMBS: dict[str, tuple[bytes, type[XcresultError], str]] = {
    "zip by ratio": (building.zipped({"Data/data.a": ZEROS}), TooLarge, "ratio"),
    "zip with a huge declared size": (lying_zip(1 << 30), TooLarge, "entry_bytes"),
    "zip with a declared size that is too small": (
        lying_zip(1000),
        TooLarge,
        "larger than its declared size",
    ),
    "zip with a declared size that is too large": (
        lying_zip(4 * MIB),
        BundleInvalid,
        "wrong checksum",
    ),
    "zip with entries that overlap": (overlapping_zip(), BundleInvalid, "overlap"),
    "zip with absurdly many entries": (
        building.zipped({f"{n}": b"" for n in range(300)}),
        TooLarge,
        "entries",
    ),
    "tar with absurdly many entries": (
        building.tarred({f"{n}": b"" for n in range(300)}),
        TooLarge,
        "entries",
    ),
    "apple with absurdly many entries": (
        building.apple_entries({f"{n}": b"" for n in range(300)}),
        TooLarge,
        "entries",
    ),
    "gzip by ratio": (
        gzip.compress(building.tarred({"Data/data.a": ZEROS})),
        TooLarge,
        "ratio",
    ),
    "zstd by ratio": (compress(building.tarred({"Data/data.a": ZEROS})), TooLarge, "ratio"),
    "xz by ratio": (lzma.compress(building.tarred({"Data/data.a": ZEROS})), TooLarge, "ratio"),
    "zstd in a needless file": (compress(building.tarred({"needless": ZEROS})), TooLarge, "ratio"),
    "apple by ratio": (
        building.blocks(building.apple_entries({"needless": ZEROS})),
        TooLarge,
        "ratio",
    ),
    "apple block of absurd size": (apple_block("e", 1 << 60, b"bvx$"), TooLarge, "block_bytes"),
    "apple block larger than declared, LZFSE": (
        apple_block("e", 4096, building.ENCODERS["e"](ZEROS)),
        BundleInvalid,
        "its size|larger than",
    ),
    "apple block larger than declared, zlib": (
        apple_block("z", 100_000, zlib.compress(ZEROS)),
        BundleInvalid,
        "its size",
    ),
    "apple block larger than declared, LZMA": (
        apple_block("x", 100_000, lzma.compress(ZEROS)),
        BundleInvalid,
        "its size",
    ),
    "tar with an absurd size": (
        building.tarred({"Info.plist": b"x"})[:124] + b"\x80" + b"\xff" * 11,
        UnsupportedFormat,
        "not a known kind of archive",
    ),
}


@pytest.mark.parametrize("what", BOMBS)
def test_a_bomb_is_stopped_by_a_limit(what: str, tmp_path: Path) -> None:
    data, error, match = BOMBS[what]
    refused(tmp_path, data, error, match)


def test_the_estimated_space_never_exceeds_the_limits(tmp_path: Path) -> None:
    (tmp_path / "upload").write_bytes(lying_zip((1 << 32) - 2))
    assert needed_bytes(tmp_path / "upload", limits=SMALL) == SMALL.ratio_floor
    (tmp_path / "upload").write_bytes(apple_block("e", 1 << 60, b"bvx$"))
    assert needed_bytes(tmp_path / "upload", limits=SMALL) == SMALL.ratio_floor


@pytest.mark.slow
def test_a_forest_of_directories_is_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "DIRECTORIES", 50)
    forest = {f"{n}/a/b/c/Info.plist": b"" for n in range(15)}
    for index, make in enumerate(MAKERS.values()):
        folder = tmp_path / str(index)
        folder.mkdir()
        refused(folder, make(forest), TooLarge, "50 directories")


def test_the_total_is_bounded_too(tmp_path: Path) -> None:
    limits = Limits(total_bytes=1_000_000)
    for index, make in enumerate(MAKERS.values()):
        folder = tmp_path / str(index)
        folder.mkdir()
        refused(folder, make(BUNDLE), TooLarge, "total_bytes", limits)


@pytest.mark.slow
def test_an_lzfse_block_cannot_take_more_memory_than_its_size(tmp_path: Path) -> None:
    """The package's own function would grow its buffer without a limit."""
    packed = building.ENCODERS["e"](bytes(32 * MIB))
    assert len(packed) < 100_000
    refused(tmp_path, apple_block("e", 100_000, packed), BundleInvalid, "its size")


# ------------------------------------------------------------------------------------------ damage


@pytest.mark.parametrize("maker", MAKERS)
def test_an_upload_that_was_cut_short_is_never_a_smaller_bundle(maker: str, tmp_path: Path) -> None:
    whole = MAKERS[maker](BUNDLE)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    for kept in (0, 1, 3, 5, 11, 13, 27, 29, 300, 511, 513, len(whole) // 2, len(whole) - 2000):
        (tmp_path / "upload").write_bytes(whole[:kept])
        with (
            pytest.raises((BundleInvalid, UnsupportedFormat, XcresultNotFound)) as caught,
            opened(tmp_path / "upload", scratch=scratch),
        ):
            pass
        if kept >= 513:
            assert type(caught.value) is BundleInvalid
        assert list(scratch.iterdir()) == []


def encrypted_zip() -> bytes:
    whole = bytearray(building.zipped(BUNDLE))
    for magic, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = -1
        while (at := whole.find(magic, at + 1)) >= 0:
            whole[at + offset] |= 1
    return bytes(whole)


DAMAGED: dict[str, tuple[bytes, type[XcresultError], str]] = {
    "an encrypted zip": (encrypted_zip(), UnsupportedFormat, "encrypted"),
    "a zip whose two headers differ": (
        building.zipped({"Info.plist": b"x"}).replace(b"Info.plist", b"Evil.plist", 1),
        BundleInvalid,
        "two headers",
    ),
    "a zip with a flipped bit": (
        building.zipped({"Info.plist": b"A" * 50}, method=0).replace(b"AAAA", b"AAAB", 1),
        BundleInvalid,
        "wrong checksum",
    ),
    "a zip in parts": (
        building.zipped(BUNDLE)[:-18] + b"\1\0\1\0" + building.zipped(BUNDLE)[-14:],
        UnsupportedFormat,
        "several parts",
    ),
    "an empty zip": (building.zipped({}), XcresultNotFound, "neither"),
    "an empty upload": (b"", XcresultNotFound, "empty"),
    "a tar without a bundle": (building.tarred({"a": b"x"}), XcresultNotFound, "neither"),
    "a tar with a wrong sum": (
        building.tarred({"a": b"x", "b": b"y"}).replace(b"b\0\0\0", b"c\0\0\0", 1),
        BundleInvalid,
        "sum",
    ),
    "garbage after gzip": (
        gzip.compress(building.tarred(BUNDLE)[:600]) + b"garbage",
        BundleInvalid,
        "damaged",
    ),
    "an Apple field of an unknown kind": (
        b"AA01" + struct.pack("<H", 10) + b"TYP?",
        BundleInvalid,
        "unknown kind",
    ),
    "an Apple header shorter than itself": (b"AA01\x05\0", BundleInvalid, "no entry"),
    "an Apple header that is cut": (
        b"AA01" + struct.pack("<H", 12) + b"PATP\xff\xff",
        BundleInvalid,
        "cut short",
    ),
    "an Apple entry with two paths": (
        b"AA01" + struct.pack("<H", 18) + b"PATP\0\0PATP\0\0",
        BundleInvalid,
        "two fields",
    ),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_damage_is_named_in_one_line(what: str, tmp_path: Path) -> None:
    data, error, match = DAMAGED[what]
    refused(tmp_path, data, error, match)


def sparse_tar() -> bytes:
    member = tarfile.TarInfo("Info.plist")
    member.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}
    return building.tarred([(member, b"x")])


def long_pax() -> bytes:
    member = tarfile.TarInfo("pax")
    member.type = b"x"
    member.size = 1 << 33
    return member.tobuf(tarfile.GNU_FORMAT) + bytes(512)


def test_headers_of_tar_are_bounded(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    refused(tmp_path, sparse_tar(), UnsupportedFormat, "sparse")
    refused(tmp_path / "a", long_pax(), TooLarge, "extended header")


def test_a_chain_of_headers_is_read_without_recursion(tmp_path: Path) -> None:
    member = tarfile.TarInfo("long")
    member.type, member.size = b"L", 4
    link = member.tobuf(tarfile.GNU_FORMAT) + b"abc\0".ljust(512, b"\0")
    refused(tmp_path, link * 5000, TooLarge, "entries")
    (tmp_path / "a").mkdir()
    refused(tmp_path / "a", link * 5000, BundleInvalid, "cut short", Limits())


# --------------------------------------------------------------------------------------- the disk


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("maker", MAKERS)
def test_a_full_disk_is_not_an_error_of_the_archive(
    maker: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "upload").write_bytes(MAKERS[maker](BUNDLE))
    real, count = os.write, iter(range(1000))

    def full(descriptor: int, data: bytes) -> int:
        if next(count) == 2:
            raise OSError(number, os.strerror(number))
        return real(descriptor, data)

    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("os.write", full)
    with (
        pytest.raises(OSError, match=os.strerror(number)) as caught,
        opened(tmp_path / "upload", scratch=scratch),
    ):
        pass
    monkeypatch.undo()
    assert caught.value.errno == number
    assert list(scratch.iterdir()) == []


def test_a_write_that_takes_only_a_part_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "upload").write_bytes(building.zipped(BUNDLE))
    real = os.write
    monkeypatch.setattr("os.write", lambda descriptor, data: real(descriptor, data[:1000]))
    with opened(tmp_path / "upload", scratch=tmp_path) as directory:
        found = {
            f"X.xcresult/{path.relative_to(directory)}": path.read_bytes()
            for path in directory.rglob("*")
            if path.is_file()
        }
    assert found == BUNDLE


def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(XcresultNotFound, match="neither a file"), opened(tmp_path / "pipe"):
        pass
    with pytest.raises(XcresultNotFound, match="does not exist"), opened(tmp_path / "absent"):
        pass


def test_the_tracing_sees_a_write_outside(tmp_path: Path) -> None:
    """Check that the tracing of this file detects a violation."""
    with (
        pytest.raises(AssertionError),
        nothing_outside(tmp_path),
        (tmp_path / "outside").open("wb") as file,
    ):
        file.write(b"x")
    with tracing.written() as found:
        os.close(os.open(tmp_path / "low", os.O_WRONLY | os.O_CREAT))
        (tmp_path / "directory").mkdir()
        with io.open(tmp_path / "low", "rb"):  # noqa: UP020  (reading is no writing)
            pass
    assert found == [str(tmp_path / "low"), str(tmp_path / "directory")]
