"""Checks the string formats that a schema may require. Unknown formats are not checked."""

import binascii
import ipaddress
import re
from base64 import b64decode
from collections.abc import Callable
from datetime import date
from urllib.parse import urlsplit
from uuid import UUID

_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_DURATION = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_WORDY_DURATION = re.compile(
    r"\d+ ?(ns|us|µs|μs|ms|s|m|h|d|w|nano|micro|milli|sec|min|hr|hour|day|week)s?"
)
_HOSTNAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?", re.ASCII)
_EMAIL = re.compile(r"[^@\s<>]+@[^@\s<>]+")
_MAC = re.compile(r"([0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}")


def _parses(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def check(value: str) -> bool:
        try:
            parse(value)
        except (ValueError, binascii.Error):
            return False
        return True

    return check


def _date_time(value: str) -> bool:
    return bool(_DATE_TIME.fullmatch(value)) and _parses(date.fromisoformat)(value[:10])


def _duration(value: str) -> bool:
    if value in ("0", "+0", "-0") or _WORDY_DURATION.fullmatch(value):
        return True
    rest = value.lstrip("+-")
    return bool(rest) and re.sub(_DURATION, "", rest) == ""


def _hostname(value: str) -> bool:
    return len(value) <= 255 and all(_HOSTNAME.fullmatch(part) for part in value.split("."))


def _uri(value: str) -> bool:
    try:
        parts = urlsplit(value)
    except ValueError:
        return False
    return bool(parts.scheme) or value.startswith("/")


def _uuid(value: str) -> bool:
    return _parses(UUID)(value) and len(value) in (32, 36)


FORMATS: dict[str, Callable[[str], bool]] = {
    "date-time": _date_time,
    "datetime": _date_time,
    "date": lambda value: len(value) == 10 and _parses(date.fromisoformat)(value),
    "duration": _duration,
    "uri": _uri,
    "ipv4": _parses(ipaddress.IPv4Address),
    "ipv6": _parses(ipaddress.IPv6Address),
    "cidr": lambda value: (
        "/" in value and _parses(lambda v: ipaddress.ip_network(v, strict=False))(value)
    ),
    "uuid": _uuid,
    "byte": _parses(lambda value: b64decode(value, validate=True)),
    "hostname": _hostname,
    "email": lambda value: bool(_EMAIL.fullmatch(value)),
    "mac": lambda value: bool(_MAC.fullmatch(value)),
}
