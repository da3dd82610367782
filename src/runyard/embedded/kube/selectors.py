"""Label and field selectors: parsed once, matched often.

The grammar of labels and its error messages are those of a real server: `a`, `!a`, `a=b`, `a==b`, `a!=b`,
`a in (b,c)`, `a notin (b)`, `a>1`, `a<1`, joined by commas. Fields support `=`, `==` and `!=`, and only the fields
of their kind.

A `Selector` is immutable and cached by its text, because every list and watch of a loop sends the same text. `pin` is
the one equality that the watch fan-out can index by, so that a thousand agents that each watch "Pods on my node" do
not each read every Pod.
"""

import re
from functools import lru_cache
from typing import Any, Literal

import msgspec

from runyard.embedded.kube.resources import Object, Resource
from runyard.embedded.kube.rules.grammar import segment
from runyard.embedded.kube.status import StatusError, bad_request

Operator = Literal["in", "notin", "exists", "absent", "gt", "lt"]

_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_TOKEN = re.compile(r"\s*(?:(?P<mark>==|!=|[=!(),<>])|(?P<word>[^\s=!(),<>]+))")
_INTEGER = re.compile(
    r"([+-]?)0*([0-9]{1,19})"
)  # without leading zeros; Python refuses very long numbers
_FIELD = re.compile(r"(?P<key>.*?)(?P<op>!=|==|=)(?P<value>.*)", re.DOTALL)
_UNESCAPED = re.compile(r"\\(.)")
_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character"
)
_PINS = ("metadata.name", "spec.nodeName")
_BY_NAME = "metadata.name"
_INDEXED = (_BY_NAME, "spec.nodeName")  # a server has an index for these
_FLAGS = (("spec", "hostNetwork"), ("spec", "unschedulable"))  # absent: false
_LONGEST = 512  # the longest selector that is cached: those that programs repeat are short
_WORD_OPERATORS: dict[str, Operator] = {"in": "in", "notin": "notin", "gt": "gt", "lt": "lt"}
_MARK_OPERATORS: dict[str, Operator] = {
    "=": "in",
    "==": "in",
    "!=": "notin",
    ">": "gt",
    "<": "lt",
}


class Requirement(msgspec.Struct, frozen=True):
    """One condition on one label or field."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def holds(self, value: str | None) -> bool:
        """Whether a value (None: the key is absent) satisfies this condition."""
        if self.operator == "in":
            return value is not None and value in self.values
        if self.operator == "notin":
            return value is None or value not in self.values
        if self.operator in ("gt", "lt"):
            number, bound = _int64(value or ""), _int64(self.values[0])
            if number is None or bound is None:
                return False
            return number > bound if self.operator == "gt" else number < bound
        return (value is not None) == (self.operator == "exists")


class Selector(msgspec.Struct, frozen=True):
    """All conditions of a list or a watch."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[tuple[tuple[str, ...], Requirement], ...] = ()
    pin: tuple[str, str] | None = None

    def __bool__(self) -> bool:
        return bool(self.labels or self.fields)

    def reads(self, obj: Object) -> bool:
        """Whether the object is read at all: always, unless a name or a Node is selected."""
        for path, requirement in self.fields:
            if requirement.key in _INDEXED and requirement.operator == "in":
                return requirement.holds(field_value(obj, path))
        return True

    def matches(self, obj: Object) -> bool:
        """Whether the object satisfies every condition."""
        if self.labels:
            labels = obj["metadata"].get("labels") or {}
            for requirement in self.labels:
                if not requirement.holds(labels.get(requirement.key)):
                    return False
        for path, requirement in self.fields:
            if not requirement.holds(field_value(obj, path)):
                return False
        return True


def field_value(obj: Object, path: tuple[str, ...]) -> str:
    """The field's value for a selector: text, empty when absent."""
    value: Any = obj
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "false" if path in _FLAGS and obj.get("apiVersion") == "v1" else ""
    return str(value)


def parse(resource: Resource, labels: str, fields: str) -> Selector:
    """Parses both selectors; raises a 400 on an invalid selector or an unknown field of this kind."""
    if len(labels) + len(fields) > _LONGEST:
        return _parse(resource, labels, fields)
    return _cached(resource, labels, fields)


@lru_cache(maxsize=4096)
def _cached(resource: Resource, labels: str, fields: str) -> Selector:
    return _parse(resource, labels, fields)


def _parse(resource: Resource, labels: str, fields: str) -> Selector:
    parsed = _Labels(labels).read() if labels else ()
    named = tuple(_field(resource, part) for part in _split(fields) if part)
    pin = next(
        (
            (requirement.key, requirement.values[0])
            for _, requirement in named
            if requirement.operator == "in" and requirement.key in _PINS
        ),
        None,
    )
    return Selector(parsed, named, pin)


# ---- labels


class _Labels:
    """Parses a label selector from left to right."""

    def __init__(self, text: str) -> None:
        self._tokens = [match["mark"] or match["word"] for match in _TOKEN.finditer(text)]
        self._at = 0

    def read(self) -> tuple[Requirement, ...]:
        found: list[Requirement] = []
        while True:
            token = self._peek()
            if token == "" and not found:
                return ()
            if token != "!" and not _word(token):
                given = "identifier after ','" if found else "!, identifier, or 'end of string'"
                raise bad_request(f"found '{token}', expected: {given}")
            found.append(self._requirement())
            token = self._next()
            if token == "":
                return tuple(found)
            if token != ",":
                raise bad_request(f"found '{token}', expected: ',' or 'end of string'")
            if self._peek() != "!" and not _word(self._peek()):
                raise bad_request(f"found '{self._peek()}', expected: identifier after ','")

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def _requirement(self) -> Requirement:
        absent = self._peek() == "!"
        if absent:
            self._next()
        key = self._next()
        if not _word(key):
            raise _unparsed(f"found '{key}', expected: identifier")
        _check_key(key)
        if absent:
            return Requirement(key, "absent")
        if self._peek() in ("", ","):
            return Requirement(key, "exists")
        token = self._next()
        operator = _MARK_OPERATORS.get(token) or _WORD_OPERATORS.get(token)
        if operator is None:
            raise _unparsed(f"found '{token}', expected: in, notin, =, ==, !=, gt, lt")
        values = self._list() if token in ("in", "notin") else (self._exact(),)
        _check_values(key, operator, values)
        return Requirement(key, operator, values)

    def _exact(self) -> str:
        token = self._peek()
        if token in ("", ","):
            return ""
        if not _word(token):
            raise _unparsed(f"found '{token}', expected: identifier")
        return self._next()

    def _list(self) -> tuple[str, ...]:
        token = self._next()
        if token != "(":
            raise _unparsed(f"found '{token}' expected: '('")
        values: list[str] = []
        while True:
            token = self._next()
            if _word(token):
                values.append(token)
                token = self._next()
                if token not in (",", ")"):
                    raise _unparsed(f"found '{token}', expected: ',' or ')'")
            elif token in (",", ")"):
                values.append("")
            else:
                raise _unparsed(f"found '{token}', expected: ',', ')' or identifier")
            if token == ")":
                return tuple(dict.fromkeys(values))
            if self._peek() == ")":
                self._next()
                return tuple(dict.fromkeys([*values, ""]))


def _word(token: str) -> bool:
    return bool(token) and token not in ("!", "(", ")", ",", "=", "==", "!=", "<", ">")


def _unparsed(why: str) -> StatusError:
    return bad_request(f"unable to parse requirement: {why}")


def _check_key(key: str) -> None:
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        raise _unparsed(f'<nil>: Invalid value: "{key}": a valid label key {_RULE}')
    if slash and (len(prefix) > 253 or not _PREFIX.fullmatch(prefix)):
        raise _unparsed(f'<nil>: Invalid value: "{key}": prefix part must be a DNS subdomain')
    if len(name) > 63:
        raise _unparsed(f'<nil>: Invalid value: "{key}": name part must be no more than 63 bytes')
    if not _NAME.fullmatch(name):
        raise _unparsed(f'<nil>: Invalid value: "{key}": name part {_RULE}')


def _check_values(key: str, operator: Operator, values: tuple[str, ...]) -> None:
    """Refuse values that no label can have; two reasons are reported together, as a real API server does."""
    whys = []
    for index, value in enumerate(values):
        if operator in ("gt", "lt") and _int64(value) is None:
            why = "for 'Gt', 'Lt' operators, the value must be an integer"
            whys.append(f'values[{index}]: Invalid value: "{value}": {why}')
    for index, value in enumerate(values):
        if value and (len(value) > 63 or not _NAME.fullmatch(value)):
            why = "must be no more than 63 bytes" if len(value) > 63 else f"a valid label {_RULE}"
            whys.append(f'values[{index}][{key}]: Invalid value: "{value}": {why}')
    if whys:
        raise _unparsed(whys[0] if len(whys) == 1 else f"[{', '.join(whys)}]")


def _int64(text: str) -> int | None:
    """Return a number of 64 bits; None if the text is not one, as for a real API server."""
    found = _INTEGER.fullmatch(text)
    number = 0 if found is None else int("".join(found.groups()))
    return number if found is not None and -(1 << 63) <= number < 1 << 63 else None


# ---- fields


def _split(text: str) -> list[str]:
    """The parts between commas that are not escaped."""
    return re.split(r"(?<!\\),", text) if text else []


def _field(resource: Resource, text: str) -> tuple[tuple[str, ...], Requirement]:
    found = _term(text)
    if found.key not in resource.fields:
        raise bad_request(_not_known(resource, found.key))
    return tuple(found.key.split(".")), found


def _term(text: str) -> Requirement:
    match = _FIELD.fullmatch(text)
    if match is None:
        raise bad_request(f"invalid selector: '{text}'; can't understand '{text}'")
    key, given = match["key"], match["value"]
    if wrong := re.search(r"(?<!\\)[=,]", given):
        raise bad_request(f"invalid field selector: unescaped character in value: {ord(wrong[0])}")
    operator: Operator = "notin" if match["op"] == "!=" else "in"
    return Requirement(key, operator, (_UNESCAPED.sub(r"\1", given),))


def exact_name(text: str) -> str:
    """The single name that a field selector selects, if it is valid and does."""
    if _BY_NAME not in text:
        return ""
    try:
        found = [_term(part) for part in _split(text) if part]
    except StatusError:
        return ""
    names = (each.values[0] for each in found if each.key == _BY_NAME and each.operator == "in")
    name = next(names, "")
    return "" if segment(name) else name


def _not_known(resource: Resource, key: str) -> str:
    if not resource.custom and resource.fields == ("metadata.name", "metadata.namespace"):
        only = ", ".join(f'"{field}"' for field in resource.fields)
        return f'"{key}" is not a known field selector: only {only}'
    return f"field label not supported: {key}"
