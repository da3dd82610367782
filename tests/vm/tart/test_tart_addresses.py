"""Tests that a guest cannot choose where connections of its host go. A small script stands for `tart ip`."""

import asyncio
import contextlib
import fcntl
import socket
import struct
from pathlib import Path

import pytest

from runyard.clock import RealClock
from runyard.vm.tart.addresses import Addresses, address_of, guest_address
from runyard.vm.tart.commands import Tart
from runyard.vm.tart.settings import Settings

_SIOCGIFADDR = 0x8915


def own_addresses() -> list[str]:
    """The IPv4 addresses of this machine that are no loopback ones, on Linux."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()))
                found.append(socket.inet_ntoa(answer[20:24]))
    return [each for each in found if not each.startswith("127.")]


@pytest.mark.parametrize(
    "output",
    [
        *("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::", "169.254.1.1"),
        *("fe80::1", "fe80::1%en0", "224.0.0.1", "ff02::1", "255.255.255.255", "240.0.0.1"),
        *("", "localhost", "10.0.0.1 10.0.0.2", "10.0.0.1\n127.0.0.1", "10.0.0", "017700000001"),
    ],
)
def test_what_cannot_be_a_guests_address_is_not_taken_from_a_guest(output: str) -> None:
    assert guest_address(output) == ""


def test_an_address_of_the_host_is_not_taken_from_a_guest() -> None:
    assert [guest_address(each) for each in own_addresses() if guest_address(each)] == []


@pytest.mark.parametrize("output", ["192.168.64.7", "10.255.255.7", "fd00:64::7"])
def test_an_address_of_another_machine_is_taken(output: str) -> None:
    assert guest_address(output) == output


def test_a_lease_is_taken_if_it_is_an_address() -> None:
    assert address_of("192.168.64.7") == "192.168.64.7"
    assert address_of("FD00::0:7") == "fd00::7"
    assert address_of("no address") == ""


@pytest.mark.parametrize(
    ("output", "known"),
    {
        "the host": ("127.0.0.1", ""),
        "garbage": ("rm -rf /", ""),
        "bytes": ("$(printf '\\377')", ""),
        "a guest": ("192.168.64.9", "192.168.64.9"),
    }.values(),
    ids=["the host", "garbage", "bytes", "a guest"],
)
def test_what_the_agent_of_a_guest_prints_is_checked_before_it_is_known(
    tmp_path: Path, output: str, known: str
) -> None:
    program = tmp_path / "tart"
    program.write_text(
        f'#!/bin/sh\ncase "$*" in *dhcp*) echo "no IP address found" >&2; exit 1;; esac\necho "{output}"\n'
    )
    program.chmod(0o755)

    async def scenario() -> str:
        tart = Tart(Settings(binary=str(program), home=tmp_path), RealClock(), {})
        return await Addresses(tart).now("vm")

    assert asyncio.run(scenario()) == known
