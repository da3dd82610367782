"""Applies JSON patches (RFC 6902) as a real server does: `replace` of a missing member is allowed.

The document is copied along the paths of the operations, each part once, and shared everywhere else. If an operation
cannot be applied, or a test fails, the whole patch is refused.

The cost of a patch is bounded: the number of operations is limited, and so are the bytes that they copy, because
repeated copies of copies grow exponentially.
"""

from typing import Any

import msgspec

from runyard.embedded.kube.status import StatusError, bad_request, unprocessable

_LIMIT = 10_000
_COPIED = 3 << 20  # bytes of JSON, all copies of a patch together
_OPERATIONS = ("add", "remove", "replace", "move", "copy", "test")
_MEMBERS = ("op", "path", "from", "value")
_NOTHING = object()


class _Refused(Exception):
    """The patch does not apply."""


def checked(patch: Any) -> list[dict[str, Any]]:
    """Parses the operations; raises a 400 if that is not a list of them."""
    if not isinstance(patch, list):
        kind = "object" if isinstance(patch, dict) else "value"
        message = f"error decoding patch: json: cannot unmarshal {kind} into a list of operations"
        raise bad_request(message)
    if not all(isinstance(item, dict) for item in patch):
        raise bad_request("error decoding patch: json: an operation is not an object")
    if len(patch) > _LIMIT:
        raise StatusError(
            413,
            "RequestEntityTooLarge",
            f"The allowed maximum operations in a JSON patch is {_LIMIT}, got {len(patch)}",
        )
    return patch


def unknown(patch: list[dict[str, Any]]) -> list[str]:
    """Unknown members of operations."""
    return [
        f"[{index}].{key}"
        for index, item in enumerate(patch)
        for key in item
        if key not in _MEMBERS
    ]


def apply(document: Any, patch: list[dict[str, Any]]) -> Any:
    """The document after all operations; raises a 422 if one does not apply."""
    draft = _Draft(document)
    try:
        for item in patch:
            _one(draft, item)
    except _Refused:
        raise unprocessable() from None
    return draft.document


def _one(draft: "_Draft", item: dict[str, Any]) -> None:
    name, path = item.get("op"), item.get("path")
    if name not in _OPERATIONS or not isinstance(path, str):
        raise _Refused
    steps = _steps(path)
    if name == "test":
        if not _equal(_found(draft.document, steps, lenient=True), item.get("value")):
            raise _Refused
        return
    value = item.get("value")
    if name in ("move", "copy"):
        origin = _steps(item.get("from"))
        value = _found(draft.document, origin, lenient=name == "copy")
        if name == "copy":
            value = draft.copied(value)
        elif steps[: len(origin)] == origin and steps != origin:
            raise _Refused
        else:
            draft.edit(origin, None, "remove")
        name = "add"
    draft.edit(steps, value, name)


class _Draft:
    """A document that is being changed; parts shared with the original are copied first."""

    def __init__(self, document: Any) -> None:
        self.document = document
        self._own: dict[int, Any] = {}  # the parts that were created here, by identity
        self._copied = 0

    def copied(self, value: Any) -> Any:
        """A deep copy of a part."""
        text = msgspec.json.encode(value)
        self._copied += len(text)
        if self._copied > _COPIED:
            raise _Refused
        return msgspec.json.decode(text)

    def edit(self, steps: list[str], value: Any, name: str) -> None:
        """Adds, replaces or removes at one path."""
        if not steps:
            if name == "remove":
                raise _Refused
            self.document = value
            return
        part = self.document = self._owned(self.document)
        for step in steps[:-1]:
            part = self._stepped(part, step)
        if isinstance(part, dict):
            if name != "remove":
                part[steps[-1]] = value
            elif part.pop(steps[-1], _NOTHING) is _NOTHING:
                raise _Refused
        else:
            _edit_list(part, steps[-1], value, name)

    def _stepped(self, part: Any, step: str) -> Any:
        """The part that a step leads to, copied if it is shared."""
        if isinstance(part, list):
            index = _index(step, len(part) - 1)
            part[index] = found = self._owned(part[index])
        elif step in part:
            part[step] = found = self._owned(part[step])
        else:
            raise _Refused
        return found

    def _owned(self, part: Any) -> Any:
        if id(part) in self._own:
            return part
        if not isinstance(part, dict | list):
            raise _Refused
        made = part.copy()
        self._own[id(made)] = made
        return made


def _equal(one: Any, two: Any) -> bool:
    """Equality that distinguishes true and 1."""
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(_equal(one[key], two[key]) for key in one)
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(_equal, one, two))
    return isinstance(one, bool) == isinstance(two, bool) and bool(one == two)


def _steps(path: Any) -> list[str]:
    if not isinstance(path, str) or (path and not path.startswith("/")):
        raise _Refused
    return [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:]]


def _found(document: Any, steps: list[str], *, lenient: bool = False) -> Any:
    """The value at a path; a missing last member is null, if lenient."""
    for index, step in enumerate(steps):
        if isinstance(document, dict):
            if step not in document:
                if lenient and index == len(steps) - 1:
                    return None
                raise _Refused
            document = document[step]
        elif isinstance(document, list):
            document = document[_index(step, len(document) - 1)]
        else:
            raise _Refused
    return document


def _index(step: str, last: int) -> int:
    if not (step.isascii() and step.isdigit() and len(step) < 10) or int(step) > last:
        raise _Refused
    return int(step)


def _edit_list(part: list[Any], step: str, value: Any, name: str) -> None:
    if name == "add":
        part.insert(len(part) if step == "-" else _index(step, len(part)), value)
    elif name == "replace":
        part[_index(step, len(part) - 1)] = value
    else:
        del part[_index(step, len(part) - 1)]
