"""Reads and validates the options of node calls as a real server does, and translates them for the kubelet API.

The names differ on both sides: `stdin=true` becomes `input=1`, `ports=80&ports=443` becomes `port=80,443`. The options
are sorted by name, and unknown ones are dropped.
"""

import re
from datetime import UTC, datetime

from runyard.embedded.kube.status import Cause, StatusError, bad_request, invalid_log, not_served
from runyard.http.messages import Pairs, Request

_STREAMS = (("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty"))
_FLAGS = ("follow", "previous", "timestamps")
_NUMBERS = ("sinceSeconds", "tailLines", "limitBytes")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_LARGEST = {16: (1 << 16) - 1, 64: (1 << 63) - 1}
_SECONDS = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:[.,]\d+)?(Z|[+-]\d\d:\d\d)")
_ZERO = "0001-01-01T00:00:00Z"
_FORBIDDEN = "FieldValueForbidden"


def log_query(request: Request, pod: str) -> Pairs:
    """The options of a log request; raises 400, 422 or 501."""
    given = {name: "true" for name in _FLAGS if _is_set(request, name)}
    numbers = {name: _number(request.param(name)) for name in _NUMBERS if _has(request, name)}
    if _has(request, "sinceTime"):
        given["sinceTime"] = _since_time(request.param("sinceTime"))
    if causes := _causes(request, numbers):
        raise invalid_log(pod, causes)
    if _is_set(request, "insecureSkipTLSVerifyBackend"):
        raise not_served(
            "insecureSkipTLSVerifyBackend: the certificate of a node is always verified"
        )
    given |= {name: str(number) for name, number in numbers.items()}
    return tuple(sorted(given.items()))


def stream_query(request: Request, *, command: bool) -> Pairs:
    """The options of an exec, or of an attach, which has no command."""
    given = [(theirs, "1") for ours, theirs in _STREAMS if _is_set(request, ours)]
    if command:
        given += [pair for pair in request.query if pair[0] == "command"]
    return tuple(
        sorted(given, key=lambda pair: pair[0])
    )  # a stable sort: the order of a command's words stays


def port_query(request: Request) -> Pairs:
    """The options of a port-forward; raises 400."""
    given = [port for key, value in request.query if key == "ports" for port in value.split(",")]
    try:
        ports = [_number(port, bits=16) for port in given]
    except StatusError as error:
        text = error.message.replace("ParseInt", "ParseUint")
        raise bad_request(f"cannot convert to []int32: {text}") from None
    return (("port", ",".join(str(port) for port in ports)),) if ports else ()


def _has(request: Request, name: str) -> bool:
    return any(key == name for key, _ in request.query)


def _is_set(request: Request, name: str) -> bool:
    """Whether a flag is on: it is present, and its first value is not false."""
    return _has(request, name) and request.param(name).lower() not in ("false", "0")


def _number(text: str, *, bits: int = 64) -> int:
    signless = bits == 16
    if not _INTEGER.fullmatch(text) or (signless and not text.isdecimal()):
        raise bad_request(f'strconv.ParseInt: parsing "{text[:64]}": invalid syntax')
    # A longer number is out of range; it is not parsed.
    value = int(text) if len(text) < 32 else _LARGEST[64] + 1
    if abs(value) > _LARGEST[bits]:
        raise bad_request(f'strconv.ParseInt: parsing "{text[:64]}": value out of range')
    return value


def _since_time(text: str) -> str:
    """A time in whole seconds of UTC."""
    if not text:
        return _ZERO
    found = _SECONDS.fullmatch(text)
    try:
        if found is None:
            raise ValueError(text)
        moment = datetime.fromisoformat(found[1] + found[2].replace("Z", "+00:00")).astimezone(UTC)
    except (ValueError, OverflowError):
        message = f'parsing time "{text[:64]}" as "2006-01-02T15:04:05Z07:00": cannot parse'
        raise bad_request(f'{message} "{text[:64]}" as "2006"') from None
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _causes(request: Request, numbers: dict[str, int]) -> list[Cause]:
    causes = []
    if (lines := numbers.get("tailLines", 0)) < 0:
        message = f"Invalid value: {lines}: must be greater than or equal to 0"
        causes.append(Cause("tailLines", message))
    if (size := numbers.get("limitBytes", 1)) < 1:
        causes.append(Cause("limitBytes", f"Invalid value: {size}: must be greater than 0"))
    seconds = numbers.get("sinceSeconds", 1)
    if "sinceSeconds" in numbers and _has(request, "sinceTime"):
        message = "Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified"
        causes.append(Cause("[]", message, _FORBIDDEN))
    elif seconds < 1:
        causes.append(Cause("sinceSeconds", f"Invalid value: {seconds}: must be greater than 0"))
    if _has(request, "stream"):
        causes.append(Cause("stream", "Forbidden: may not be specified", _FORBIDDEN))
    return causes
