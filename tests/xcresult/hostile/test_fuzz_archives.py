"""Tests that a damaged archive gives a bundle or a typed error, and leaves no files and no open descriptors.

`RUNYARD_FUZZ_EXAMPLES` sets how many examples are drawn for each kind. Recipes with a new outcome
are stored in the corpus and replayed each time.
"""

import tarfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from tests.xcresult.archives import building
from tests.xcresult.hostile import mutating, tracing

from runyard.xcresult.archives.extracting import needed_bytes
from runyard.xcresult.archives.limits import MIB, Limits
from runyard.xcresult.bundle.opening import opened
from runyard.xcresult.bundle.verifying import verify
from runyard.xcresult.errors import XcresultError

LIMITS = Limits(
    total_bytes=8 * MIB, entry_bytes=4 * MIB, entries=500, ratio_floor=4 * MIB, block_bytes=2 * MIB
)
ROOT = building.stored_object(b"[T[K2:_nV23:ActionsInvocationRecord]]")
FILES = building.inside(
    "X.xcresult",
    {
        "Info.plist": building.info(building.object_id(ROOT)),
        **ROOT,
        **building.stored_object(b"zeros" * 3000, squeeze=False),
    },
)
DIRECTORY = building.inside("a" * 120, FILES)  # long names have extended headers

MAKERS: dict[str, Callable[[], bytes]] = {
    "zip": lambda: building.zipped(FILES),
    "zip stored": lambda: building.zipped(FILES, method=0),
    "apple": lambda: building.apple_entries(FILES),
    "apple zlib": lambda: building.blocks(building.apple_entries(FILES), "z", block=4096),
    "apple LZMA": lambda: building.blocks(building.apple_entries(FILES), "x", block=4096),
    "apple LZFSE": lambda: building.blocks(building.apple_entries(FILES), "e", block=4096),
    "tar pax": lambda: building.tarred(DIRECTORY),
    "tar GNU": lambda: building.tarred(DIRECTORY, format=tarfile.GNU_FORMAT),
    "tar.gz": lambda: building.gzipped(building.tarred(FILES)),
    "tar.zst": lambda: building.compress(building.tarred(FILES)),
    "tar.xz": lambda: building.xz(building.tarred(FILES)),
}


@cache
def undamaged(kind: str) -> bytes:
    return MAKERS[kind]()


def open_files() -> int:
    """The number of open descriptors of this process, if the system can list them."""
    known = Path("/proc/self/fd")
    return sum(1 for _ in known.iterdir()) if known.is_dir() else 0


def outcome(kind: str, recipe: mutating.Recipe, folder: Path) -> str:
    """Extract a damaged archive; returns the error's text or the result of the verification."""
    upload, scratch = folder / "upload", folder / "scratch"
    scratch.mkdir(exist_ok=True)
    upload.write_bytes(mutating.apply(undamaged(kind), recipe))
    before = open_files()
    with tracing.written() as written:
        try:
            assert needed_bytes(upload, limits=LIMITS) >= 0
            with opened(upload, scratch=scratch, limits=LIMITS) as directory:
                found = verify(directory, limits=LIMITS)
            text = f"good: {found.good}, {found.objects} objects"
        except XcresultError as error:
            text = f"{type(error).__name__}: {error}"
    assert "\n" not in text
    assert [path for path in written if not Path(path).is_relative_to(scratch)] == []
    assert list(scratch.iterdir()) == []
    assert open_files() == before
    return text


@pytest.mark.parametrize("kind", MAKERS)
def test_an_undamaged_archive_is_good(kind: str, tmp_path: Path) -> None:
    assert outcome(kind, (), tmp_path) == "good: True, 2 objects"


@pytest.mark.parametrize("examples", mutating.FEW_AND_MANY)
@pytest.mark.parametrize("kind", MAKERS)
def test_a_damaged_archive_is_a_typed_error_or_a_bundle(
    kind: str, examples: int, tmp_path: Path
) -> None:
    @settings(
        max_examples=examples,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
    @given(mutating.recipes)
    def thrown(recipe: mutating.Recipe) -> None:
        outcome(kind, recipe, tmp_path)

    thrown()


def test_the_corpus_still_meets_typed_errors(tmp_path: Path) -> None:
    kept = mutating.corpus("archives")
    assert {kind for kind, _ in kept} == set(MAKERS)
    for kind, recipe in kept:
        outcome(kind, recipe, tmp_path)
