"""Converts members of decoded objects: text to numbers, times, references.

Objects omit absent and default members, and untrusted ones may have any content. So nothing here raises: a member of
the wrong form counts as absent.
"""

from datetime import datetime

from runyard.xcresult.reader.decode import Node

LARGEST = 1e18
"""Larger than any real number in a bundle: seconds, bytes, instructions."""


def brief(value: str) -> str:
    """Make an untrusted text safe for one line of a message."""
    return ascii(value if len(value) <= 120 else value[:117] + "...")


def text(node: Node, key: str) -> str:
    """A scalar's text; empty when absent."""
    value = node.get(key)
    return value if isinstance(value, str) else ""


def whole(node: Node, key: str) -> int:
    """A whole number; 0 when absent. Numbers beyond 64 bits count as absent."""
    try:
        value = int(text(node, key) or 0)
    except ValueError:
        return 0
    return value if abs(value) < 1 << 63 else 0


def number(node: Node, key: str) -> float:
    """A finite number; 0.0 when absent."""
    return some_number(text(node, key)) or 0.0


def some_number(value: str) -> float | None:
    """The number in a text, if it is plausible, so that sums stay finite."""
    try:
        found = float(value)
    except ValueError:
        return None
    return found if abs(found) < LARGEST else None


def maybe_number(node: Node, key: str) -> float | None:
    """A finite number; None when absent."""
    return some_number(text(node, key)) if key in node else None


def flag(node: Node, key: str) -> bool:
    """A truth value; False when absent."""
    return node.get(key) == "true"


def when(node: Node, key: str) -> float | None:
    """A time in seconds since 1970; None when absent."""
    value = text(node, key)
    if not value:
        return None
    try:
        moment = datetime.fromisoformat(value)
        return moment.timestamp() if moment.tzinfo else None
    except (ValueError, OverflowError):
        return None


def child(node: Node, key: str) -> Node:
    """An object inside; an empty one when absent."""
    value = node.get(key)
    return value if isinstance(value, dict) else {}


def children(node: Node, key: str) -> list[Node]:
    """The objects of an array inside; none when absent."""
    value = node.get(key)
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def texts(node: Node, key: str) -> tuple[str, ...]:
    """The scalars of an array inside."""
    value = node.get(key)
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else ()


def kind(node: Node) -> str:
    """The type's name."""
    value = node.get("_type")
    return value if isinstance(value, str) else ""


def reference(node: Node, key: str) -> str:
    """The id of the object that a member points at; empty when it points at none."""
    return text(child(node, key), "id")


def pairs(node: Node, key: str) -> tuple[tuple[str, str], ...]:
    """A sorted key-value array as pairs."""
    storage = children(child(node, key), "storage")
    return tuple((text(pair, "key"), text(pair, "value")) for pair in storage)
