"""Tests that the coverage of real bundles equals the output of Apple's own tool."""

import json
import xml.etree.ElementTree as ET

import pytest
from tests.xcresult import fixtures

from runyard.xcresult.bundle.directory import Directory
from runyard.xcresult.bundle.reading import read_bundle
from runyard.xcresult.formats.coverage import render_coverage
from runyard.xcresult.reader.coverage.model import Coverage
from runyard.xcresult.reader.coverage.reading import read_all_coverage, read_coverage
from runyard.xcresult.reader.model import Wanted

Lines = dict[str, list[tuple[int, int]]]


def coverage(name: str) -> Coverage:
    bundle = fixtures.bundle(name)
    actions = read_bundle(bundle, wanted=Wanted(logs=False)).actions
    found = read_all_coverage(Directory(bundle), actions)
    assert found is not None
    return found


def cobertura_lines(root: ET.Element) -> Lines:
    return {
        found.attrib["filename"]: [
            (int(line.attrib["number"]), int(line.attrib["hits"])) for line in found.iter("line")
        ]
        for found in root.iter("class")
    }


def rates(root: ET.Element, tag: str, key: str) -> dict[str, float]:
    return {each.attrib[key]: float(each.attrib["line-rate"]) for each in root.iter(tag)}


def test_cobertura_equals_what_was_made_from_xccov_line_by_line() -> None:
    golden = ET.parse(fixtures.expected("a7ex-cobertura.xml")).getroot()
    bundle = fixtures.bundle("a7ex__test")
    started = read_bundle(bundle, wanted=Wanted(logs=False)).actions[0].started
    assert started is not None
    written = "".join(render_coverage(coverage("a7ex__test"), "cobertura", timestamp=started))
    ours = ET.fromstring(written)
    lines = cobertura_lines(ours)
    assert lines == cobertura_lines(golden)
    assert (len(lines), sum(len(found) for found in lines.values())) == (13, 1464)
    for key in ("lines-covered", "lines-valid", "line-rate", "timestamp"):
        assert ours.attrib[key] == golden.attrib[key]
    for tag, key in (("class", "filename"), ("package", "name")):
        assert rates(ours, tag, key) == pytest.approx(rates(golden, tag, key), abs=1e-6)


def test_lcov_and_json_have_the_same_lines_as_cobertura() -> None:
    found = coverage("a7ex__test")
    golden = cobertura_lines(ET.parse(fixtures.expected("a7ex-cobertura.xml")).getroot())
    document = json.loads("".join(render_coverage(found, "json")))
    assert {
        file["path"]: [tuple(line) for line in file["lines"]] for file in document["files"]
    } == (golden)
    traced: Lines = {}
    for line in "".join(render_coverage(found, "lcov")).splitlines():
        kind, _, rest = line.partition(":")
        if kind == "SF":
            current = traced.setdefault(rest, [])
        elif kind == "DA":
            number, _, hits = rest.partition(",")
            current.append((int(number), int(hits)))
    assert {path: lines for path, lines in traced.items() if lines} == golden


def test_the_totals_of_a_package() -> None:
    found = coverage("a7ex__test")
    assert (found.covered, found.executable) == (1530, 3108)


def test_an_app_and_its_files() -> None:
    target = next(
        each
        for each in coverage("kishi__Coverage").targets
        if each.name == "xcresulttool-example.app"
    )
    assert (target.covered, target.executable) == (14, 31)
    assert {(file.name, file.covered, file.executable) for file in target.files} == {
        ("ViewController.swift", 8, 18),
        ("AppDelegate.swift", 6, 13),
    }


@pytest.mark.parametrize(
    "name",
    ["peekie__SPM-26.1.1-iOS", "peekie__SPM-26.1.1-visionOS", "peekie__SPM-26.1.1-watchOS"],
)
def test_the_same_package_on_three_platforms(name: str) -> None:
    found = coverage(name)
    assert (found.covered, found.executable) == (182, 303)
    files = {
        (file.name, file.covered, file.executable)
        for target in found.targets
        for file in target.files
    }
    assert files == {
        ("Calculator.swift", 15, 34),
        ("NumberHelper.swift", 0, 36),
        ("SwiftTestingTests.swift", 57, 67),
        ("XCTestTests.swift", 95, 96),
    }


def test_two_test_plans_that_measured_the_same_lines_cover_no_more_of_them() -> None:
    bundle = fixtures.bundle("allure3__twoTestPlans")
    actions = read_bundle(bundle, wanted=Wanted(logs=False)).actions
    objects = Directory(bundle)
    alone = [read_coverage(objects, action) for action in actions]
    merged = coverage("allure3__twoTestPlans")
    assert [(each.covered, each.executable) for each in alone if each] == [(25, 209)] * 2
    assert (merged.covered, merged.executable) == (25, 209)
    path = merged.source.paths()[0]
    parts = [found for each in alone if each and (found := each.source.lines(path))]
    together = merged.source.lines(path)
    assert together is not None
    for index, line in enumerate(together.lines):
        assert line.count == sum(part.lines[index].count for part in parts)


@pytest.mark.parametrize("name", fixtures.parameters())
def test_what_every_bundle_measured_can_be_read(name: str) -> None:
    bundle = fixtures.bundle(name)
    actions = read_bundle(bundle, wanted=Wanted(logs=False)).actions
    found = read_all_coverage(Directory(bundle), actions)
    if found is None:
        return
    assert found.warnings == ()
    for target in found.targets:
        assert target.covered == sum(file.covered for file in target.files)
        assert target.executable == sum(file.executable for file in target.files)
        for file in target.files:
            assert file.executable == sum(each.executable for each in file.functions)
            assert found.source.lines(file.path) is not None
