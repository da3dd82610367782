"""Tests which address a Node gets, and who may read its metrics."""

import asyncio
from pathlib import Path

import pytest

from runyard.components.allowed_clients import PRIVATE, allow
from runyard.components.interfaces import Interface, interfaces
from runyard.components.node_address import NoAddress, own_address, tailscale_address
from runyard.http.messages import Request


def interface(name: str, address: str, *, up: bool = True) -> Interface:
    return Interface(name=name, address=address, up=up)


LISTS = {
    "the first usable one": (("lo0", "127.0.0.1"), ("en0", "10.0.0.5"), ("en1", "10.0.0.6")),
    "not the bridge of VMs": (("bridge100", "192.168.64.1"), ("vmnet1", "172.16.0.1"), ("en0", "10.0.0.5")),
    "not a link-local one": (("en1", "169.254.1.1"), ("en0", "10.0.0.5")),
}  # fmt: skip


@pytest.mark.parametrize("found", LISTS.values(), ids=list(LISTS))
def test_the_bridge_of_a_vm_never_becomes_the_address_of_the_node(
    found: tuple[tuple[str, str], ...],
) -> None:
    assert own_address([interface(name, address) for name, address in found]) == "10.0.0.5"


def test_a_host_without_an_address_for_others_has_none() -> None:
    assert (
        own_address([interface("lo0", "127.0.0.1"), interface("en0", "10.0.0.5", up=False)]) == ""
    )


def test_this_machine_s_loopback_is_listed() -> None:
    assert any(each.address == "127.0.0.1" and each.up for each in interfaces())


def tailscale(folder: Path, script: str) -> str:
    program = folder / "tailscale"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


def test_the_tailnet_address_is_taken_from_tailscale(tmp_path: Path) -> None:
    program = tailscale(tmp_path, 'test "$*" = "ip -4" && echo 100.64.0.7 && echo ignored')
    assert asyncio.run(tailscale_address(program)) == "100.64.0.7"


@pytest.mark.parametrize("script", ["exit 1", "echo nothing", "echo fd7a::1"])
def test_a_host_without_a_tailnet_address_does_not_start_on_a_public_one(
    tmp_path: Path, script: str
) -> None:
    with pytest.raises(NoAddress):
        asyncio.run(tailscale_address(tailscale(tmp_path, script)))
    with pytest.raises(NoAddress):
        asyncio.run(tailscale_address(str(tmp_path / "absent")))


CLIENTS = {
    "private": ("10.1.2.3", True),
    "tailnet": ("100.64.0.7", True),
    "this machine": ("127.0.0.1", True),
    "IPv4 in IPv6": ("::ffff:10.1.2.3", True),
    "link-local with its interface": ("fe80::1%en0", True),
    "public": ("203.0.113.7", False),
    "unknown": ("", False),
}


@pytest.mark.parametrize(("address", "admitted"), CLIENTS.values(), ids=list(CLIENTS))
def test_metrics_without_a_token_are_for_private_networks(address: str, *, admitted: bool) -> None:
    request = Request(method="GET", path="/metrics", client=address)
    refused = asyncio.run(allow(PRIVATE)(request))
    assert (refused is None) is admitted
    assert refused is None or refused.status == 403
