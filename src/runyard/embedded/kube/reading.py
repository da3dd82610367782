"""Reads and validates the parameters of a list or a watch as a real server does."""

import msgspec

from runyard.embedded.kube.status import (
    Cause,
    bad_request,
    bad_version,
    invalid_options,
)
from runyard.http.messages import Request

EXACT, NOT_OLDER = "Exact", "NotOlderThan"
_DIGITS = 18


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a read."""

    version_text: str = ""
    version: int = 0
    match: str = ""
    limit: int = 0
    continue_token: str = ""
    initial: bool | None = None  # sendInitialEvents
    bookmarks: bool = False
    seconds: int = 0

    @property
    def exact(self) -> bool:
        """Whether the list must show exactly that version; with a limit this is implied."""
        return self.match == EXACT or (not self.match and bool(self.limit and self.version))

    def check_list(self) -> None:
        """Raises 422 if the parameters contradict each other."""
        causes: list[Cause] = []
        if self.match:
            if not self.version_text:
                causes.append(_forbidden("is forbidden unless resourceVersion is provided"))
            if self.continue_token:
                causes.append(_forbidden("is forbidden when continue is provided"))
            if self.match not in (EXACT, NOT_OLDER):
                message = f'Unsupported value: "{self.match}": supported values: "{EXACT}", "{NOT_OLDER}", ""'
                causes.append(Cause("resourceVersionMatch", message, "FieldValueNotSupported"))
            elif self.match == EXACT and self.version_text == "0":
                causes.append(_forbidden('"exact" is forbidden for resourceVersion "0"'))
        if self.initial is not None:
            message = "Forbidden: sendInitialEvents is forbidden for list"
            causes.append(Cause("sendInitialEvents", message, "FieldValueForbidden"))
        if causes:
            raise invalid_options("ListOptions", causes)

    def check_watch(self) -> None:
        """Raises 422 if the parameters contradict each other."""
        causes: list[Cause] = []
        if self.initial is None:
            if self.match:
                message = "is forbidden for watch unless sendInitialEvents is provided"
                causes.append(_forbidden(message))
            if self.continue_token:
                causes.append(_forbidden("is forbidden when continue is provided"))
        elif self.match != NOT_OLDER:
            message = (
                f"Forbidden: sendInitialEvents requires setting resourceVersionMatch to {NOT_OLDER}"
            )
            causes.append(Cause("resourceVersionMatch", message, "FieldValueForbidden"))
            if self.match:
                message = f'Unsupported value: "{self.match}": supported values: "{NOT_OLDER}"'
                causes.append(Cause("resourceVersionMatch", message, "FieldValueNotSupported"))
        if causes:
            raise invalid_options("ListOptions", causes)


def _forbidden(why: str) -> Cause:
    message = f"Forbidden: resourceVersionMatch {why}"
    return Cause("resourceVersionMatch", message, "FieldValueForbidden")


def read_options(request: Request, *, listing: bool = True) -> ReadOptions:
    """The parameters of a read; raises if one cannot be parsed."""
    if not request.query:
        return _NONE
    given = dict(reversed(request.query))
    version = given.get("resourceVersion", "")
    if version and not _natural(version):
        raise bad_version(version, listing=listing)
    return ReadOptions(
        version_text=version,
        version=int(version or 0),
        match=given.get("resourceVersionMatch", ""),
        limit=max(_number(given.get("limit", "")), 0),
        continue_token=given.get("continue", ""),
        initial=_flag(given["sendInitialEvents"]) if "sendInitialEvents" in given else None,
        bookmarks=_flag(given.get("allowWatchBookmarks", "")),
        seconds=max(_number(given.get("timeoutSeconds", "")), 0),
    )


_NONE = ReadOptions()


def wants_watch(request: Request) -> bool:
    """Whether a read is a watch: by the first value of the parameter; any value but a false one counts."""
    for key, value in request.query:
        if key == "watch":
            return value.lower() not in ("false", "0")
    return False


def _natural(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS


def _number(text: str) -> int:
    if not text:
        return 0
    if not _natural(text.removeprefix("-")):
        raise bad_request(f'strconv.ParseInt: parsing "{text[:40]}": invalid syntax')
    return int(text)


def _flag(text: str) -> bool:
    return text.lower() in ("true", "1")
