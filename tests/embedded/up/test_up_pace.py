"""One machine has the timeouts of a cluster, so measurements on it are valid for a cluster."""

import random
from pathlib import Path

from runyard.clock import RealClock
from runyard.dispatch.settings import Settings
from runyard.embedded.up.boot import Boot
from runyard.embedded.up.context import Context
from runyard.embedded.up.layout import Layout
from runyard.embedded.up.roles import server
from runyard.embedded.up.secrets import load_or_make


def test_a_machine_that_is_no_demo_has_the_servers_own_settings(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.prepare()
    secrets = load_or_make(layout, random.Random(1))
    boot = Boot(
        role="server", name="server", root=str(tmp_path), kube_url="", server_url="", github_url=""
    )
    context = Context(boot=boot, clock=RealClock(), rng=random.Random(1), ready=lambda: None)
    shipped = Settings(webhook_secrets=(secrets.webhook_secret,), seal_key=secrets.seal)
    assert server.settings(context) == shipped
