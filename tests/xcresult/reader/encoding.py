"""Encodes typed objects as the format describes them, to test the decoder.

A value is a scalar `("String", "text")`, an array (a list), or an object `("Type", {...})`. The first use of a type
in a blob defines it, later uses name it.
"""

from typing import Any

SCALARS = ("String", "Int", "Double", "Bool", "Date", "URL", "Data", "UInt8")
Value = Any


def encode(value: Value, *, supertypes: dict[str, tuple[str, ...]] | None = None) -> bytes:
    return _Writer(supertypes or {}).value(value)


def plain(value: Value) -> Any:
    """Return the value that the decoder must return for it."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    name, content = value
    if isinstance(content, dict):
        return {"_type": name} | {key: plain(one) for key, one in content.items()}
    return content


class _Writer:
    def __init__(self, supertypes: dict[str, tuple[str, ...]]) -> None:
        self.supertypes = supertypes
        self.seen: set[str] = set()

    def value(self, value: Value) -> bytes:
        if isinstance(value, list):
            return b"[" + self.head("Array") + b"".join(self.value(one) for one in value) + b"]"
        name, content = value
        head = self.head(name)
        if isinstance(content, str):
            return b"[" + head + b"K2:_v" + token("V", content) + b"]"
        members = [token("K", key) + self.value(one) for key, one in content.items()]
        return b"[" + head + b"".join(members) + b"]"

    def head(self, name: str) -> bytes:
        if name in self.seen:
            return token("S", name)
        self.seen.add(name)
        definition = b""
        for one in reversed((name, *self.supertypes.get(name, ()))):
            inner = b"K2:_s" + definition if definition else b""
            definition = b"[K2:_n" + token("V", one) + inner + b"]"
        return b"T" + definition


def token(mark: str, text: str) -> bytes:
    data = text.encode()
    return f"{mark}{len(data)}:".encode() + data
