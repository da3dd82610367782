"""Validates the addresses in a Pod's status, and immutable fields of it."""

import ipaddress
import re
from typing import Any

from runyard.embedded.kube.resources import Object
from runyard.embedded.kube.rules.grammar import invalid, subdomain
from runyard.embedded.kube.status import Cause

_NO_ADDRESS = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_ONE_EACH = "may specify no more than one IP for each IP family"
_ZEROS = re.compile(r"[0-9]+(\.[0-9]+){3}")
_NODE = "nominatedNodeName"


def check(before: Object, after: Object) -> list[Cause]:
    """Validates a status that takes the place of another."""
    causes: list[Cause] = []
    node = after.get(_NODE, "")
    if node and node != before.get(_NODE) and (why := subdomain(node)):
        causes.append(invalid(f"status.{_NODE}", node, why))
    if after.get("qosClass") != before.get("qosClass"):
        causes.append(invalid("status.qosClass", after.get("qosClass", ""), "field is immutable"))
    if (given := after.get("podIPs")) and given != before.get("podIPs"):
        causes += _addresses("status.podIPs", given, before.get("podIPs") or [])
    hosts = after.get("hostIPs")
    if hosts and (
        hosts != before.get("hostIPs") or after.get("hostIP", "") != before.get("hostIP", "")
    ):
        causes += _hosts(hosts, after.get("hostIP", ""), before.get("hostIPs") or [])
    return causes


def _hosts(given: list[Object], first: str, known: list[Object]) -> list[Cause]:
    causes = _addresses("status.hostIPs", given, known)
    if given[0]["ip"] != first:
        why = "must be equal to `hostIP`"
        return [invalid("status.hostIPs[0].ip", given[0]["ip"], why), *causes]
    return causes


def _addresses(field: str, given: list[Object], known: list[Object]) -> list[Cause]:
    """Validates addresses; existing ones stay whatever they are; at most one of each family."""
    causes = [
        invalid(f"{field}[{index}]", each["ip"], why)
        for index, each in enumerate(given)
        if each not in known and (why := _wrong(each["ip"]))
    ]
    return causes + _families(field, given) if len(given) > 1 else causes


def _families(field: str, given: list[Object]) -> list[Cause]:
    families: dict[int, None] = {}
    causes: list[Cause] = []
    for index, each in enumerate(given):
        address = _read(each["ip"])
        if address is None:
            why = f"failed to check for dual stack with error:invalid IP[{index}]: {each['ip']}"
            causes.append(Cause(field, f"Internal error: {why}", "InternalError"))
            break
        families[address.version] = None
    if causes or len(given) > 2 or len(families) < 2:
        shown = ",".join(f'{{"IP":"{each["ip"]}"}}' for each in given)
        causes.append(Cause(field, f"Invalid value: [{shown}]: {_ONE_EACH}"))
    return causes


def _wrong(text: str) -> str:
    """Why that is no address; empty if it is one."""
    address = _read(text)
    if address is None:
        zeros = _ZEROS.fullmatch(text) and _read(_plain(text)) is not None
        return "must not have leading 0s" if zeros else _NO_ADDRESS
    mapped: Any = getattr(address, "ipv4_mapped", None)
    return "must not be an IPv4-mapped IPv6 address" if mapped else ""


def _plain(text: str) -> str:
    return ".".join(part.lstrip("0") or "0" for part in text.split("."))


def _read(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return None if "%" in text else ipaddress.ip_address(text)
    except ValueError:
        return None
