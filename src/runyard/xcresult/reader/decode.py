"""Decodes typed objects: a compact, self-describing text.

```
object  = "[" head member* "]"
head    = "T" typedef | "S" LEN ":" NAME          ; first use of a type in this blob, later uses
typedef = "[" "K2:_n" "V" LEN ":" NAME [ "K2:_s" typedef ] "]"
member  = "K" LEN ":" KEY value | object          ; an object alone is an element of an Array
value   = object | "V" LEN ":" BYTES
```

A decoded object is a `Node`: a dict of its members, its type's name under `_type`. An Array is a list. A scalar (an
object whose only member is `_v`) is its text: numbers and dates are converted on use (fields.py), because most of them
are never used.

For speed, the blob is decoded to text once, one character for each byte, so that lengths are positions and a slice is
the value (only values beyond ASCII are decoded again). One regular expression matches a scalar member up to its value,
another one opens a member of a type that needs no supertype; a matched head (`K4:name[S6:StringK2:_vV12:`) is checked
against its lengths once, and cached. Everything else is decoded token by token, on the slow path. Members that are not
needed are skipped without being built (scalar_pattern.py).

Invariants:
- Only lengths delimit: values may contain brackets and colons. A head whose length does not match what the fast path
  saw is decoded again on the slow path.
- Nothing but Malformed and TooLarge is raised, whatever the bytes; depth is bounded without recursion.
- Unknown types and members are kept.
- The memory of what is built is counted while it is built (weighing.py), so that an object that does not fit is refused
  before it is complete.
"""

import re
from typing import Any, TypeVar

from runyard.xcresult.reader.budget import NODE, SLOW_MEMBER, TYPED_KIB, Budget
from runyard.xcresult.reader.scalar_pattern import SCALAR_RUN
from runyard.xcresult.reader.weighing import STEP, STRING, Weight, weighed

T = TypeVar("T")
Node = dict[str, Any]
"""A decoded object. Its values are strings, lists and nodes."""

DEPTH = 200
"""Levels of objects and arrays, as Limits has it."""
NODES = 1_500_000
"""Objects of one blob, scalars too. An empty one takes six bytes of the blob and forty times that in memory."""

# Loose for speed, and bounded so that no text is searched repeatedly. A match is accepted as a head only after
# it matched _HEAD and its lengths were checked.
_SCALAR = re.compile(r"K[^[]{1,60}\[(?:S[^K]{1,40}|T\[K2:_nV[^]]{1,40}\])K2:_vV[0-9]{1,12}:")
_OPENING = re.compile(r"(?:K[^[]{1,60})?\[(?:S[^]K[]{1,60}|T\[K2:_nV[^]]{1,60}\](?=[]K[]))")
_TOKEN = re.compile(r"[KSV]([0-9]{1,12}):")
_NAME = r"[0-9]{1,12}:\w+"
_HEAD = re.compile(rf"(K{_NAME})?\[(?:(S{_NAME})|T\[K2:_n(V{_NAME})\])(?:K2:_vV)?", re.ASCII)
_HEADS = 16384
"""Largest number of cached heads; a real bundle has some thousands."""
SHORT = 3
"""Largest number of digits of a value's length for which the head is cached."""
_scalars: dict[str, tuple[str, int]] = {}
_openings: dict[str, tuple[str, str]] = {}
OWN = ("_type", "_values")
"""The key of a node's type name; a member with this name gets another key."""


class Malformed(ValueError):
    """The bytes are not a typed object."""


def is_typed(data: bytes) -> bool:
    """Whether a payload is a typed object, by its first bytes."""
    return data.startswith(b"[T[")


def decode(
    data: bytes,
    *,
    known: frozenset[str] = frozenset(),
    depth: int = DEPTH,
    nodes: int = NODES,
    passing: frozenset[str] = frozenset(),
    budget: Budget | None = None,
) -> Any:
    """Decode the object in `data`. Members with names in `passing` may be skipped; the work is spent from `budget`.

    An object whose type is not in `known` gets the name of its nearest supertype in `known`, so that a subtype
    that a later version adds is read as its known supertype.
    """
    count = data.count(b"[S") + data.count(b"[T")
    if count > nodes:
        raise Malformed(f"more than {nodes} objects in one")
    spending = budget or Budget()
    weight = Weight(spending, len(data))
    decoder = _Decoder(data, known, depth, passing, nodes, weight)
    spending.spend(count * NODE)
    spending.spend_kib(len(data), TYPED_KIB)
    try:
        return decoder.run()
    finally:
        spending.spend(decoder.slow * SLOW_MEMBER)


class _Decoder:
    def __init__(
        self,
        data: bytes,
        known: frozenset[str],
        depth: int,
        passing: frozenset[str],
        most: int,
        weight: Weight,
    ) -> None:
        self.data = data
        self.text = data.decode("latin-1")
        self.known = known
        self.depth = depth
        self.passing = passing
        self.most = most
        self.weight = weight
        self.slow = 0
        """Members that were decoded on the slow path; values without a type are not among the counted objects."""
        self.types: dict[str, str] = {}
        """The types of this blob, each with the name that its objects get."""
        self.open: list[tuple[Node | list[Any], str]] = []
        """The objects around the current one, and the key of the next member in each."""

    def run(self) -> Any:
        try:
            top, at = self.head(0)
            return self.members(top, at)
        except IndexError:
            raise Malformed("the object does not end") from None

    def members(self, top: Any, at: int) -> Any:
        """Decode all members up to the end of the outermost object, whose head ended at `at`."""
        text, scalars = self.text, _scalars
        opened, types = self.open, self.types
        scalar, opening, passing = _SCALAR.match, _OPENING.match, self.passing
        closed, stop = 0, STEP
        while True:
            if type(top) is dict:
                while at < stop and (found := scalar(text, at)):
                    head = found[0]
                    key, length = scalars.get(head) or self.scalar(head)
                    start = found.end()
                    end = start + length
                    if not key or text[end] != "]":  # the slow path decides what this is
                        break
                    value = text[start:end]
                    top[key] = value if value.isascii() else self.utf8(start, end)
                    at = end + 1
            if at >= stop:
                self.weight.check(at, closed, top, opened)
                stop = at + STEP
                continue
            mark = text[at]
            if mark == "]":
                at += 1
                value = _closed(top) if type(top) is dict and "_v" in top else top
                closed += STRING if type(value) is str else weighed(value)
                if not opened:
                    return self.ended(value, at, closed)
                top, key = opened.pop()
                if type(top) is list:
                    top.append(value)
                elif key:
                    top[key] = value
                else:
                    _put(top, key, value)
                continue
            found = opening(text, at)
            names = _openings.get(found[0]) or self.opening(found[0]) if found else None
            if found and names:
                if names[0] in passing:
                    at = self.passed(found.end())
                    continue
                opened.append((top, names[0]))
                kind = names[1]
                top = [] if kind == "Array" else {"_type": types.get(kind, kind)}
                at = found.end()
            else:
                top, at = self.member(top, at)
            if len(opened) > self.depth:
                raise Malformed(f"more than {self.depth} levels")

    def ended(self, value: Any, at: int, closed: int) -> Any:
        """The outermost object, which ended at `at`; it has `closed` bytes in memory."""
        if at != len(self.text):
            raise Malformed(f"{len(self.text) - at} bytes after the object")
        self.weight.keep(closed)
        return value

    def passed(self, at: int) -> int:
        """Skip the object whose head ended at `at` and return its end. Nothing is built, but everything is counted."""
        text, scalars, opening = self.text, SCALAR_RUN.match, _OPENING.match
        around = len(self.open)
        level = 1
        while level:
            if found := scalars(text, at):
                at = found.end()
            if text[at] == "]":
                at += 1
                level -= 1
                continue
            found = opening(text, at)
            if found and (found[0] in _openings or _opening(found[0])):
                at = found.end()
                level += 1
            else:
                _, at = self.member({}, at)
                level += len(self.open) - around
                del self.open[around:]
            if around + level > self.depth:
                raise Malformed(f"more than {self.depth} levels")
        return at

    def member(self, top: Node | list[Any], at: int) -> tuple[Node | list[Any], int]:
        """Decode one member or element on the slow path; an object is opened and becomes the new top of the stack."""
        text = self.text
        key = ""
        self.slow += 1
        self.weight.texts += STRING
        if self.slow > self.most:
            raise Malformed(f"more than {self.most} members in one object")
        if text[at] == "K":
            if type(top) is list:
                raise Malformed(f"a property in an array at byte {at}")
            key, at = self.token(at, "K")
            if key in OWN:
                key = f"_{key}"
            if text[at : at + 1] == "V":
                value, at = self.token(at, "V")
                _put(top, key, value)
                return top, at
            if text[at : at + 1] != "[":
                raise Malformed(f"a property without a value at byte {at}")
        elif text[at] != "[":
            raise Malformed(f"unexpected {text[at]!r} at byte {at}")
        self.open.append((top, key))
        return self.head(at)

    def head(self, at: int) -> tuple[Node | list[Any], int]:
        """Open the object at `at`."""
        if self.text[at] != "[":
            raise Malformed("no typed object")
        mark = self.text[at + 1 : at + 2]
        if mark == "T":
            name, at = self.typedef(at + 2)
        elif mark == "S":
            name, at = self.token(at + 1, "S")
        else:
            raise Malformed(f"an object without a type at byte {at}")
        if name == "Array":
            return [], at
        return {"_type": self.types.get(name, name)}, at

    def typedef(self, at: int) -> tuple[str, int]:
        """Decode the type definition at `at`, and store the name that its objects get."""
        text = self.text
        chain: list[str] = []
        while True:
            if text[at : at + 6] != "[K2:_n":
                raise Malformed(f"a type without a name at byte {at}")
            name, at = self.token(at + 6, "V")
            chain.append(name)
            if text[at : at + 5] != "K2:_s":
                break
            at += 5
            if len(chain) >= self.depth:
                raise Malformed(f"more than {self.depth} supertypes")
        end = at + len(chain)
        if text[at:end] != "]" * len(chain):
            raise Malformed(f"a type that does not end at byte {at}")
        nearest = ""
        for name in reversed(chain):
            nearest = name if name in self.known else nearest
            self.types[name] = nearest or name
        return chain[0], end

    def token(self, at: int, mark: str) -> tuple[str, int]:
        """The text of the token at `at`, and where it ends."""
        text = self.text
        found = _TOKEN.match(text, at)
        if found is None or text[at] != mark:
            raise Malformed(f"no {mark} at byte {at}")
        start = found.end()
        end = start + int(found[1])
        if end > len(text):
            raise Malformed(f"a value that ends after the last byte, at byte {at}")
        value = text[start:end]
        return value if value.isascii() else self.utf8(start, end), end

    def scalar(self, head: str) -> tuple[str, int]:
        """As `_scalar`, for a head that is not cached: its key is a string of its own."""
        self.weight.texts += STRING + len(head)
        return _scalar(head)

    def opening(self, head: str) -> tuple[str, str] | None:
        """As `_opening`, for a head that is not cached: its key and its type are strings of their own."""
        self.weight.texts += STRING + len(head)
        return _opening(head)

    def utf8(self, start: int, end: int) -> str:
        """Decode UTF-8 and replace invalid bytes. One character may make all others wide, and much memory is used."""
        if end - start > STEP:
            self.weight.wide(end - start)
        value = self.data[start:end].decode("utf-8", "replace")
        self.weight.texts += value.__sizeof__()
        return value


def _put(top: Node | list[Any], key: str, value: Any) -> None:
    if isinstance(top, list):
        top.append(value)
    elif not key:  # an element of an object that is not an Array: a kind of list of a later version
        top.setdefault("_values", []).append(value)
    else:
        top[key] = value


def _closed(top: Node | list[Any]) -> Any:
    """Return the value of a completely read object: the object itself, or a scalar's text."""
    if isinstance(top, dict) and len(top) == 2 and "_v" in top:
        return top["_v"]
    return top


def _scalar(head: str) -> tuple[str, int]:
    """Return key and length of a scalar's head if all lengths match; otherwise an empty key."""
    start, _, length = head[:-1].rpartition("V")
    names = _opening(f"{start}V")
    if not names or not names[0]:
        return "", 0
    found = (names[0], int(length))
    if len(length) <= SHORT:  # long values are rare and hardly ever have the same length
        _remember(_scalars, head, found)
    return found


def _opening(head: str) -> tuple[str, str] | None:
    """Return key and type of a head if all lengths match; the key is empty for an element."""
    found = _HEAD.fullmatch(head)
    if found is None:
        return None
    key, kind = _named(found[1] or "K0:"), _named(found[2] or found[3])
    if key is None or kind is None or key in OWN:
        return None
    _remember(_openings, head, (key, kind))
    return key, kind


def _remember(known: dict[str, T], head: str, names: T) -> None:
    if len(known) >= _HEADS:  # hostile input with many names: clear the cache instead of growing
        known.clear()
    known[head] = names


def _named(token: str) -> str | None:
    length, _, name = token[1:].partition(":")
    return name if int(length) == len(name) else None
