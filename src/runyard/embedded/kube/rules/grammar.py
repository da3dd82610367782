"""Checks names, label keys and values, and renders the causes of violations."""

import json
import re
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

from runyard.embedded.kube.status import Cause

_SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_QUALIFIED = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_DATA_KEY = re.compile(r"[A-Za-z0-9_.-]+")
_PORT_NAME = re.compile(r"[a-z0-9-]+")
_LEADING_ZERO = re.compile(r"(^|[./])0[0-9]")
_LONGEST = 317  # the longest prefix, slash and name; longer ones are not cached
_LOWER = "lower-case letters, digits and '-'"
_BOTH_ENDS = "with a letter or digit at both ends"


def invalid(field: str, value: str, why: str) -> Cause:
    """An invalid value."""
    return Cause(field, f'Invalid value: "{value}": {why}')


def invalid_value(field: str, value: Any, why: str) -> Cause:
    """An invalid value that is not a string."""
    return Cause(field, f"Invalid value: {json.dumps(value, separators=(',', ':'))}: {why}")


def required(field: str, why: str = "") -> Cause:
    """A required value is missing."""
    given = f"Required value: {why}" if why else "Required value"
    return Cause(field, given, "FieldValueRequired")


def forbidden(field: str, why: str) -> Cause:
    """A value that is forbidden or immutable."""
    return Cause(field, f"Forbidden: {why}", "FieldValueForbidden")


def duplicate(field: str, value: str) -> Cause:
    """A duplicate value."""
    return Cause(field, f'Duplicate value: "{value}"', "FieldValueDuplicate")


def missing(field: str, name: str, why: str = "") -> Cause:
    """A name that does not exist."""
    message = f'Not found: "{name}"'
    return Cause(field, f"{message}: {why}" if why else message, "FieldValueNotFound")


def too_long(field: str, limit: int) -> Cause:
    """A value that is too long."""
    return Cause(field, f"Too long: may not be more than {limit} bytes", "FieldValueTooLong")


def unsupported(field: str, value: str, among: Iterable[str]) -> Cause:
    """An unsupported value."""
    shown = ", ".join(f'"{each}"' for each in among)
    message = f'Unsupported value: "{value}": supported values: {shown}'
    return Cause(field, message, "FieldValueNotSupported")


# ---- names


def subdomain(name: str) -> str:
    """Why that is no DNS name; empty if it is one."""
    if len(name) > 253:
        return "must be no more than 253 characters"
    if not _SUBDOMAIN.fullmatch(name):
        return f"a DNS name has parts of {_LOWER}, {_BOTH_ENDS}, joined by dots"
    return ""


def label(name: str) -> str:
    """Why that is no DNS label; empty if it is one."""
    if len(name) > 63:
        return "must be no more than 63 characters"
    if not _LABEL.fullmatch(name):
        return "must not contain dots" if subdomain(name) == "" else f"{_LOWER}, {_BOTH_ENDS}"
    return ""


def segment(name: str) -> str:
    """Why that cannot be a part of a path; empty if it can."""
    if name in (".", ".."):
        return f"may not be '{name}'"
    return next((f"may not contain '{mark}'" for mark in "/%" if mark in name), "")


def qualified(key: str) -> str:
    """Why that is not a qualified name (`name` or `prefix/name`); empty if it is."""
    return _qualified(key) if len(key) <= _LONGEST else _why_not_qualified(key)


def _why_not_qualified(key: str) -> str:
    prefix, slash, name = key.rpartition("/")
    if slash and not prefix:
        return "prefix part must be non-empty"
    if slash and (why := subdomain(prefix)):
        return f"prefix part {why}"
    if not name:
        return "name part must be non-empty"
    if len(name) > 63:
        return "name part must be no more than 63 bytes"
    if not _QUALIFIED.fullmatch(name):
        return f"name part has letters, digits, '-', '_' and '.', {_BOTH_ENDS}"
    return ""


_qualified = lru_cache(maxsize=8192)(_why_not_qualified)


def label_value(value: str) -> str:
    """Why that is no value of a label; empty if it is one."""
    return _label_value(value) if len(value) <= 63 else "must be no more than 63 bytes"


@lru_cache(maxsize=8192)
def _label_value(value: str) -> str:
    if value and not _QUALIFIED.fullmatch(value):
        return f"a label is empty or has letters, digits, '-', '_' and '.', {_BOTH_ENDS}"
    return ""


def data_key(key: str) -> str:
    """Why that is no key of a ConfigMap or a Secret; empty if it is one."""
    if len(key) > 253:
        return "must be no more than 253 characters"
    if not _DATA_KEY.fullmatch(key):
        return "a key has letters, digits, '-', '_' and '.'"
    return "may not be '.' or '..'" if key in (".", "..") else ""


def labels(field: str, given: dict[str, str]) -> list[Cause]:
    """Validates a map of labels."""
    causes: list[Cause] = []
    for key, value in given.items():
        if why := qualified(key):
            causes.append(invalid(field, key, why))
        if why := label_value(value):
            causes.append(invalid(field, value, why))
    return causes


# ---- ports, paths and addresses


def port(field: str, number: int) -> list[Cause]:
    """Validates the number of a port."""
    fits = 1 <= number <= 65535
    return [] if fits else [invalid_value(field, number, "must be between 1 and 65535, inclusive")]


def port_name(name: str) -> str:
    """Why no port can have that name; empty if one can."""
    if len(name) > 15:
        return "must be no more than 15 characters"
    if not _PORT_NAME.fullmatch(name):
        return "a name of a port has letters (a-z), digits and '-'"
    if "--" in name:
        return "must not contain consecutive hyphens"
    if name[0] == "-" or name[-1] == "-":
        return "must not begin or end with a hyphen"
    return "" if any("a" <= each <= "z" for each in name) else "must contain a letter (a-z)"


def contains_dotdot(path: str) -> bool:
    """Whether a path contains `..`."""
    return ".." in path and ".." in path.split("/")


def relative_path(path: str) -> str:
    """Why that is no relative path without `..`; empty if it is one."""
    if path.startswith("/"):
        return "must be a relative path"
    return "must not contain '..'" if contains_dotdot(path) else ""


def address(given: str) -> str:
    """Why that is no IP address; empty if it is one."""
    try:
        found = ip_address(given)
    except ValueError:
        form = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
        return "must not have leading 0s" if _zeros(given) else form
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        return "must not be an IPv4-mapped IPv6 address"
    return ""


def network(given: str) -> str:
    """Why that is no network; empty if it is one."""
    try:
        ip_network(given, strict=False)
    except ValueError:
        form = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
        return "must not have leading 0s in IP or prefix length" if _zeros(given) else form
    if "/" not in given:
        return "must be a valid CIDR value, with the length of its prefix"
    try:
        ip_network(given)
    except ValueError:
        return "must not have bits set beyond the prefix length"
    return ""


def _zeros(given: str) -> bool:
    return "." in given and _LEADING_ZERO.search(given) is not None


def is_ipv6(given: str) -> bool:
    """Whether a network is one of IPv6."""
    return isinstance(ip_network(given, strict=False), IPv6Network)
