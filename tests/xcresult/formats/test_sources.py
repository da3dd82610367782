"""Tests how paths of another machine become paths of the repository, and what annotations say when they cannot."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.xcresult.formats.results import SOURCE, case, everything, failure, result, run

from runyard.xcresult.formats.github import github
from runyard.xcresult.formats.sources import Sources
from runyard.xcresult.reader.model import Failure, Place, Result

FILES = frozenset(
    {"Tests/CartTests.swift", "App/Tests/CartTests.swift", "App.swift", "Package.swift"}
)
REPOSITORY = Sources(files=FILES)


@pytest.mark.parametrize(
    ("sources", "path", "expected"),
    [
        (REPOSITORY, "/Users/ci/checkout/Tests/CartTests.swift", "Tests/CartTests.swift"),
        (REPOSITORY, "/Users/ci/App/Tests/CartTests.swift", "App/Tests/CartTests.swift"),
        (REPOSITORY, "/private/var/x/./checkout//Tests/../App.swift", "App.swift"),
        (REPOSITORY, "/Users/ci/checkout/Tests/Other.swift", None),
        (REPOSITORY, "/Users/ci/MyApp.swift", None),
        (REPOSITORY, "/Users/ci/app.swift", None),
        (REPOSITORY, "Tests/CartTests.swift", "Tests/CartTests.swift"),
        (
            Sources(files=frozenset({"Tests/\u00dcnit.swift"})),
            "/Users/ci/checkout/Tests/U\u0308nit.swift",
            "Tests/\u00dcnit.swift",
        ),
        (
            Sources(files=frozenset({"Tests/U\u0308nit.swift"})),
            "/Users/ci/checkout/Tests/U\u0308nit.swift",
            "Tests/U\u0308nit.swift",
        ),
        (REPOSITORY, "Tests", None),
        (REPOSITORY, "", None),
        (
            Sources(root="/Users/ci/App", files=FILES),
            "/Users/ci/App/Tests/CartTests.swift",
            "Tests/CartTests.swift",
        ),
        (
            Sources(root="/Users/ci/App", files=FILES),
            "/Users/ci/App/made/New.swift",
            None,
        ),
        (Sources(root="/Users/ci/app/"), "/Users/ci/app/x", "x"),
        (Sources(root="/Users/ci/app"), "/Users/ci/application/x", None),
        (Sources(root="/Users/ci/app"), "/Users/ci/app/../other/x", None),
        (Sources(root="/"), "/x", "x"),
        (Sources(), "/x", None),
        (Sources(), "x", "x"),
        (Sources(), "../x", None),
    ],
)
def test_a_path_of_another_machine_is_not_lost(
    sources: Sources, path: str, expected: str | None
) -> None:
    assert sources.mapped(path) == expected
    if not sources.root:
        assert sources.shown(path) == (expected or path)


def test_a_file_of_the_checkout_that_git_does_not_know_is_neither_a_line_nor_a_link() -> None:
    # Below $GITHUB_WORKSPACE are also a package's sources that the build fetched.
    made = "/Users/ci/App/.build/checkouts/lib/Sources/lib.swift"
    sources = Sources(root="/Users/ci/App", files=FILES, url="https://github.com/acme/app/blob/c")
    assert sources.link(Place(made, 3)) == ""
    assert sources.shown(made) == ".build/checkouts/lib/Sources/lib.swift"
    lines = list(github([("x", at(Place(made, 3)))], sources=sources))
    assert not any("file=" in line for line in lines)
    assert any(line.startswith("::warning title=runyard::") and made in line for line in lines)


@given(st.text(st.sampled_from("a/.b"), max_size=12), st.text(st.sampled_from("a/.b"), max_size=5))
def test_no_path_leads_out_of_the_repository(path: str, root: str) -> None:
    for sources in (Sources(root=root), Sources(root=root, files=frozenset({"a/b", "b"}))):
        found = sources.mapped(path)
        assert found is None or (found[0] != "/" and ".." not in found.split("/"))


def at(*places: Place) -> Result:
    failures = tuple(replace(failure(), place=place) for place in places)
    return result(case("a()", run("Failure", failures=failures), status="Failure"))


def test_an_annotation_of_another_machine_does_not_miss_its_line() -> None:
    lines = list(github([("x", everything())], sources=REPOSITORY))
    assert any(line.startswith("::error file=Tests/CartTests.swift,line=7,") for line in lines)
    assert any(line.startswith("::warning file=App.swift,line=3,") for line in lines)
    assert any(line.startswith("::notice file=Tests/CartTests.swift,line=11,") for line in lines)
    assert not any("/Users/" in line for line in lines)


def test_a_file_that_is_not_in_the_repository_is_a_warning() -> None:
    places = [
        Place(f"/Users/ci/lib/{name}.swift", 3)
        for name in ("a", "b,::error::", "c\n::error::", "d")
    ]
    lines = list(github([("x", at(Place(SOURCE, 7), *places, places[0]))], sources=REPOSITORY))
    first, second, *_ = lines
    assert first.startswith("::error file=Tests/CartTests.swift,line=7,")
    assert second == (
        "::error title=AppTests / CartTests / a()::/Users/ci/lib/a.swift:3: 1 is not 2"
    )
    (warning,) = (line for line in lines if line.startswith("::warning "))
    assert warning.startswith("::warning title=runyard::Annotations without a line")
    assert "/Users/ci/lib/a.swift, " in warning and " and 1 more. " in warning
    assert all(part in warning for part in ("--checkout", "--root"))
    assert not any("\n" in line for line in lines)


def test_no_warning_is_made_without_a_reason() -> None:
    quiet: Failure = replace(failure(), place=None)
    made = result(case("a()", run("Failure", failures=(quiet,)), status="Failure"))
    for each in (made, result(case("a()")), at(Place(SOURCE, 7))):
        assert not any(
            line.startswith("::warning") for line in github([("x", each)], sources=REPOSITORY)
        )
    assert any(line.startswith("::warning") for line in github([("x", at(Place(SOURCE, 7)))]))
