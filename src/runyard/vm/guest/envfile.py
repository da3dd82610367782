"""Encodes a Pod's environment for its guest, in the file format of tart-kubelet and of its guests.

A line is `KEY=value`, with newline and carriage return as the two letters `\\n` and `\\r`; a backslash stays as it is.
Guests made for tart-kubelet read this file, and ours reads the files of tart-kubelet, so nothing else may be escaped.

In this format a value that already holds a backslash and an n means a newline. The line of such a value is followed by
a second one with the exact value, in octal: `KEY;eval export KEY=$'C:\\134new'`. Our `inject-env.sh` reads it as data.
The guests of tart-kubelet copy everything before the first `=` into a file for the shell and quote the rest, so there
the shell exports the exact value; a guest that skips the line still has the value as tart-kubelet would give it.
"""

import re
from collections.abc import Iterable

_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_EXACT = re.compile(rb"(?P<key>[A-Za-z_]\w*);eval export (?P=key)=\$'(?P<value>[^']*)'")
_NOT_PLAIN = re.compile(rb"[^ -~]|[\\']")
_OCTAL = re.compile(rb"\\([0-3][0-7][0-7])")


class BadEnvironment(ValueError):
    """A name or a value that is not possible in an environment."""


def encode(env: Iterable[tuple[str, str]]) -> bytes:
    """Encodes; of two values for one name the later wins, as in a Pod."""
    return b"".join(_lines(_key(key), _checked(key, value)) for key, value in dict(env).items())


def decode(data: bytes) -> dict[str, str]:
    """Decodes what `encode` or tart-kubelet wrote, as `inject-env.sh` does."""
    found: dict[str, str] = {}
    for line in data.split(b"\n"):
        key, equals, value = line.partition(b"=")
        if exact := _EXACT.fullmatch(line):
            found[exact["key"].decode()] = _text(_OCTAL.sub(_byte, exact["value"]))
        elif equals and _KEY.fullmatch(_text(key)):
            found[_text(key)] = _text(_unescaped(value))
    return found


def _lines(key: str, value: str) -> bytes:
    """One line, and a second one where the first does not give the value back."""
    name, plain = key.encode(), value.encode("utf-8", "surrogateescape")
    escaped = plain.replace(b"\n", b"\\n").replace(b"\r", b"\\r")
    line = name + b"=" + escaped + b"\n"
    if _unescaped(escaped) == plain and _one_line(_text(escaped)):
        return line
    return line + name + b";eval export " + name + b"=$'" + _octal(plain) + b"'\n"


def _unescaped(value: bytes) -> bytes:
    return value.replace(b"\\n", b"\n").replace(b"\\r", b"\r")


def _one_line(text: str) -> bool:
    """Whether Python, which reads the file in some guests, sees one line: to it a form feed ends one too."""
    return text in ("", *text.splitlines())


def _octal(value: bytes) -> bytes:
    return _NOT_PLAIN.sub(lambda found: b"\\%03o" % found.group()[0], value)


def _byte(found: re.Match[bytes]) -> bytes:
    return bytes([int(found[1], 8)])


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


def _key(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise BadEnvironment(f"{key!r} is not a valid name of an environment variable")
    return key


def _checked(key: str, value: str) -> str:
    if "\0" in value:
        raise BadEnvironment(f"the value of {key} holds a NUL")
    return value
