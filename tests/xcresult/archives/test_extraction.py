"""Tests that every supported kind of archive gives the same bundle, and is detected by content and not by name."""

import gzip
import io
import lzma
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.xcresult import fixtures
from tests.xcresult.archives import building

from runyard.xcresult.archives.extracting import extract, needed_bytes
from runyard.xcresult.archives.limits import Limits
from runyard.xcresult.bundle.opening import opened
from runyard.xcresult.errors import UnsupportedFormat
from runyard.xcresult.reader.frames import compress

BUNDLE = building.small_bundle()
WRAPPED = building.inside("some where/Größe.xcresult", BUNDLE)


def listing(root: Path) -> building.Files:
    return {
        str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


def streamed_zip(files: building.Files) -> bytes:
    """A ZIP written to a pipe: sizes come after the data, and the directory has them."""

    class Pipe(io.RawIOBase):
        def __init__(self) -> None:
            self.data = bytearray()

        def writable(self) -> bool:
            return True

        def write(self, data) -> int:
            self.data += data
            return len(data)

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return bytes(pipe.data)


def wide_zip(files: building.Files) -> bytes:
    """A ZIP with the 64-bit fields of archives beyond 4 GiB."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            with archive.open(zipfile.ZipInfo(name), "w", force_zip64=True) as file:
                file.write(data)
    return buffer.getvalue()


def apple(letter: str, *, bare: bool = False) -> Callable[[building.Files], bytes]:
    return lambda files: building.blocks(building.apple_entries(files), letter, bare=bare)


KINDS: dict[str, Callable[[building.Files], bytes]] = {
    "zip deflated": building.zipped,
    "zip stored": lambda files: building.zipped(files, method=zipfile.ZIP_STORED),
    "zip streamed": streamed_zip,
    "zip 64": wide_zip,
    "zip behind a program": lambda files: b"PKSFX" * 9 + building.zipped(files),
    "apple": building.apple_entries,
    "apple of old": lambda files: building.apple_entries(files, magic=b"YAA1"),
    "apple blocks": apple("-"),
    "apple zlib": apple("z"),
    "apple deflate": apple("z", bare=True),
    "apple LZMA": apple("x"),
    "apple LZFSE": apple("e"),
    "tar ustar": lambda files: building.tarred(files, format=tarfile.USTAR_FORMAT),
    "tar GNU": lambda files: building.tarred(files, format=tarfile.GNU_FORMAT),
    "tar pax": building.tarred,
    "tar gzip": lambda files: gzip.compress(building.tarred(files)),
    "tar zstd": lambda files: compress(building.tarred(files)),
    "tar xz": lambda files: lzma.compress(building.tarred(files)),
    "tar gzip in two members": lambda files: b"".join(
        gzip.compress(part) for part in halves(building.tarred(files))
    ),
    "tar zstd in two frames": lambda files: b"".join(
        compress(part) for part in halves(building.tarred(files))
    ),
}


def halves(data: bytes) -> tuple[bytes, bytes]:
    return data[: len(data) // 2], data[len(data) // 2 :]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("files", [BUNDLE, WRAPPED], ids=["bare", "wrapped"])
def test_an_archive_gives_back_the_bundle(kind: str, files: building.Files, tmp_path: Path) -> None:
    upload = tmp_path / "result_bundle.zip"  # every upload has this name, whatever its kind
    upload.write_bytes(KINDS[kind](files))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with opened(upload, scratch=scratch) as directory:
        assert listing(directory) == BUNDLE
        assert directory.is_relative_to(scratch)
        assert (directory.name == "Größe.xcresult") is (files is WRAPPED)
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_needed_space_is_estimated_before_the_extraction(kind: str, tmp_path: Path) -> None:
    upload = tmp_path / "upload"
    upload.write_bytes(KINDS[kind](BUNDLE))
    total = sum(map(len, BUNDLE.values()))
    assert total * 0.9 < needed_bytes(upload) < total * 4.5
    upload.write_bytes(b"nothing of the kind")
    assert needed_bytes(upload) < 100


def test_of_a_bundle_only_what_is_read_is_written(tmp_path: Path) -> None:
    needless = {
        "__MACOSX/X.xcresult/._Info.plist": b"resource fork",
        "__MACOSX/X.xcresult/Info.plist": b"resource fork",
        "X.xcresult/._Info.plist": b"resource fork",
        "X.xcresult/Data/._data.0~a": b"resource fork",
        "X.xcresult/.DS_Store": b"desktop",
        "X.xcresult/notes.txt": b"hello",
        "notes.txt": b"hello",
    }
    kept = building.inside(
        "X.xcresult", {**BUNDLE, "database.sqlite3": b"db", "quarantined_tests.json": b"[]"}
    )
    for index, make in enumerate((building.zipped, building.apple_entries, building.tarred)):
        upload, target = tmp_path / f"upload{index}", tmp_path / f"target{index}"
        upload.write_bytes(make({**needless, **kept}))
        target.mkdir()
        extract(upload, target)
        assert listing(target) == kept


def test_files_are_plain_whatever_the_archive_says(tmp_path: Path) -> None:
    member = tarfile.TarInfo("X.xcresult/Info.plist")
    member.mode, member.uid = 0o6777, 0
    (tmp_path / "upload").write_bytes(building.tarred([(member, b"x")]))
    target = tmp_path / "target"
    target.mkdir()
    extract(tmp_path / "upload", target)
    assert (target / "X.xcresult/Info.plist").stat().st_mode & 0o7777 == 0o600


class Stopped(Exception):
    """An exception raised by the caller's check."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_can_be_stopped_between_two_pieces(kind: str, tmp_path: Path) -> None:
    (tmp_path / "upload").write_bytes(KINDS[kind](WRAPPED))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    calls = []

    def check() -> None:
        calls.append(1)
        if len(calls) == 4:
            raise Stopped

    with (
        pytest.raises(Stopped),
        opened(tmp_path / "upload", scratch=scratch, check=check),
    ):
        raise AssertionError("it was not stopped")
    assert list(scratch.iterdir()) == []


REFUSED = {
    "LZ4": b"pbz4" + bytes(100),
    "LZBITMAP": b"pbzb" + bytes(100),
    "unknown compression": b"pbz?" + bytes(100),
    "encrypted Apple Archive": b"AEA1" + bytes(100),
    "bzip2": b"BZh9" + bytes(100),
    "7-Zip": b"7z\xbc\xaf\x27\x1c" + bytes(100),
    "RAR": b"Rar!\x1a\x07" + bytes(100),
    "not a known kind of archive": b"hello" * 100,
    "contains no tar archive": gzip.compress(b"hello" * 1000),
    "compression method bzip2": building.zipped(BUNDLE, method=zipfile.ZIP_BZIP2),
    "compression method LZMA": building.zipped(BUNDLE, method=zipfile.ZIP_LZMA),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_read_is_refused_by_name(what: str, tmp_path: Path) -> None:
    (tmp_path / "upload").write_bytes(REFUSED[what])
    with pytest.raises(UnsupportedFormat, match=what) as caught, opened(tmp_path / "upload"):
        pass
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_memory_does_not_grow_with_an_entry(tmp_path: Path) -> None:
    data = bytes(24 << 20)
    limits = Limits(ratio_floor=1 << 30)
    for index, make in enumerate(
        (building.zipped, apple("e"), lambda f: compress(building.tarred(f)))
    ):
        (tmp_path / "upload").write_bytes(make({"Data/data.x": data}))
        target = tmp_path / f"target{index}"
        target.mkdir()
        tracemalloc.start()
        extract(tmp_path / "upload", target, limits=limits)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert (target / "Data/data.x").stat().st_size == len(data)
        assert peak < 4 << 20


@pytest.mark.parametrize(
    "name", ["tuist__test", "a7ex__session_level_failure", "kishi__TestResults#669"]
)
def test_a_real_bundle_is_the_same_from_every_archive(name: str, tmp_path: Path) -> None:
    real = listing(fixtures.bundle(name))
    for index, make in enumerate((building.apple_entries, apple("e"), building.tarred)):
        (tmp_path / "upload").write_bytes(make(building.inside("R.xcresult", real)))
        target = tmp_path / f"target{index}"
        target.mkdir()
        extract(tmp_path / "upload", target)
        assert listing(target / "R.xcresult") == real
