"""Changes values, types and shapes inside a typed object, so that it still decodes.

The edits of a recipe are applied to the decoded tree: `where` selects a place, `what` the change.
"""

from typing import Any

from tests.xcresult.hostile.mutating import Recipe
from tests.xcresult.reader.encoding import encode

from runyard.xcresult.reader.decode import decode

ODD = (
    "",
    "-1",
    "0",
    "nan",
    "inf",
    "1e400",
    "9" * 400,
    "true",
    "Failure",
    "Expected Failure",
    "RunRetryOnFailure",
    "2026-02-30T99:00:00.000+0000",
    "0001-01-01T00:00:00.000+2359",
    "9999-12-31T23:59:59.999-2359",
    "../../etc/passwd",
    "file:///a%00b#StartingLineNumber=99999999999999999999",
    "http://[::1",
    "\0\x1b[31m\r\n\u202e",
    "x" * 70_000,
    "All tests",
    ".xctest",
    "App (1) encountered an error",
    "Issues recorded without an associated test or suite",
    '◇ Test "a" with 3 test cases passed after 9999999999.5 seconds',
    "ActionTestSummaryGroup",
    "ActionTestMetadata",
    "Array",
)


def reshape(payload: bytes, recipe: Recipe) -> bytes:
    """Apply the recipe to the object."""
    root = decode(payload)
    for what, where, much, _ in recipe:
        places = list(_places(root))
        if places:
            container, key = places[where % len(places)]
            _change(container, key, what, much, root)
    return encode(_value(root))


def _places(node: Any) -> Any:
    """Every member and element below a node, as a container and its key."""
    waiting = [node]
    while waiting:
        container = waiting.pop()
        keys = range(len(container)) if isinstance(container, list) else list(container)
        for key in keys:
            yield container, key
            if isinstance(container[key], dict | list):
                waiting.append(container[key])


def _change(container: Any, key: Any, what: str, much: int, root: Any) -> None:
    if what == "flip" or (what == "cut" and key == "_type"):
        container[key] = ODD[much % len(ODD)]
    elif what == "cut":
        del container[key]
    elif what == "drop":
        container[key] = []
    elif what == "put":
        container[key] = {"_type": ODD[much % len(ODD)] or "X", "a": "b"}
    elif what == "insert":
        container[key] = [container[key]] * (much % 40)
    elif what == "repeat" and isinstance(container[key], list):
        container[key] = container[key] * (much % 20)
    elif what == "move":
        places = list(_places(root))
        other, name = places[much * 7919 % len(places)]
        found = other[name]
        if not isinstance(found, dict | list) or len(list(_places(found))) < 50:
            container[key] = _copied(found)


def _copied(node: Any) -> Any:
    if isinstance(node, list):
        return [_copied(one) for one in node]
    if isinstance(node, dict):
        return {key: _copied(one) for key, one in node.items()}
    return node


def _value(node: Any) -> Any:
    if isinstance(node, list):
        return [_value(one) for one in node]
    if isinstance(node, dict):
        kind = node.get("_type")
        members = {key: _value(one) for key, one in node.items() if key not in {"_type", "_v"}}
        return (kind if isinstance(kind, str) else "X", members)
    return ("String", node)
