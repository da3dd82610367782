"""Tests that the bundle in a path is found, always the same one, and that no files are left."""

import tempfile
from pathlib import Path

import pytest
from tests.xcresult import fixtures
from tests.xcresult.archives import building
from tests.xcresult.hostile import tracing

from runyard.xcresult.archives.limits import Limits
from runyard.xcresult.bundle.opening import opened
from runyard.xcresult.errors import BundleInvalid, TooLarge, UnsupportedFormat, XcresultNotFound

BUNDLE = building.small_bundle()


def laid_out(root: Path, files: building.Files) -> Path:
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def test_a_directory_is_used_in_place(tmp_path: Path) -> None:
    bundle = laid_out(tmp_path / "X.xcresult", BUNDLE)
    with tracing.written() as written:
        with opened(bundle) as found:
            assert found == bundle
        with opened(tmp_path) as found:
            assert found == bundle
    assert written == []
    assert bundle.is_dir()


def test_a_bundle_needs_no_name_of_its_own(tmp_path: Path) -> None:
    with opened(laid_out(tmp_path / "renamed", BUNDLE)) as found:
        assert found == tmp_path / "renamed"


def test_the_nearest_bundle_is_meant_and_then_the_first_by_name(tmp_path: Path) -> None:
    for name in ("z/B.xcresult", "z/A.xcresult", "a/deep/er/C.xcresult", "__MACOSX/A.xcresult"):
        laid_out(tmp_path / name, BUNDLE)
    laid_out(tmp_path, {"Info.plist": b"of something else", "z/._A.xcresult/Info.plist": b""})
    with opened(tmp_path) as found:
        assert found == tmp_path / "z" / "A.xcresult"


def test_a_folder_named_like_a_bundle_is_searched(tmp_path: Path) -> None:
    inner = laid_out(tmp_path / "X.xcresult" / "X.xcresult", BUNDLE)
    for given in (tmp_path, tmp_path / "X.xcresult"):
        with opened(given) as found:
            assert found == inner


def test_links_in_a_directory_lead_nowhere(tmp_path: Path) -> None:
    laid_out(tmp_path / "elsewhere" / "X.xcresult", BUNDLE)
    given = tmp_path / "given"
    given.mkdir()
    (given / "X.xcresult").symlink_to(tmp_path / "elsewhere" / "X.xcresult")
    (given / "loop").symlink_to(given)
    with pytest.raises(XcresultNotFound), opened(given):
        pass
    bundle = tmp_path / "Y.xcresult"
    bundle.mkdir()
    (bundle / "Info.plist").symlink_to(tmp_path / "elsewhere" / "X.xcresult" / "Info.plist")
    with pytest.raises(BundleInvalid, match=r"no Info\.plist"), opened(bundle):
        pass
    (bundle / "Info.plist").unlink()
    laid_out(bundle, {"Info.plist": BUNDLE["Info.plist"]})
    (bundle / "Data").symlink_to(tmp_path / "elsewhere" / "X.xcresult" / "Data")
    with pytest.raises(BundleInvalid, match="Data is a link"), opened(bundle):
        pass


def test_a_link_to_a_bundle_may_be_given(tmp_path: Path) -> None:
    laid_out(tmp_path / "X.xcresult", BUNDLE)
    (tmp_path / "latest").symlink_to(tmp_path / "X.xcresult")
    with opened(tmp_path / "latest") as found:
        assert (found / "Info.plist").read_bytes() == BUNDLE["Info.plist"]


WRONG = {
    "empty": ({"notes.txt": b"x"}, XcresultNotFound, "neither"),
    "unfinished": ({"X.xcresult/Data/data.x": b""}, BundleInvalid, r"no Info\.plist"),
    "only the bundle's directory": ({"X.xcresult/other": b""}, BundleInvalid, r"no Info\.plist"),
    "Xcode 10": (
        {"X.xcresult/Info.plist": b"x", "X.xcresult/1_Test/action_TestSummaries.plist": b"x"},
        UnsupportedFormat,
        "Xcode 10",
    ),
    "Xcode 10 without a name": ({"TestSummaries.plist": b"x"}, UnsupportedFormat, "Xcode 10"),
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("archived", [False, True])
def test_inputs_without_a_bundle_have_distinct_errors(
    what: str, archived: bool, tmp_path: Path
) -> None:
    files, error, match = WRONG[what]
    given = laid_out(tmp_path / "given", files)
    if archived:
        given = tmp_path / "upload.zip"
        given.write_bytes(building.zipped(files))
    with pytest.raises(error, match=match) as caught, opened(given):
        pass
    assert type(caught.value) is error


def test_the_temporary_directory_is_gone_also_when_the_caller_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    (tmp_path / "upload").write_bytes(building.zipped(BUNDLE))
    with pytest.raises(KeyboardInterrupt), opened(tmp_path / "upload") as found:
        assert found.is_relative_to(tmp_path / "tmp")
        assert found.stat().st_mode & 0o077 == 0
        raise KeyboardInterrupt
    assert list((tmp_path / "tmp").iterdir()) == []


def test_the_search_below_a_directory_is_bounded(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / str(number)).mkdir()
    with pytest.raises(TooLarge, match="entries"), opened(tmp_path, limits=Limits(entries=10)):
        pass
    deep = tmp_path / ("d/" * 50)
    laid_out(deep / "X.xcresult", BUNDLE)
    with pytest.raises(XcresultNotFound), opened(tmp_path):
        pass


@pytest.mark.parametrize("name", fixtures.parameters())
def test_every_real_archive_opens(name: str, tmp_path: Path) -> None:
    with opened(fixtures.archive(name), scratch=tmp_path) as found:
        assert found.name == f"{name}.xcresult"
    assert list(tmp_path.iterdir()) == []
