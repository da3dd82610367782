"""JSON patch (RFC 6902), as a real server takes it: a member may be replaced that is not there yet.

The document is copied along the paths that an operation touches and shared everywhere else. A patch that cannot be
applied, or whose test fails, is one refusal for all of it: nothing of it is kept.
"""

from typing import Any

from runyard.embedded.kube.status import StatusError, bad_request, unprocessable

_LIMIT = 10_000
_OPERATIONS = ("add", "remove", "replace", "move", "copy", "test")
_MEMBERS = ("op", "path", "from", "value")


class _Refused(Exception):
    """The patch does not apply."""


def checked(patch: Any) -> list[dict[str, Any]]:
    """The operations; raises a 400 if that is no list of them."""
    if not isinstance(patch, list):
        kind = "object" if isinstance(patch, dict) else "value"
        told = f"error decoding patch: json: cannot unmarshal {kind} into a list of operations"
        raise bad_request(told)
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
    """Members of operations that mean nothing."""
    return [
        f"[{index}].{key}"
        for index, item in enumerate(patch)
        for key in item
        if key not in _MEMBERS
    ]


def apply(document: Any, patch: list[dict[str, Any]]) -> Any:
    """The document after all operations; raises a 422 if one does not apply."""
    try:
        for item in patch:
            document = _one(document, item)
    except _Refused:
        raise unprocessable() from None
    return document


def _one(document: Any, item: dict[str, Any]) -> Any:
    name, path = item.get("op"), item.get("path")
    if name not in _OPERATIONS or not isinstance(path, str):
        raise _Refused
    steps = _steps(path)
    if name == "test":
        if _equal(_found(document, steps, lenient=True), item.get("value")):
            return document
        raise _Refused
    if name in ("move", "copy"):
        origin = _steps(item.get("from"))
        value = _found(document, origin, lenient=name == "copy")
        if name == "move":
            if steps[: len(origin)] == origin and steps != origin:
                raise _Refused
            document = _edited(document, origin, None, "remove")
        return _edited(document, steps, value, "add")
    return _edited(document, steps, item.get("value"), name)


def _equal(one: Any, two: Any) -> bool:
    """Equal, with true and 1 apart."""
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
    """What is at that place; a last member that is not there is null, to those who are lenient."""
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


def _edited(document: Any, steps: list[str], value: Any, name: str) -> Any:
    if not steps:
        if name == "remove":
            raise _Refused
        return value
    if len(steps) > 1:
        return _deeper(document, steps, value, name)
    step = steps[0]
    if isinstance(document, dict):
        made = dict(document)
        if name != "remove":
            made[step] = value
        elif step in made:
            del made[step]
        else:
            raise _Refused
        return made
    if isinstance(document, list):
        return _edited_list(document, step, value, name)
    raise _Refused


def _deeper(document: Any, steps: list[str], value: Any, name: str) -> Any:
    step = steps[0]
    if isinstance(document, dict) and step in document:
        return {**document, step: _edited(document[step], steps[1:], value, name)}
    if isinstance(document, list):
        index = _index(step, len(document) - 1)
        made = list(document)
        made[index] = _edited(made[index], steps[1:], value, name)
        return made
    raise _Refused


def _edited_list(document: list[Any], step: str, value: Any, name: str) -> list[Any]:
    made = list(document)
    if name == "add":
        made.insert(len(made) if step == "-" else _index(step, len(made)), value)
    elif name == "replace":
        made[_index(step, len(made) - 1)] = value
    else:
        del made[_index(step, len(made) - 1)]
    return made
