"""Validates certificate requests and their conditions."""

from typing import Any

from runyard.embedded.kube.resources import Object
from runyard.embedded.kube.rules.grammar import (
    duplicate,
    forbidden,
    invalid,
    label,
    required,
    subdomain,
    unsupported,
)
from runyard.embedded.kube.status import Cause

APPROVED, DENIED, FAILED = "Approved", "Denied", "Failed"
PERMANENT = (APPROVED, DENIED, FAILED)  # conditions that cannot be removed

_SHORTEST = 600
_STATES = ("False", "True", "Unknown")
_LONGEST_DOMAIN, _LONGEST_SIGNER = 253, 571
_USAGES = (
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
)


# ---- spec


def spec(given: Object) -> list[Cause]:
    """Validates a request, apart from the request inside of it."""
    causes = _usages(given.get("usages") or [])
    causes += _signer(given.get("signerName") or "")
    seconds = given.get("expirationSeconds")
    if isinstance(seconds, int) and seconds < _SHORTEST:
        why = f"may not specify a duration less than {_SHORTEST} seconds (10 minutes)"
        causes.append(Cause("spec.expirationSeconds", f"Invalid value: {seconds}: {why}"))
    return causes


def _usages(given: list[str]) -> list[Cause]:
    if not given:
        return [required("spec.usages")]
    causes: list[Cause] = []
    for index, usage in enumerate(given):
        field = f"spec.usages[{index}]"
        if usage not in _USAGES:
            causes.append(unsupported(field, usage, _USAGES))
        elif usage in given[:index]:
            causes.append(duplicate(field, usage))
    return causes


def _signer(name: str) -> list[Cause]:
    """Validates a signer's name: a domain and one path segment, without wildcards."""
    field = "spec.signerName"
    if not name:
        return [required(field)]
    domain, slash, path = name.partition("/")
    if not slash or "/" in path:
        form = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        return [invalid(field, name, form)]
    if len(name) > _LONGEST_SIGNER or len(domain) > _LONGEST_DOMAIN:
        longest = _LONGEST_DOMAIN if len(domain) > _LONGEST_DOMAIN else _LONGEST_SIGNER
        return [
            Cause(field, f"Too long: may not be more than {longest} bytes", "FieldValueTooLong")
        ]
    parts = domain.split(".")
    wrong = next((why for why in map(label, parts) if why), "")
    causes = [invalid(field, domain, wrong)] if wrong else []
    if len(parts) < 2:
        why = "should be a domain with at least two segments separated by dots"
        causes.append(invalid(field, domain, why))
    if wrong := subdomain(path):
        causes.append(invalid(field, path, wrong))
    return causes


# ---- status


def conditions(new: list[Any], old: list[Any], *, approval: bool) -> list[Cause]:
    """Validates the conditions that replace the old ones; only an approval may add Approved or Denied."""
    causes: list[Cause] = []
    types = [each.get("type") or "" for each in new]
    before = [each.get("type") for each in old]
    for index, condition in enumerate(new):
        causes += _condition(f"status.conditions[{index}]", condition)
        if types[index] and types[index] in types[:index]:
            causes.append(duplicate(f"status.conditions[{index}].type", types[index]))
    if APPROVED in types and DENIED in types:
        why = "Approved and Denied conditions are mutually exclusive"
        causes.append(invalid("status.conditions", DENIED, why))
    for kind in PERMANENT:
        if kind in before and kind not in types:
            causes.append(_fixed(f'remove a condition of type "{kind}"'))
        elif kind in types and kind not in before and kind != FAILED and not approval:
            causes.append(_fixed(f'add a condition of type "{kind}"'))
    return causes


def _condition(field: str, given: Object) -> list[Cause]:
    kind, state = given.get("type") or "", given.get("status") or ""
    causes = [] if kind else [required(f"{field}.type")]
    states = ("True",) if kind in PERMANENT else _STATES
    if not state:
        causes.append(required(f"{field}.status"))
    elif state not in states:
        causes.append(unsupported(f"{field}.status", state, states))
    return causes


def _fixed(what: str) -> Cause:
    return forbidden("status.conditions", f"updates may not {what}")
