"""Tests that a damaged bundle gives a result or a typed error, and that nothing is written.

Damage is applied to the stored files, where the content ids detect it, and to decoded objects, without a check
of their ids, so that it reaches the decoder and the reader.
"""

import shutil
from functools import cache
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.xcresult import fixtures
from tests.xcresult.hostile import mutating, reshaping, tracing
from tests.xcresult.memory import Memory
from tests.xcresult.writer.plan import Plan
from tests.xcresult.writer.writing import write_bundle

from runyard.xcresult.archives.limits import MIB, Limits
from runyard.xcresult.bundle.directory import Directory
from runyard.xcresult.bundle.exporting import export
from runyard.xcresult.bundle.reading import read
from runyard.xcresult.bundle.verifying import verify
from runyard.xcresult.errors import XcresultError
from runyard.xcresult.formats.apple import apple_tests
from runyard.xcresult.formats.comparing import compare
from runyard.xcresult.formats.coverage import FORMATS, render_coverage
from runyard.xcresult.formats.github import github
from runyard.xcresult.formats.junit import junit
from runyard.xcresult.formats.markdown import markdown
from runyard.xcresult.formats.tree import tree
from runyard.xcresult.reader.coverage.reading import read_all_coverage
from runyard.xcresult.reader.decode import is_typed
from runyard.xcresult.reader.figures import figures
from runyard.xcresult.reader.frames import compress, whole
from runyard.xcresult.reader.model import Result, Wanted
from runyard.xcresult.reader.objects import Info, Objects
from runyard.xcresult.reader.report import report
from runyard.xcresult.reader.result import read_result

LIMITS = Limits(object_bytes=8 * MIB, decoded_bytes=64 * MIB, entry_bytes=8 * MIB)
EVERYTHING = Wanted(activities=True, logs=True)

PLANS = {
    "small": Plan(cases=3, failures=1, activities=2, attachments=2, coverage=1, retries=1),
    "old": Plan(minor=24, cases=3, failures=1, activities=2, attachments=2, build_issues=2),
    "rich": Plan(
        minor=60,
        cases=8,
        failures=2,
        skips=1,
        expected_failures=1,
        arguments=1,
        tags=1,
        bugs=1,
        metrics=1,
        activities=3,
        attachments=3,
        runner_errors=1,
        sessionless=1,
        coverage=2,
        diagnostics=2,
        build_issues=2,
        devices=2,
    ),
}
REAL = (
    "kishi__Coverage",
    "a7ex__test",
    "tuist__test-with-arguments",
    "a7ex__session_level_failure",
)


class Loaded(msgspec.Struct, frozen=True):
    """A good bundle, in memory and on disk."""

    path: Path
    info: Info
    payloads: dict[str, bytes]
    refs: dict[str, tuple[str, ...]]


@cache
def loaded(name: str) -> Loaded:
    if name in PLANS:
        path = fixtures._scratch() / f"fuzz-{name}.xcresult"
        write_bundle(path, PLANS[name])
    else:
        path = fixtures.bundle(name)
    objects = Directory(path)
    ids = tuple(objects.ids())
    return Loaded(
        path=path,
        info=objects.info(),
        payloads={one: objects.read(one) for one in ids},
        refs={one: objects.refs(one) for one in ids},
    )


def everything(result: Result, objects: Objects) -> None:
    """Run all formats on a result; XML and JSON must be well-formed."""
    figures(result, objects=0, objects_hash_ok=0)
    for value in (report(result), result, apple_tests(result), compare(result, result)):
        msgspec.json.decode(msgspec.json.encode(value))
    list(tree(result, title="X", details=True))
    ET.fromstring("".join(junit([result])))
    markdown(result, title="X")
    assert not [line for line in github([("X", result)]) if "\n" in line.rstrip("\n")]
    coverage = read_all_coverage(objects, result.actions)
    if coverage is not None:
        for form in FORMATS:
            text = "".join(render_coverage(coverage, form))
            if form == "cobertura":
                ET.fromstring(text)


def summary(result: Result) -> str:
    """Summarize a result as a text that distinguishes outcomes; counts are written as strokes."""
    warnings = " ".join(one.message for one in result.warnings)
    statuses = sorted({case.status for case in result.cases})
    many = (result.cases, result.suites, result.targets, result.errors, result.build_issues)
    strokes = " ".join("|" * min(len(one), 9) for one in many)
    return f"read: {warnings}; {statuses} {strokes}"


def decoded_outcome(name: str, recipe: mutating.Recipe) -> str:
    """Apply the recipe to the bytes of one decoded object and read the bundle."""
    good = loaded(name)
    ids = sorted(good.payloads, key=lambda one: (one != good.info.root_id, one))
    victim = ids[recipe[0][2] % len(ids)] if recipe else ids[0]
    damaged = mutating.apply(good.payloads[victim], recipe)
    return memory_outcome(good, {**good.payloads, victim: damaged})


def reshaped_outcome(name: str, recipe: mutating.Recipe) -> str:
    """Apply the recipe to the shape of all typed objects, one edit for each, and read the bundle."""
    good = loaded(name)
    ids = sorted(one for one, data in good.payloads.items() if is_typed(data))
    ids.sort(key=lambda one: -len(good.payloads[one]))
    payloads = dict(good.payloads)
    for edit in recipe:
        victim = ids[len(edit[3]) % len(ids)]
        payloads[victim] = reshaping.reshape(payloads[victim], (edit,))
    return memory_outcome(good, payloads)


def memory_outcome(good: Loaded, payloads: dict[str, bytes]) -> str:
    objects = Memory(payloads, good.refs)
    try:
        result = read_result(objects, good.info, wanted=EVERYTHING, budget=64 * MIB)
        everything(result, objects)
    except XcresultError as error:
        text = f"{type(error).__name__}: {error}"
    else:
        text = summary(result)
    assert "\n" not in text
    return text


def raw_outcome(name: str, recipe: mutating.Recipe, folder: Path) -> str:
    """Apply the recipe to one file and read the bundle."""
    good = loaded(name)
    path = folder / "X.xcresult"
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(good.path, path)
    files = sorted(one for one in path.rglob("*") if one.is_file())
    root = [path / "Info.plist", path / "Data" / f"data.{good.info.root_id}"]
    victim = (root * 3 + files)[recipe[0][2] % (len(files) + 6)] if recipe else files[0]
    victim.write_bytes(mutating.apply(victim.read_bytes(), recipe))
    with tracing.written() as written:
        try:
            verify(path, limits=LIMITS)
            result = read(path, wanted=EVERYTHING, limits=LIMITS)
            everything(result, Directory(path, limits=LIMITS))
            text = summary(result)
        except XcresultError as error:
            text = f"{type(error).__name__}: {error}"
    assert written == []
    assert "\n" not in text
    return text


GENERATED = tuple(PLANS)
NAMES = [*PLANS, *REAL]


def fuzz(examples: int) -> settings:
    return settings(
        max_examples=examples,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )


@pytest.mark.parametrize("name", NAMES)
def test_an_undamaged_bundle_is_read_without_warnings(name: str, tmp_path: Path) -> None:
    if name != "a7ex__session_level_failure":  # its store was stripped
        assert decoded_outcome(name, ()).startswith("read: ; ")
    assert raw_outcome(name, (), tmp_path).startswith("read: ; ")


@pytest.mark.parametrize("examples", mutating.FEW_AND_MANY)
@pytest.mark.parametrize("name", [*PLANS, *REAL[:3]])
def test_damaged_objects_are_a_typed_error_or_a_result(name: str, examples: int) -> None:
    loaded(name)

    @fuzz(examples)
    @given(mutating.recipes)
    def thrown(recipe: mutating.Recipe) -> None:
        decoded_outcome(name, recipe)

    thrown()


@pytest.mark.slow
@pytest.mark.parametrize("examples", mutating.FEW_AND_MANY)
@pytest.mark.parametrize("name", [*PLANS, *REAL[:3]])
def test_objects_of_other_shapes_are_a_typed_error_or_a_result(name: str, examples: int) -> None:
    loaded(name)

    @fuzz(examples)
    @given(mutating.recipes)
    def thrown(recipe: mutating.Recipe) -> None:
        reshaped_outcome(name, recipe)

    thrown()


@pytest.mark.parametrize("examples", mutating.FEW_AND_MANY)
@pytest.mark.parametrize("name", ["small", "old", "a7ex__session_level_failure"])
def test_damaged_files_are_a_typed_error_or_a_result(
    name: str, examples: int, tmp_path: Path
) -> None:
    loaded(name)

    @fuzz(examples // 2)
    @given(mutating.recipes)
    def thrown(recipe: mutating.Recipe) -> None:
        raw_outcome(name, recipe, tmp_path)

    thrown()


@pytest.mark.parametrize("examples", mutating.FEW_AND_MANY)
@pytest.mark.parametrize("name", ["rich"])
def test_what_is_left_of_a_damaged_bundle_can_be_exported(
    name: str, examples: int, tmp_path: Path
) -> None:
    good = loaded(name)
    out = tmp_path / "out"

    @fuzz(examples // 3)
    @given(mutating.recipes, st.sampled_from(sorted(good.payloads)))
    def thrown(recipe: mutating.Recipe, victim: str) -> None:
        damaged = mutating.apply(good.payloads[victim], recipe)
        objects = Memory(
            {**good.payloads, victim: whole(compress(damaged), limit=LIMITS.object_bytes)},
            good.refs,
        )
        shutil.rmtree(out, ignore_errors=True)
        with tracing.written() as written:
            try:
                result = read_result(objects, good.info)
                export(objects, result, out, limits=LIMITS)
            except XcresultError:
                return
        assert [one for one in written if not Path(one).is_relative_to(out)] == []

    thrown()


@pytest.mark.slow
def test_the_corpus_still_meets_results_and_typed_errors(tmp_path: Path) -> None:
    for name, recipe in mutating.corpus("decoded"):
        decoded_outcome(name, recipe)
    for name, recipe in mutating.corpus("shapes"):
        reshaped_outcome(name, recipe)
    for name, recipe in mutating.corpus("files"):
        raw_outcome(name, recipe, tmp_path)
    for suite in ("decoded", "shapes"):
        assert {name for name, _ in mutating.corpus(suite)} == set(PLANS)
