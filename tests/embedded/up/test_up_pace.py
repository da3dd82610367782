"""One machine has the timeouts of a cluster, so measurements on it are valid for a cluster; limits it has none."""

import random
from pathlib import Path

import msgspec

from runyard.clock import RealClock
from runyard.dispatch.settings import Settings
from runyard.embedded.up.boot import Boot
from runyard.embedded.up.context import Context
from runyard.embedded.up.layout import Layout
from runyard.embedded.up.roles import server
from runyard.embedded.up.secrets import load_or_make


def settings(folder: Path) -> tuple[Settings, Settings]:
    """What the server has on a machine, and what it is shipped with."""
    layout = Layout(folder)
    layout.prepare()
    secrets = load_or_make(layout, random.Random(1))
    boot = Boot(
        role="server", name="server", root=str(folder), kube_url="", server_url="", github_url=""
    )
    context = Context(boot=boot, clock=RealClock(), rng=random.Random(1), ready=lambda: None)
    shipped = Settings(webhook_secrets=(secrets.webhook_secret,), seal_key=secrets.seal)
    return server.settings(context), shipped


def test_a_machine_that_is_no_demo_has_the_servers_own_settings(tmp_path: Path) -> None:
    has, shipped = settings(tmp_path)
    assert msgspec.structs.replace(has, default_limits=shipped.default_limits) == shipped


def test_a_large_mac_and_every_host_that_joins_it_run_jobs_of_one_account(tmp_path: Path) -> None:
    """A limit of 12 cores left the second Mac idle, and a Mac with 32 cores ran no job at all."""
    has, _ = settings(tmp_path)
    assert {limit.platform for limit in has.default_limits} == {"linux", "macos"}
    for limit in has.default_limits:
        assert limit.vcpus >= 100 * 32, "a hundred Mac Studios"
        assert limit.memory_gb >= 100 * 512
