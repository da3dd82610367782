"""Objects of every kind, with every field of their messages or with some of them."""

import random
from typing import Any

from runyard.embedded.kube.protobuf.messages import Field, Message, message

_DEEPEST = 3  # schemas in schemas
_SCALARS: dict[str, Any] = {
    "s": "text é",
    "b": True,
    "i": -7,
    "l": 1 << 40,
    "f": 1.5,
    "q": "1500m",
    "t": "2023-11-14T22:13:20Z",
    "u": "2023-11-14T22:13:20.005000Z",
    "y": "AP8=",
    "json": {"f:a": {}, "b": [1, "x"]},
}
_EMPTY: dict[str, Any] = {"s": "", "b": False, "i": 0, "l": 0, "f": 0, "q": "0"}


class Samples:
    """Makes objects; `share` of their fields are there, and some of those are empty."""

    def __init__(self, rng: random.Random, share: float) -> None:
        self._rng = rng
        self._share = share

    def of(self, name: str, depth: int = 0) -> dict[str, Any]:
        """A message as JSON."""
        return self._members(message(name), depth)

    def _members(self, known: Message, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for field in known.fields.values():
            if field.inside is not None:
                found |= self._members(field.inside, depth)
            elif (
                self._rng.random() < self._share
                and (made := self._member(field, depth)) is not None
            ):
                found[field.name] = made
        return found

    def _member(self, field: Field, depth: int) -> Any:
        core = field.core
        if core[0] == "[":
            return [self._value(core[1:-1], depth) for _ in range(2)]
        if core[0] == "{":
            inside = core[1:-1]
            made = (["x", "y"] if inside == "[s]" else self._value(inside, depth) for _ in "ab")
            return dict(zip(("b", "a"), made, strict=True))
        if field.pointer and core in _EMPTY and self._rng.random() < 0.2:
            return _EMPTY[core]
        return self._value(core, depth)

    def _value(self, core: str, depth: int) -> Any:
        if core[0].isupper():
            deeper = depth + (core == "JSONSchemaProps")
            return self.of(core, deeper) if deeper < _DEEPEST else {}
        if core == "o":
            return self._rng.choice((8080, "http"))
        if core in ("many", "flag", "texts"):
            other = {
                "many": [{}, {"type": "string"}],
                "flag": self._rng.random() < 0.5,
                "texts": ["x"],
            }
            return self._rng.choice(({"type": "integer"}, other[core]))
        return _SCALARS[core]
