"""The leases of macOS's DHCP server, which `tart ip` reads, and which `run` writes here.

Octets of the hardware address are not padded, an expired lease is ignored, and of several the newest counts. A stopped
VM has its lease until it expires. The file is `dhcpd_leases` in TART_HOME, or what the knob `leases` names.
"""

import os
import re
import sys

from tests.standins.tart import locks
from tests.standins.tart.knobs import Knobs

_BLOCK = re.compile(r"\{([^}]*)\}")
LEASE_SECONDS = 86400


def path(knobs: Knobs) -> str:
    """Where the leases are."""
    return knobs.text("leases") or os.path.join(knobs.root, "dhcpd_leases")


def _normal(mac: str) -> tuple[int, ...]:
    return tuple(int(octet, 16) for octet in mac.split(":"))


def _blocks(knobs: Knobs) -> list[dict[str, str]]:
    try:
        with open(path(knobs), encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError:
        return []
    return [
        dict(line.strip().partition("=")[::2] for line in block.splitlines() if "=" in line)
        for block in _BLOCK.findall(text)
    ]


def address(knobs: Knobs, mac: str, now: float) -> str | None:
    """The address of a network card, if it has a lease."""
    found: tuple[int, str] | None = None
    for block in _blocks(knobs):
        kind, _, owner = block.get("hw_address", "").partition(",")
        if kind != "1" or not owner or _normal(owner) != _normal(mac):
            continue
        until = int(block["lease"], 16)
        if until > now and (found is None or until > found[0]):
            found = (until, block["ip_address"])
    return found[1] if found else None


def grant(knobs: Knobs, name: str, mac: str, now: float) -> str:
    """Write a lease for a VM, with a free address or the one that it had; returns the address."""
    target = path(knobs)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(f"{target}.lock", "a", encoding="utf-8"), locks.flocked(f"{target}.lock"):
        had = address(knobs, mac, now)
        blocks = _blocks(knobs)
        taken = {block.get("ip_address") for block in blocks if int(block["lease"], 16) > now}
        given = had or next(each for each in _subnet(knobs) if each not in taken)
        until = int(now + knobs.number("lease-seconds", LEASE_SECONDS))
        owner = ":".join(f"{octet:x}" for octet in _normal(mac))
        block = (
            f"{{\n\tname={name}\n\tip_address={given}\n\thw_address=1,{owner}\n"
            f"\tidentifier=1,{owner}\n\tlease=0x{until:x}\n}}\n"
        )
        kept = ""
        if os.path.exists(target):
            with open(target, encoding="utf-8") as file:
                kept = file.read()
        with open(f"{target}.new", "w", encoding="utf-8") as file:
            file.write(block + kept)
        os.replace(f"{target}.new", target)
    return given


def _subnet(knobs: Knobs) -> list[str]:
    """Addresses of guests: on Linux ones of this machine, so that a guest's server can be reached."""
    default = "127.0.64" if sys.platform == "linux" else "192.168.64"
    prefix = knobs.text("subnet") or default
    return [f"{prefix}.{number}" for number in range(2, 255)]
