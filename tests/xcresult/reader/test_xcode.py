"""Tests that the version of Xcode is found in the diagnostics, and that its absence is no error."""

import pytest
from tests.xcresult import fixtures
from tests.xcresult.reader.stores import Memory

from runyard.xcresult.bundle.reading import read_bundle
from runyard.xcresult.reader.ids import content_id
from runyard.xcresult.reader.xcode import VISITS, xcode_version

LOG = b"Xcode version: 26.0.1 (17A400)\n20:28:15.238 Xcode[1:2] started\n"


class Tree(Memory):
    """Listings with references."""

    def __init__(self) -> None:
        super().__init__()
        self.references: dict[str, tuple[str, ...]] = {}

    def refs(self, object_id: str) -> tuple[str, ...]:
        return self.references.get(object_id, ())

    def directory(self, **entries: str) -> str:
        lines = ",".join(
            f'{{"name":"{name}","type":{2 if object_id in self.references else 1}}}'
            for name, object_id in entries.items()
        )
        object_id = self.put(f"[{lines}]".encode())
        self.references[object_id] = tuple(entries.values())
        return object_id


def test_the_log_of_a_session_has_the_version() -> None:
    tree = Tree()
    other = tree.directory(**{"scheduling.log": tree.put(b"x")})
    session = tree.directory(**{"Session-AppTests.log": tree.put(LOG), "a.txt": tree.put(b"y")})
    top = tree.directory(one=other, two=session)
    assert xcode_version(tree, top) == "26.0.1 (17A400)"


@pytest.mark.parametrize("payload", [b"", b"junk", b"[]", b'[{"name":1}]', b"[T[K2:_nV1:A]]"])
def test_an_invalid_listing_gives_no_version(payload: bytes) -> None:
    tree = Tree()
    assert xcode_version(tree, tree.put(payload)) == ""
    assert xcode_version(tree, content_id((), [b"missing"])) == ""
    assert xcode_version(tree, "") == ""


def test_a_directory_that_contains_itself_is_left() -> None:
    tree = Tree()
    loop = tree.directory(x="later")
    tree.payloads[loop] = b'[{"name":"x","type":2}]'
    tree.references[loop] = (loop,)
    assert xcode_version(tree, loop) == ""


def test_the_search_is_given_up_in_a_large_tree() -> None:
    tree = Tree()
    inner = tree.directory(**{"Session-A.log": tree.put(LOG)})
    for level in range(VISITS + 1):
        inner = tree.directory(**{f"level{level}": inner})
    assert xcode_version(tree, inner) == ""


def test_a_real_bundle_has_the_version() -> None:
    assert read_bundle(fixtures.bundle("tuist__test")).xcode == "26.0.1 (17A400)"
