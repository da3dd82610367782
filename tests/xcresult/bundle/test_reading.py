"""Tests that a bundle is read from a directory and from every archive, and that no files are left."""

import shutil
import zipfile
from pathlib import Path

import pytest
from tests.xcresult import fixtures
from tests.xcresult.writer.plan import Plan
from tests.xcresult.writer.writing import write_bundle

from runyard.xcresult.archives.limits import Limits
from runyard.xcresult.bundle.reading import read, read_bundle
from runyard.xcresult.errors import BundleInvalid, TooLarge
from runyard.xcresult.reader.model import Wanted


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "made" / "Test.xcresult"
    path.parent.mkdir()
    write_bundle(path, Plan(cases=4, activities=2, failures=1))
    return path


def test_a_zip_reads_like_its_directory_and_leaves_nothing(bundle: Path, tmp_path: Path) -> None:
    archive, scratch = tmp_path / "upload.zip", tmp_path / "scratch"
    scratch.mkdir()
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted(bundle.rglob("*")):
            file.write(path, path.relative_to(bundle.parent))
    assert read(archive, scratch=scratch) == read(str(bundle)) == read_bundle(bundle)
    assert list(scratch.iterdir()) == []


def test_activities_are_read_when_they_are_wanted(bundle: Path) -> None:
    def steps(wanted: Wanted) -> list[bool]:
        cases = read_bundle(bundle, wanted=wanted).cases
        return [bool(run.activities) for case in cases for run in case.runs]

    assert not any(steps(Wanted()))
    assert all(steps(Wanted(activities=True)))


def test_limits_reach_the_reader(bundle: Path) -> None:
    with pytest.raises(TooLarge, match="object_bytes"):
        read_bundle(bundle, limits=Limits(object_bytes=100))
    with pytest.raises(TooLarge, match="decoded_bytes"):
        read_bundle(bundle, limits=Limits(decoded_bytes=1000))
    with pytest.raises(BundleInvalid, match="levels"):
        read_bundle(bundle, limits=Limits(depth=2))


def test_a_store_without_its_root_and_without_a_cache_is_refused(bundle: Path) -> None:
    shutil.rmtree(bundle / "Data")
    with pytest.raises(BundleInvalid, match="root object"):
        read_bundle(bundle)


def test_a_stripped_store_is_read_from_the_cache(tmp_path: Path) -> None:
    whole = fixtures.bundle("trunk__test-swift-mix")
    bundle = tmp_path / "Stripped.xcresult"
    bundle.mkdir()
    for name in ("Info.plist", "database.sqlite3"):
        shutil.copy(whole / name, bundle / name)
    found, expected = read_bundle(bundle), read_bundle(whole)
    assert (found.source, expected.source) == ("sqlite", "store")
    assert [(case.name, case.status) for case in found.cases] == [
        (case.name, case.status) for case in expected.cases
    ]


def test_a_cache_that_is_a_link_is_not_followed(bundle: Path, tmp_path: Path) -> None:
    shutil.rmtree(bundle / "Data")
    (tmp_path / "other.sqlite3").write_bytes(b"")
    (bundle / "database.sqlite3").symlink_to(tmp_path / "other.sqlite3")
    with pytest.raises(BundleInvalid, match="root object"):
        read_bundle(bundle)
