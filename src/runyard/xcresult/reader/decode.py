"""Typed objects: a compact text that describes itself.

```
object  = "[" head member* "]"
head    = "T" typedef | "S" LEN ":" NAME          ; first use of a type in this blob, later uses
typedef = "[" "K2:_n" "V" LEN ":" NAME [ "K2:_s" typedef ] "]"
member  = "K" LEN ":" KEY value | object          ; an object alone is an element of an Array
value   = object | "V" LEN ":" BYTES
```

A decoded object is a `Node`: a dict of its members, its type's name under `_type`. An Array is a list. A
scalar (an object whose only member is `_v`) is its text: numbers and dates stay text until somebody asks
(fields.py), since most of them are never asked for.

How it is fast: the blob becomes text once, one character for each byte, so that lengths are positions and a
slice is the value (only values beyond ASCII are decoded again). One regular expression takes all of a
scalar member up to its value, another one opens a member of a type that needs no supertype; what they took
for a head (`K4:name[S6:StringK2:_vV12:`) is checked against its lengths once, and remembered. Everything else
takes the slow road, token by token. What nobody wants is passed over without being built (exact.py).

Invariants:
- Lengths delimit, nothing else: values may hold brackets and colons. A head whose length does not fit what
  the fast road saw is read again on the slow one.
- Nothing but Malformed is raised, whatever the bytes; depth is bounded without recursion.
- Unknown types and members are kept.
"""

import re
from typing import Any, TypeVar

from runyard.xcresult.reader.exact import SCALAR_RUN

T = TypeVar("T")
Node = dict[str, Any]
"""A decoded object. Its values are strings, lists and nodes."""

DEPTH = 200
"""Levels of objects and arrays, as Limits has it."""
NODES = 5_000_000
"""Objects of one blob, scalars too. An empty one takes six bytes of the blob and forty times that in memory."""

# Loose and bounded, for speed and against texts that would be searched again and again: what they take for
# a head is judged by _HEAD and by its lengths before it counts.
_SCALAR = re.compile(r"K[^[]{1,60}\[(?:S[^K]{1,40}|T\[K2:_nV[^]]{1,40}\])K2:_vV[0-9]{1,12}:")
_OPENING = re.compile(r"(?:K[^[]{1,60})?\[(?:S[^]K[]{1,60}|T\[K2:_nV[^]]{1,60}\](?=[]K[]))")
_TOKEN = re.compile(r"[KSV]([0-9]{1,12}):")
_NAME = r"[0-9]{1,12}:\w+"
_HEAD = re.compile(rf"(K{_NAME})?\[(?:(S{_NAME})|T\[K2:_n(V{_NAME})\])(?:K2:_vV)?", re.ASCII)
_HEADS = 16384
"""Heads that are remembered; a real bundle has some thousands."""
SHORT = 3
"""Digits of the length of a value whose head is worth remembering."""
_scalars: dict[str, tuple[str, int]] = {}
_openings: dict[str, tuple[str, str]] = {}
OWN = ("_type", "_values")
"""What a node says of itself; a member of that name gets another."""


class Malformed(ValueError):
    """The bytes are no typed object."""


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
) -> Any:
    """The one object that `data` is. Members of the names in `passing` may be left out.

    An object of a type that is not among `known` goes by the name of its nearest supertype that is, so
    that a type that a later version derives from a known one is read as that.
    """
    if len(data) > nodes * len("[S1:A]") and data.count(b"[S") + data.count(b"[T") > nodes:
        raise Malformed(f"more than {nodes} objects in one")
    return _Decoder(data, known, depth, passing).run()


class _Decoder:
    def __init__(
        self, data: bytes, known: frozenset[str], depth: int, passing: frozenset[str]
    ) -> None:
        self.data = data
        self.text = data.decode("latin-1")
        self.known = known
        self.depth = depth
        self.passing = passing
        self.types: dict[str, str] = {}
        """A type of this blob and the name it goes by."""
        self.open: list[tuple[Node | list[Any], str]] = []
        """The objects around the one that is being read, and the key of the next one in each."""

    def run(self) -> Any:
        try:
            top, at = self.head(0)
            return self.members(top, at)
        except IndexError:
            raise Malformed("the object does not end") from None

    def members(self, top: Any, at: int) -> Any:
        """Everything up to the end of the outermost object, whose head ended at `at`."""
        text, data, scalars = self.text, self.data, _scalars
        opened, types = self.open, self.types
        scalar, opening, passing = _SCALAR.match, _OPENING.match, self.passing
        while True:
            if type(top) is dict:
                while found := scalar(text, at):
                    head = found[0]
                    key, length = scalars.get(head) or _scalar(head)
                    start = found.end()
                    end = start + length
                    if not key or text[end] != "]":  # the slow road will say what this is
                        break
                    value = text[start:end]
                    top[key] = value if value.isascii() else _utf8(data[start:end])
                    at = end + 1
            mark = text[at]
            if mark == "]":
                at += 1
                if not opened:
                    break
                value = _closed(top) if type(top) is dict and "_v" in top else top
                top, key = opened.pop()
                if type(top) is list:
                    top.append(value)
                elif key:
                    top[key] = value
                else:
                    _put(top, key, value)
                continue
            found = opening(text, at)
            names = _openings.get(found[0]) or _opening(found[0]) if found else None
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
        if at != len(text):
            raise Malformed(f"{len(text) - at} bytes after the object")
        return _closed(top)

    def passed(self, at: int) -> int:
        """Where the object ends whose head ended at `at`. Nothing is built of it, everything is counted."""
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
        """One member or element by the slow road; an object is opened and becomes the new top."""
        text = self.text
        key = ""
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
        """The name of a type that is defined at `at`, remembered with what it goes by."""
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
        return value if value.isascii() else _utf8(self.data[start:end]), end


def _put(top: Node | list[Any], key: str, value: Any) -> None:
    if isinstance(top, list):
        top.append(value)
    elif not key:  # an element of something that is no Array: a later version's kind of list
        top.setdefault("_values", []).append(value)
    else:
        top[key] = value


def _closed(top: Node | list[Any]) -> Any:
    """What an object that has been read to its end is: itself, or a scalar's text."""
    if isinstance(top, dict) and len(top) == 2 and "_v" in top:
        return top["_v"]
    return top


def _scalar(head: str) -> tuple[str, int]:
    """Key and length of a scalar's head, once all lengths are found to fit; no key when they do not."""
    start, _, length = head[:-1].rpartition("V")
    names = _opening(f"{start}V")
    if not names or not names[0]:
        return "", 0
    found = (names[0], int(length))
    if len(length) <= SHORT:  # long values are rare, and hardly two of them have the same length
        _remember(_scalars, head, found)
    return found


def _opening(head: str) -> tuple[str, str] | None:
    """Key and type of a head, as above; the key is empty for an element."""
    found = _HEAD.fullmatch(head)
    if found is None:
        return None
    key, kind = _named(found[1] or "K0:"), _named(found[2] or found[3])
    if key is None or kind is None or key in OWN:
        return None
    _remember(_openings, head, (key, kind))
    return key, kind


def _remember(known: dict[str, T], head: str, names: T) -> None:
    if len(known) >= _HEADS:  # somebody invents names: start again rather than grow or be blocked
        known.clear()
    known[head] = names


def _named(token: str) -> str | None:
    length, _, name = token[1:].partition(":")
    return name if int(length) == len(name) else None


def _utf8(value: bytes) -> str:
    """What is no UTF-8 is replaced, never fatal."""
    return value.decode("utf-8", "replace")
