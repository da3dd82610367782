"""The places where credentials for registries are looked for on this host, in tart's order."""

import sys
from collections.abc import Mapping
from pathlib import Path

from runyard.clock import Clock
from runyard.vm.oci.credentials import DEADLINE, Chain, DockerConfig, Environment, Provider
from runyard.vm.oci.keychain import Keychain


def usual(
    environ: Mapping[str, str],
    home: Path,
    clock: Clock,
    *,
    platform: str = sys.platform,
    deadline: float = DEADLINE,
) -> Chain:
    """Tart's variables, docker's configuration, and on macOS the Keychain; `deadline` is for each program."""
    config = home / ".docker" / "config.json"
    found: list[Provider] = [
        Environment(environ),
        DockerConfig(config, environ=environ, deadline=deadline),
    ]
    if platform == "darwin":
        found.append(Keychain(clock, deadline=deadline))
    return Chain(*found)
