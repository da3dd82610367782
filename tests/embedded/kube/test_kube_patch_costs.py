"""The cost of a patch grows with its own size, not with that times the object's size."""

from typing import Any

import pytest

from runyard.embedded.kube.patches import fields, jsonpatch, strategic
from runyard.embedded.kube.schema.model import named
from runyard.embedded.kube.status import StatusError

MANY = 20_000


class CountedMap(dict[str, Any]):
    """A map that counts how often it is copied."""

    copies = 0

    def copy(self) -> dict[str, Any]:
        self.copies += 1
        return dict(self)


class ComparedText(str):
    """A text that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        ComparedText.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_a_part_is_copied_once_however_often_it_is_changed() -> None:
    document = CountedMap(data=CountedMap(a="1"))
    patch = [{"op": "add", "path": f"/data/{index}", "value": "x"} for index in range(100)]
    after = jsonpatch.apply(document, patch)
    assert (document.copies, document["data"].copies) == (1, 1)
    assert len(after["data"]) == 101
    assert document == {"data": {"a": "1"}}


def test_a_refused_patch_changes_nothing() -> None:
    document = {"data": {"a": ["1"]}}
    patch = [
        {"op": "add", "path": "/data/a/-", "value": "2"},
        {"op": "remove", "path": "/data/b"},
    ]
    with pytest.raises(StatusError):
        jsonpatch.apply(document, patch)
    assert document == {"data": {"a": ["1"]}}


def test_a_value_of_the_patch_is_not_changed_by_a_later_operation() -> None:
    value = {"inner": {}}
    patch = [
        {"op": "add", "path": "/a", "value": value},
        {"op": "add", "path": "/a/inner/b", "value": 1},
    ]
    assert jsonpatch.apply({}, patch) == {"a": {"inner": {"b": 1}}}
    assert value == {"inner": {}}


def _containers(first: int) -> list[Any]:
    names = (ComparedText(f"c{index}") for index in range(first, first + MANY))
    return [{"name": name, "image": "vm:1"} for name in names]


@pytest.mark.parametrize("again", [0, MANY // 2, MANY], ids=["same", "half", "others"])
def test_lists_of_any_length_merge_in_linear_time(again: int) -> None:
    live, patch = {"containers": _containers(0)}, {"containers": _containers(again)}
    ComparedText.compared = 0
    after = strategic.apply(named("PodSpec"), live, patch)
    assert len(after["containers"]) == MANY + again
    assert ComparedText.compared < 40 * MANY


def test_sets_of_any_length_merge_in_linear_time() -> None:
    live = {"finalizers": [ComparedText(f"a/{index}") for index in range(MANY)]}
    patch = {"finalizers": [ComparedText(f"b/{index}") for index in range(MANY)]}
    ComparedText.compared = 0
    after = strategic.apply(named("ObjectMeta"), live, patch)
    assert len(after["finalizers"]) == 2 * MANY
    assert ComparedText.compared < 40 * MANY


def test_a_set_item_that_is_not_a_string_is_no_server_error() -> None:
    live = {"finalizers": ["a", "b", "a"]}
    after = strategic.apply(named("ObjectMeta"), live, {"finalizers": [["c"], {"d": 1}, "b"]})
    assert after["finalizers"] == [["c"], {"d": 1}, "a", "b"]


def test_long_keys_are_not_cached() -> None:
    before = fields._key_step.cache_info().currsize
    kind = named("PodSpec").member("containers")
    step = fields.item_step(kind, {"name": "n" * 10_000})
    assert step == 'k:{"name":"' + "n" * 10_000 + '"}'
    assert fields._key_step.cache_info().currsize == before
