"""The grammar of names, label keys and values, and the words for what breaks it."""

import re
from collections.abc import Iterable
from functools import lru_cache

from runyard.embedded.kube.status import Cause

_SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_QUALIFIED = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_DATA_KEY = re.compile(r"[A-Za-z0-9_.-]+")
_LONGEST = 317  # characters of a prefix, a slash and a name; what is longer is not remembered
_LOWER = "lower-case letters, digits and '-'"
_BOTH_ENDS = "with a letter or digit at both ends"


def invalid(field: str, value: str, why: str) -> Cause:
    """A value that breaks a rule."""
    return Cause(field, f'Invalid value: "{value}": {why}')


def required(field: str, why: str = "") -> Cause:
    """A value that must be there."""
    told = f"Required value: {why}" if why else "Required value"
    return Cause(field, told, "FieldValueRequired")


def forbidden(field: str, why: str) -> Cause:
    """A value that may not be there, or not change."""
    return Cause(field, f"Forbidden: {why}", "FieldValueForbidden")


def duplicate(field: str, value: str) -> Cause:
    """A value that is there already."""
    return Cause(field, f'Duplicate value: "{value}"', "FieldValueDuplicate")


def unsupported(field: str, value: str, among: Iterable[str]) -> Cause:
    """A value that is none of those there are."""
    shown = ", ".join(f'"{each}"' for each in among)
    told = f'Unsupported value: "{value}": supported values: {shown}'
    return Cause(field, told, "FieldValueNotSupported")


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
    """Why that is not `name` or `prefix/name`, as labels and finalizers want it; empty if it is."""
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
    return "may not be a way out of a directory" if key in (".", "..") else ""


def labels(field: str, told: dict[str, str]) -> list[Cause]:
    """What is wrong with a map of labels."""
    causes: list[Cause] = []
    for key, value in told.items():
        if why := qualified(key):
            causes.append(invalid(field, key, why))
        if why := label_value(value):
            causes.append(invalid(field, value, why))
    return causes
