"""Tests that verification reports each damaged object with its cause, and counts like the figures."""

import tracemalloc
from pathlib import Path

import pytest
from tests.xcresult import fixtures
from tests.xcresult.archives import building
from tests.xcresult.bundle.test_opening import laid_out

from runyard.xcresult.archives.limits import Limits
from runyard.xcresult.bundle.verifying import Verification, verify
from runyard.xcresult.errors import BundleInvalid, TooLarge
from runyard.xcresult.reader.frames import compress
from runyard.xcresult.reader.ids import content_id

ABSENT = content_id((), [b"pruned"])


def bundle(root: Path) -> tuple[Path, str]:
    """A bundle, and the id of an object that references one existing and one missing object."""
    child = building.stored_object(b"child" * 1000)
    parent = building.stored_object(b"parent" * 1000, (building.object_id(child), ABSENT))
    files = {"Info.plist": building.info(building.object_id(parent)), **child, **parent}
    return laid_out(root, files), building.object_id(parent)


def causes(found: Verification) -> dict[str, str]:
    return {one.object_id: one.cause for one in found.damaged}


def test_a_good_bundle_is_good_though_something_was_pruned(tmp_path: Path) -> None:
    root, _ = bundle(tmp_path)
    found = verify(root)
    assert (found.objects, found.hash_ok, found.damaged) == (2, 2, ())
    assert found.missing == (ABSENT,)
    assert found.good
    assert not found.root_missing


def test_a_flipped_bit_is_found(tmp_path: Path) -> None:
    root, _ = bundle(tmp_path)
    raw = building.stored_object(building.noise(1000), squeeze=False)
    laid_out(root, raw)
    path = root / "Data" / f"data.{building.object_id(raw)}"
    data = bytearray(path.read_bytes())
    data[500] ^= 1
    path.write_bytes(data)
    found = verify(root)
    assert causes(found) == {building.object_id(raw): "hash mismatch"}
    assert (found.objects, found.hash_ok) == (3, 2)
    assert not found.good


def test_a_frame_that_was_cut_short_is_found_also_under_its_right_name(tmp_path: Path) -> None:
    root, parent = bundle(tmp_path)
    cut = building.stored_object(compress(building.noise(5000))[:-9], squeeze=False)
    laid_out(root, cut)
    path = root / "Data" / f"data.{parent}"
    path.write_bytes(path.read_bytes()[:-3])
    found = verify(root)
    assert causes(found) == {building.object_id(cut): "damaged frame", parent: "damaged frame"}
    assert all("truncated" in one.message for one in found.damaged)
    assert (found.objects, found.hash_ok) == (3, 2)


def test_references_that_were_changed_are_found(tmp_path: Path) -> None:
    root, parent = bundle(tmp_path)
    path = root / "Data" / f"refs.{parent}"
    good = path.read_bytes()
    path.write_bytes(good[:40])
    assert causes(verify(root)) == {parent: "damaged references"}
    path.write_bytes(good[:40] + bytes([good[40] ^ 1]) + good[41:])
    assert causes(verify(root)) == {parent: "hash mismatch"}
    path.unlink()
    found = verify(root)
    assert causes(found) == {parent: "missing references"}
    assert (found.objects, found.hash_ok) == (2, 1)


def test_a_missing_payload_and_a_missing_root_are_reported(tmp_path: Path) -> None:
    root, parent = bundle(tmp_path)
    (root / "Data" / f"data.{parent}").unlink()
    found = verify(root)
    assert causes(found) == {parent: "missing data"}
    assert found.root_missing
    assert not found.good


def test_strange_files_are_named_and_not_followed(tmp_path: Path) -> None:
    root, parent = bundle(tmp_path)
    (root / "Data" / "data.0~short").write_bytes(b"x")
    (root / "Data" / "something else").write_bytes(b"x")
    path = root / "Data" / f"data.{parent}"
    path.unlink()
    path.symlink_to("/etc/passwd")
    assert causes(verify(root)) == {"'0~short'": "no object id", parent: "unreadable"}


def test_a_stripped_store_is_no_damage(tmp_path: Path) -> None:
    laid_out(tmp_path, {"Info.plist": building.info(ABSENT)})
    found = verify(tmp_path)
    assert (found.objects, found.hash_ok, found.root_missing) == (0, 0, True)
    assert found.good


def test_verification_needs_a_bundle(tmp_path: Path) -> None:
    with pytest.raises(BundleInvalid):
        verify(tmp_path)


def test_a_frame_that_is_a_bomb_is_stopped(tmp_path: Path) -> None:
    bomb = building.stored_object(bytes(30 << 20))
    laid_out(tmp_path, {"Info.plist": building.info(building.object_id(bomb)), **bomb})
    found = verify(tmp_path, limits=Limits(entry_bytes=1 << 20))
    assert causes(found) == {building.object_id(bomb): "too large"}
    assert found.hash_ok == 1
    with pytest.raises(TooLarge, match="total_bytes"):
        verify(tmp_path, limits=Limits(total_bytes=1 << 20))


def test_memory_does_not_grow_with_an_object(tmp_path: Path) -> None:
    large = building.stored_object(bytes(20 << 20))
    raw = building.stored_object(building.noise(10 << 20), squeeze=False)
    laid_out(tmp_path, {"Info.plist": building.info(building.object_id(large)), **large, **raw})
    del large, raw
    tracemalloc.start()
    assert verify(tmp_path).good
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 << 20


def test_it_can_be_stopped(tmp_path: Path) -> None:
    root, _ = bundle(tmp_path)

    def stop() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        verify(root, check=stop)


@pytest.mark.parametrize("name", fixtures.parameters())
def test_a_real_bundle_counts_as_its_figures_say(name: str) -> None:
    found, expected = verify(fixtures.bundle(name)), fixtures.figures()[name]
    assert (found.objects, found.hash_ok) == (expected["objects"], expected["objects_hash_ok"])
    without_references = found.objects - found.hash_ok
    assert [one.cause for one in found.damaged] == ["missing references"] * without_references
