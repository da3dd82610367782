"""Lists the IPv4 addresses of this host's network interfaces, by the C library's getifaddrs (Linux and macOS).

Python has no function for it, and the programs that print it differ and may be missing.
"""

import ctypes
import socket
import sys
from collections.abc import Iterator

import msgspec

_IFF_UP = 0x1


class Interface(msgspec.Struct, frozen=True, kw_only=True):
    """One IPv4 address of one interface."""

    name: str
    address: str
    up: bool


class _Ifaddrs(ctypes.Structure):
    """The beginning of `struct ifaddrs`, which is the same on both systems."""


_Ifaddrs._fields_ = [
    ("next", ctypes.POINTER(_Ifaddrs)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.c_void_p),
]


def interfaces() -> tuple[Interface, ...]:
    """Every IPv4 address, in the system's order; raises `OSError`."""
    library = ctypes.CDLL(None, use_errno=True)
    first = ctypes.POINTER(_Ifaddrs)()
    if library.getifaddrs(ctypes.byref(first)) != 0:
        raise OSError(ctypes.get_errno(), "the network interfaces cannot be listed")
    try:
        return tuple(_read(first))
    finally:
        library.freeifaddrs(first)


def _read(first: "ctypes._Pointer[_Ifaddrs]") -> Iterator[Interface]:
    each = first
    while each:
        entry = each.contents
        address = _ipv4(entry.address)
        if address:
            yield Interface(
                name=entry.name.decode(errors="replace"),
                address=address,
                up=bool(entry.flags & _IFF_UP),
            )
        each = entry.next


def _ipv4(address: int | None) -> str:
    """The address of a `sockaddr_in`; empty for other families."""
    if not address:
        return ""
    head = ctypes.string_at(address, 8)
    # macOS stores the structure's length in the first byte and the family in the second.
    family = head[1] if sys.platform == "darwin" else int.from_bytes(head[:2], sys.byteorder)
    return socket.inet_ntoa(head[4:8]) if family == socket.AF_INET else ""
