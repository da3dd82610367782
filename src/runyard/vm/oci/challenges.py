"""What a registry says in `WWW-Authenticate`: how it wants to be asked. Pure.

    Bearer realm="https://registry.example/token",service="registry.example",scope="repository:acme/macos:pull"
    Basic realm="Registry"

Invariants:
- Whatever a registry writes, reading it ends soon and raises nothing: what cannot be read is no challenge.
- The scope that is asked for has the action `pull` only, whatever the registry suggests.
"""

import re
from collections.abc import Iterable, Mapping

import msgspec

_LONGEST = 8192
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9-]*)(?=[\s,]|$)")
_PARAM = re.compile(r'([A-Za-z][A-Za-z0-9_-]*)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')
_ESCAPE = re.compile(r"\\(.)")
_SCOPE = re.compile(r"repository:([A-Za-z0-9._/-]{1,512}):[A-Za-z0-9_,*-]+")


class Challenge(msgspec.Struct, frozen=True):
    """One scheme with its parameters; both in lower case, values as they are."""

    scheme: str
    params: Mapping[str, str]


def challenges(headers: Iterable[str]) -> tuple[Challenge, ...]:
    """The challenges of all these header lines, in their order."""
    return tuple(each for header in headers for each in _of_line(header[:_LONGEST]))


def pull_scope(suggested: str, namespace: str) -> str:
    """The right to ask for: to pull from the repository that the registry names, else from this one."""
    found = _SCOPE.fullmatch(suggested)
    return f"repository:{found[1] if found else namespace}:pull"


def _of_line(text: str) -> list[Challenge]:
    found: list[Challenge] = []
    at = 0
    while at < len(text):
        if text[at] in " \t,":
            at += 1
        elif found and (param := _PARAM.match(text, at)):
            value = _ESCAPE.sub(r"\1", param[2]) if param[2] is not None else param[3]
            last = found[-1]
            found[-1] = Challenge(last.scheme, {param[1].lower(): value, **last.params})
            at = param.end()
        elif scheme := _SCHEME.match(text, at):
            found.append(Challenge(scheme[1].lower(), {}))
            at = scheme.end()
        else:
            break
    return found
