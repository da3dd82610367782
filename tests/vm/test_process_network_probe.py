"""Tests that the probe gives VMs a network of their own only where it works and leads to nothing of this machine."""

import asyncio
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.conftest import Absent
from tests.vm.process_harness import home
from tests.vm.test_process_network import NETWORK, a_machine_of_its_own, failing, found

from runyard.vm.process import networks, probe
from runyard.vm.process.isolation import Isolation
from runyard.vm.process.probe import probe_isolation

_replace = msgspec.structs.replace


def probed(tmp_path: Path, want: probe.Wanted = "auto") -> Isolation:
    with home() as directory:
        return asyncio.run(
            probe_isolation(directory, want=want, registry=str(tmp_path / "registry"))
        )


def test_a_network_that_fails_is_not_used_and_the_description_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, absent: Absent
) -> None:
    found("bwrap", absent)
    failing(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    chosen = probed(tmp_path)
    assert (chosen.kind, chosen.network) == ("bwrap", "host")
    assert "the host's network (" in chosen.detail and "no tap for you" in chosen.detail


def test_on_a_machine_with_ipv6_names_alone_the_description_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, absent: Absent
) -> None:
    """The trial of a guest cannot see that: slirp4netns always gives it a default route and a name server."""
    found("bwrap", absent)
    names = tmp_path / "resolv.conf"
    names.write_text("nameserver 2001:db8::1\n")
    monkeypatch.setattr(networks, "_NAMES", str(names))
    chosen = probed(tmp_path)
    assert (chosen.kind, chosen.network) == ("bwrap", "host")
    assert "the host's network (all name servers of this machine are IPv6" in chosen.detail


def test_without_slirp4netns_the_description_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, absent: Absent
) -> None:
    held = found("bwrap", absent)
    (tmp_path / "bwrap").symlink_to(held.bwrap)
    monkeypatch.setenv("PATH", str(tmp_path))
    chosen = probed(tmp_path)
    assert (chosen.kind, chosen.network) == ("bwrap", "host")
    assert "install slirp4netns" in chosen.detail and "pasta" not in chosen.detail


def test_with_pasta_alone_the_description_says_that_it_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, absent: Absent
) -> None:
    held = found("bwrap", absent)
    (tmp_path / "bwrap").symlink_to(held.bwrap)
    pasta = tmp_path / "pasta"
    pasta.write_text("#!/bin/sh\nexit 1\n")
    pasta.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    chosen = probed(tmp_path)
    assert (chosen.kind, chosen.network) == ("bwrap", "host")
    assert "install slirp4netns" in chosen.detail and "pasta alone is not used" in chosen.detail


def test_the_hosts_network_can_be_asked_for(tmp_path: Path, absent: Absent) -> None:
    found("bwrap", absent)
    best = probed(tmp_path)
    assert best.network == "own", best.detail
    assert best.line.startswith("bwrap (") and best.line.count("bwrap") == 1
    chosen = probed(tmp_path, "host-network")
    assert (chosen.kind, chosen.network) == ("bwrap", "host")
    assert "the host's network (as configured)" in chosen.detail


def test_a_network_through_which_this_machine_is_reached_is_not_used(
    tmp_path: Path, absent: Absent
) -> None:
    """The trial looks for the guard, not for the program: here the guard is missing."""
    held = found("bwrap", absent)
    leaky = tmp_path / "slirp4netns"
    leaky.write_text(
        '#!/bin/bash\nwords=()\nfor word; do [ "$word" = --disable-host-loopback ] || words+=("$word"); done\n'
        f'exec {held.slirp} "${{words[@]}}"\n'
    )
    leaky.chmod(0o755)
    with home() as directory:
        assert asyncio.run(probe._trial(directory, held)) == ""
        assert "10.0.2.2" in asyncio.run(probe._trial(directory, _replace(held, slirp=str(leaky))))


@pytest.mark.slow
def test_a_network_through_which_this_machines_own_networks_are_reached_is_not_used(
    monkeypatch: pytest.MonkeyPatch, absent: Absent
) -> None:
    """The guest is kept from the first address alone, as if the network's length were lost."""
    held = found("bwrap-users", absent)
    with a_machine_of_its_own(absent), home() as directory:
        subprocess.run(["ip", "route", "add", "local", f"{NETWORK}.0/24", "dev", "lo"], check=True)
        assert asyncio.run(probe._trial(directory, held)) == ""
        rejected = networks.network_order

        def without_length(*args: Any, **given: Any) -> dict[str, Any] | None:
            order = rejected(*args, **given)
            assert order is not None and order["own"] == [f"{NETWORK}.0/24"]
            return {**order, "own": [f"{NETWORK}.0"]}

        monkeypatch.setattr(probe, "network_order", without_length)
        failure = asyncio.run(probe._trial(directory, held))
    assert failure == f"this machine was reached at {NETWORK}.128"


# Is ready when a table before the main one leads loopback to the gateway.
LEAKY = """#!/bin/bash
set -e
words=()
for word; do
    case $word in
    --ready-fd=*) ready=${word#*=}; words+=(--ready-fd=200) ;;
    *) words+=("$word") ;;
    esac
done
mkfifo "$0.ready"
exec 200<>"$0.ready"
SLIRP "${words[@]}" &
read -r -N 1 -u 200
net=${words[-2]}
nsenter --net="$net" ip rule add pref 1 lookup 99
nsenter --net="$net" ip route add 127.0.0.0/8 via 10.0.2.2 dev tap0 table 99
echo >&"$ready"
wait
"""


def test_a_network_through_which_loopback_is_reached_without_a_reply_is_not_used(
    tmp_path: Path, absent: Absent
) -> None:
    """The guest gets no reply, so only this machine's listener knows."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        absent("ip, as root", "apt-get install iproute2, and run the tests as root too")
    held = found("bwrap-users", absent)
    leaky = tmp_path / "slirp4netns"
    leaky.write_text(LEAKY.replace("SLIRP", held.slirp))
    leaky.chmod(0o755)
    with home() as directory:
        failure = asyncio.run(probe._trial(directory, _replace(held, slirp=str(leaky))))
    assert failure == "a connection of the guest reached this machine's loopback"
