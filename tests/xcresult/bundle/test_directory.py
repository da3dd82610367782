"""Tests reading a bundle's files: links are not followed, damage is reported, Info.plist is checked first."""

import os
import plistlib
from pathlib import Path

import pytest

from runyard.xcresult.archives.limits import Limits
from runyard.xcresult.bundle.directory import Directory
from runyard.xcresult.errors import BundleInvalid, TooLarge, UnsupportedFormat
from runyard.xcresult.reader.frames import compress
from runyard.xcresult.reader.ids import content_id, encode_refs
from runyard.xcresult.reader.objects import ObjectProblem

GOOD: dict[str, object] = {
    "version": {"major": 3, "minor": 56},
    "storage": {"backend": "fileBacked2", "compression": "standard"},
    "rootId": {"hash": content_id((), [b"root"])},
}


def store(path: Path, payload: bytes, refs: tuple[str, ...] = ()) -> str:
    stored = compress(payload)
    object_id = content_id(refs, [stored])
    data = path / "Data"
    data.mkdir(exist_ok=True)
    (data / f"data.{object_id}").write_bytes(stored)
    (data / f"refs.{object_id}").write_bytes(encode_refs(refs))
    return object_id


def test_an_object_is_read_whole_and_in_pieces(tmp_path: Path) -> None:
    child = store(tmp_path, b"child")
    parent = store(tmp_path, b"parent" * 100_000, (child,))
    objects = Directory(tmp_path)
    assert objects.read(parent) == b"".join(objects.stream(parent)) == b"parent" * 100_000
    assert objects.refs(parent) == (child,)
    assert objects.refs(child) == ()
    assert sorted(objects.ids()) == sorted((child, parent))
    assert objects.has(child)


def test_an_object_without_references_needs_no_refs_file(tmp_path: Path) -> None:
    object_id = store(tmp_path, b"x")
    (tmp_path / "Data" / f"refs.{object_id}").unlink()
    objects = Directory(tmp_path)
    assert objects.refs(object_id) == ()
    assert not objects.has_refs(object_id)


def test_a_missing_object_is_an_error_of_that_object(tmp_path: Path) -> None:
    objects = Directory(tmp_path)
    object_id = content_id((), [b""])
    assert not objects.has(object_id)
    assert list(objects.ids()) == []
    for read in (objects.read, lambda i: list(objects.stream(i))):
        with pytest.raises(ObjectProblem, match="missing"):
            read(object_id)


@pytest.mark.parametrize("name", ["../../etc/passwd", "0~x/../../../secret", ""])
def test_an_id_that_is_a_path_is_never_opened(tmp_path: Path, name: str) -> None:
    objects = Directory(tmp_path)
    assert not objects.has(name)
    for read in (objects.read, objects.refs, lambda i: list(objects.stream(i))):
        with pytest.raises(ObjectProblem, match="not an object id"):
            read(name)


@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
def test_a_data_file_that_is_no_file_is_a_problem_of_that_object(tmp_path: Path, kind: str) -> None:
    object_id = store(tmp_path, b"x")
    path = tmp_path / "Data" / f"data.{object_id}"
    path.unlink()
    secret = tmp_path / "secret"
    secret.write_text("secret")
    if kind == "link":
        path.symlink_to(secret)
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
    objects = Directory(tmp_path)
    assert not objects.has(object_id)
    for read in (objects.read, lambda i: list(objects.stream(i))):
        with pytest.raises(ObjectProblem):
            read(object_id)


def test_damage_names_the_object(tmp_path: Path) -> None:
    object_id = store(tmp_path, b"text" * 1000)
    path = tmp_path / "Data" / f"data.{object_id}"
    path.write_bytes(path.read_bytes()[:-3])
    (tmp_path / "Data" / f"refs.{object_id}").write_bytes(b"\x07")
    objects = Directory(tmp_path)
    for read in (objects.read, objects.refs, lambda i: list(objects.stream(i))):
        with pytest.raises(ObjectProblem) as caught:
            read(object_id)
        assert caught.value.object_id == object_id


def test_limits_are_held(tmp_path: Path) -> None:
    big = store(tmp_path, b"\0" * 1_000_000)
    store(tmp_path, b"second")
    with pytest.raises(TooLarge, match="object_bytes"):
        Directory(tmp_path, limits=Limits(object_bytes=1000)).read(big)
    with pytest.raises(TooLarge, match="entries"):
        list(Directory(tmp_path, limits=Limits(entries=1)).ids())


def described(tmp_path: Path, info: object) -> Directory:
    (tmp_path / "Info.plist").write_bytes(info if isinstance(info, bytes) else plistlib.dumps(info))
    return Directory(tmp_path)


def test_info_says_the_format_and_the_root(tmp_path: Path) -> None:
    info = described(tmp_path, GOOD | {"directoryImportMode": "concurrent"}).info()
    assert (info.major, info.minor) == (3, 56)
    assert info.root_id == content_id((), [b"root"])


@pytest.mark.parametrize(
    ("info", "error"),
    [
        (b"", BundleInvalid),
        (b"\0\1garbage", BundleInvalid),
        (b"bplist00garbage", BundleInvalid),
        (b"<plist><dict><key>a</key>", BundleInvalid),
        (b"x" * (2 << 20), BundleInvalid),
        ([], BundleInvalid),
        ({}, BundleInvalid),
        (GOOD | {"version": {"major": "3"}}, BundleInvalid),
        (GOOD | {"rootId": {"hash": "../../etc/passwd"}}, BundleInvalid),
        (GOOD | {"rootId": {}}, BundleInvalid),
        (GOOD | {"version": {"major": 4, "minor": 0}}, UnsupportedFormat),
        (GOOD | {"storage": {"backend": "other", "compression": "standard"}}, UnsupportedFormat),
        (GOOD | {"storage": {"backend": "fileBacked2", "compression": "x"}}, UnsupportedFormat),
    ],
)
def test_a_foreign_or_damaged_info_is_refused(
    tmp_path: Path, info: object, error: type[Exception]
) -> None:
    with pytest.raises(error):
        described(tmp_path, info).info()


def test_without_info_it_is_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(BundleInvalid, match=r"Info\.plist"):
        Directory(tmp_path).info()
    (tmp_path / "Info.plist").symlink_to("/etc/passwd")
    with pytest.raises(BundleInvalid, match=r"Info\.plist"):
        Directory(tmp_path).info()


def test_objects_that_are_too_large_are_decoded_for_a_while_only(tmp_path: Path) -> None:
    ids = [store(tmp_path, bytes([number]) * 1_000_000) for number in range(5)]
    good = store(tmp_path, b"good")
    objects = Directory(
        tmp_path, limits=Limits(object_bytes=500_000, ratio=50, ratio_floor=1_200_000)
    )
    for object_id in ids[:2]:
        with pytest.raises(TooLarge, match="object_bytes"):
            objects.read(object_id)
    assert objects.read(good) == b"good"
    with pytest.raises(TooLarge, match="ratio"):
        objects.read(ids[2])
    with pytest.raises(TooLarge, match="ratio"):
        objects.read(good)


def test_many_objects_that_grow_are_a_bomb_too(tmp_path: Path) -> None:
    ids = [store(tmp_path, bytes([number]) * 1_000_000) for number in range(5)]
    objects = Directory(tmp_path, limits=Limits(ratio=50, ratio_floor=3_000_000))
    for object_id in ids[:3]:
        objects.read(object_id)
    with pytest.raises(TooLarge, match="ratio"):
        objects.read(ids[3])


def test_other_bytes_under_a_known_id_are_not_handed_out(tmp_path: Path) -> None:
    child = store(tmp_path, b"child")
    good = store(tmp_path, b"good", (child,))
    evil = store(tmp_path, b"evil", (child,))
    for kind in ("data", "refs"):
        path = tmp_path / "Data" / f"{kind}.{good}"
        path.write_bytes((tmp_path / "Data" / f"{kind}.{evil}").read_bytes())
    objects = Directory(tmp_path)
    with pytest.raises(ObjectProblem, match="hash mismatch"):
        objects.read(good)
    with pytest.raises(ObjectProblem, match="hash mismatch"):
        list(objects.stream(good))
    assert objects.read(evil) == b"evil"
    assert Directory(tmp_path, checked=False).read(good) == b"evil"
    (tmp_path / "Data" / f"refs.{good}").unlink()  # without the file the id cannot be verified
    assert objects.read(good) == b"".join(objects.stream(good)) == b"evil"
