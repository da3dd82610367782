"""Encodes a Pod's environment for its guest: one `KEY=value` per line, exactly invertible.

A value may hold anything but NUL. Backslash, newline and carriage return are escaped as two letters each; without the
escaped backslash, a value that holds a backslash and an n would be decoded as a newline.
The guest's `inject-env.sh` reads the same format.
"""

import re
from collections.abc import Iterable

_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r"}
_PLAIN = {"\\\\": "\\", "\\n": "\n", "\\r": "\r"}


class BadEnvironment(ValueError):
    """A name or a value that is not possible in an environment."""


def encode(env: Iterable[tuple[str, str]]) -> bytes:
    """Encodes; of two values for one name the later wins, as in a Pod."""
    lines = [f"{_key(key)}={_value(key, value)}\n" for key, value in dict(env).items()]
    return "".join(lines).encode("utf-8", "surrogateescape")


def decode(data: bytes) -> dict[str, str]:
    """Decodes what `encode` wrote."""
    found: dict[str, str] = {}
    for line in data.decode("utf-8", "surrogateescape").split("\n"):
        key, equals, value = line.partition("=")
        if equals and _KEY.fullmatch(key):
            found[key] = re.sub(r"\\[\\nr]", lambda match: _PLAIN[match.group()], value)
    return found


def _key(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise BadEnvironment(f"{key!r} is not a valid name of an environment variable")
    return key


def _value(key: str, value: str) -> str:
    if "\0" in value:
        raise BadEnvironment(f"the value of {key} holds a NUL")
    return re.sub(r"[\\\n\r]", lambda match: _ESCAPES[match.group()], value)
