"""Tests that the exported attachments of real bundles have the number and kinds that another tool's tests expect."""

import json
from collections import Counter
from pathlib import Path

import pytest
from tests.xcresult import fixtures

from runyard.xcresult.bundle.choosing import Chosen
from runyard.xcresult.bundle.directory import Directory
from runyard.xcresult.bundle.exporting import export
from runyard.xcresult.bundle.reading import read_bundle


def exported(name: str, to: Path) -> list[dict[str, object]]:
    path = fixtures.bundle(name)
    export(Directory(path), read_bundle(path), to)
    manifest = json.loads((to / "manifest.json").read_bytes())
    return [each for test in manifest for each in test["attachments"]]


def test_screenshots_of_a_failing_test(tmp_path: Path) -> None:
    names = [
        str(each["suggestedHumanReadableName"])
        for each in exported("xcparse__testFailure", tmp_path)
    ]
    assert len(names) == 18
    assert sum(name.startswith("Screenshot") for name in names) == 12


def test_pictures_that_are_called_heic_and_pictures_that_are(tmp_path: Path) -> None:
    names = [str(each["exportedFileName"]) for each in exported("xcparse__testHEIC", tmp_path)]
    assert sum(name.endswith(".heic") for name in names) == 18
    assert len(list(tmp_path.glob("*.heic"))) == 18
    assert len(names) == len(set(names)) == 96
    path = fixtures.bundle("xcparse__testHEIC")
    truly = Chosen(true_extensions=True)
    export(Directory(path), read_bundle(path), tmp_path / "true", chosen=truly)
    assert len(list((tmp_path / "true").glob("*.heic"))) == 69
    for file in (tmp_path / "true").glob("*.png"):
        assert file.read_bytes().startswith(b"\x89PNG")


def test_one_text_of_one_test(tmp_path: Path) -> None:
    (only,) = exported("tuist__test-with-attachment", tmp_path)
    assert str(only["exportedFileName"]).endswith(".txt")


@pytest.mark.parametrize("name", fixtures.parameters())
def test_every_payload_that_is_there_is_written_with_its_size(name: str, tmp_path: Path) -> None:
    path = fixtures.bundle(name)
    result = read_bundle(path)
    manifest = export(Directory(path), result, tmp_path)
    attachments = [each for case in result.cases for run in case.runs for each in run.attachments]
    present = {each.payload_id: each.size for each in attachments if each.present}
    assert manifest.size == sum(present.values())
    sizes = Counter(
        each.stat().st_size for each in tmp_path.iterdir() if each.name != "manifest.json"
    )
    assert sizes == Counter(each.size for each in attachments if each.present)
    assert (
        manifest.files
        == sum(len(test.attachments) for test in manifest.tests)
        == sum(each.present for each in attachments)
    )
    assert len(manifest.missed) == sum(not each.present for each in attachments)
