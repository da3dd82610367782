"""Parses the untrusted YAML of a kubeconfig.

A kubeconfig is YAML (or JSON, which is YAML too) that may have been downloaded from anywhere. Before anything is
built from it, one pass over its events measures what it would become: a "billion laughs" file is a few hundred
bytes that expand to gigabytes, and a deeply nested one ends the interpreter.

Invariants:
- Bounded: bytes of the file, depth, and nodes *after* aliases are expanded. An alias inside of its own anchor is
  refused.
- The result has only mappings, lists, texts, booleans, whole numbers and `null`; any other tag is refused.
  Versions, dates and `on` stay texts.
- As with kubectl, a whole number where a text belongs is that text, and `null` is the same as leaving it out.
- The error message has the line and the column only: a parser's own message quotes the text, and with it secrets.
"""

import re
from pathlib import Path
from typing import Any

import yaml

from runyard.kube.config import ConfigError

MAX_BYTES = 4 << 20
MAX_DEPTH = 40
MAX_NODES = 100_000
FIX = "repair the file (`kubectl config view` shows how kubectl reads it)"

_TAG = "tag:yaml.org,2002:"
_KEPT_TAGS = tuple(_TAG + name for name in ("null", "bool", "int", "str", "seq", "map"))
_PLAIN = {
    "null": re.compile(r"^(?:~|null|Null|NULL|)$"),
    "bool": re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"),
    "int": re.compile(r"^(?:0|-?[1-9][0-9]{0,17})$"),
    "merge": re.compile(r"^<<$"),
}
_SURROGATE = re.compile("[\ud800-\udfff]")
_OPENING = (yaml.SequenceStartEvent, yaml.MappingStartEvent)
_CLOSING = (yaml.SequenceEndEvent, yaml.MappingEndEvent)


class _Loader(yaml.SafeLoader):
    """SafeLoader that resolves and builds only the types in `_KEPT_TAGS`."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - how the library is configured
        None: [(_TAG + name, pattern) for name, pattern in _PLAIN.items()]
    }
    yaml_constructors = {  # noqa: RUF012 - as above
        tag: build
        for tag, build in yaml.SafeLoader.yaml_constructors.items()
        if tag is None or tag in _KEPT_TAGS
    }


class _Measured:
    """How large and how deep the document is once its aliases are expanded."""

    def __init__(self) -> None:
        self._anchors: dict[str, tuple[int, int]] = {}
        self._open: list[list[Any]] = [["", 0, 0]]  # anchor, nodes below, height below

    def take(self, event: yaml.Event) -> str:
        """Account for one event; returns what is wrong, or nothing."""
        if isinstance(event, _OPENING):
            self._open.append([event.anchor or "", 1, 1])
        elif isinstance(event, _CLOSING):
            anchor, nodes, height = self._open.pop()
            self._add(anchor, nodes, height)
        elif isinstance(event, yaml.ScalarEvent):
            self._add(event.anchor or "", 1, 1)
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                return "uses an alias before its anchor is complete"
            self._add("", *self._anchors[event.anchor])
        if len(self._open) + self._open[-1][2] > MAX_DEPTH:
            return f"is nested deeper than {MAX_DEPTH} levels"
        if sum(level[1] for level in self._open) > MAX_NODES:
            return f"becomes more than {MAX_NODES} values"
        return ""

    def _add(self, anchor: str, nodes: int, height: int) -> None:
        if anchor:
            self._anchors[anchor] = (nodes, height)
        above = self._open[-1]
        above[1] += nodes
        above[2] = max(above[2], height + 1)


class TooLarge(ValueError):
    """A file is larger than the limit."""


def read_bounded(path: Path, *, limit: int = MAX_BYTES) -> bytes:
    """A whole file; `OSError` as usual, `TooLarge` if it is larger than the limit."""
    with path.open("rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise TooLarge(f"is larger than {limit} bytes")
    return data


def read_mapping(path: Path) -> dict[str, Any]:
    """The file's content as plain values; an empty file is an empty mapping. May raise `OSError`."""
    problem = ""
    value: Any = None
    try:
        value = _plain(_parsed(read_bounded(path).decode("utf-8-sig")))
    except UnicodeDecodeError:
        problem = "is not UTF-8 text"
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = f"is not valid YAML{place}"
    except (yaml.YAMLError, LookupError, RecursionError):
        problem = "is not valid YAML"
    except (_Refused, TooLarge) as error:
        problem = str(error)
    except ValueError:
        problem = "is not valid YAML"
    if not problem and value is not None and not isinstance(value, dict):
        problem = "is not a mapping"
    if problem:  # raised here, so that its context is no parser error that quotes the text
        raise ConfigError(problem, fix=FIX, file=str(path))
    return value or {}


class _Refused(Exception):
    """A text that is valid YAML and still not acceptable; the message holds none of it."""


def _parsed(text: str) -> Any:
    measured = _Measured()
    for event in yaml.parse(text, Loader=_Loader):
        if problem := measured.take(event):
            raise _Refused(f"{problem} (line {event.start_mark.line + 1})")
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def _plain(value: Any, *, opaque: bool = False) -> Any:
    """Leave out nulls and write whole numbers as texts, except in `extensions`, which are opaque."""
    if isinstance(value, dict):
        return {
            _text(str(key)): _plain(item, opaque=opaque or key == "extensions")
            for key, item in value.items()
            if item is not None or opaque
        }
    if isinstance(value, list):
        return [_plain(item, opaque=opaque) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and not opaque:
        return str(value)
    return _text(value) if isinstance(value, str) else value


def _text(value: str) -> str:
    if "\0" in value or _SURROGATE.search(value):
        raise _Refused("holds a character that no name, path or key can have")
    return value
