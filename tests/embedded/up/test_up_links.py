"""The dashboard of `runyard up` links to runs at a real GitHub, and nowhere with the practice GitHub."""

import random
from pathlib import Path

import pytest

from runyard.clock import RealClock
from runyard.embedded.up.boot import Boot, GitHubCredentials
from runyard.embedded.up.context import Context
from runyard.embedded.up.layout import Layout
from runyard.embedded.up.roles.access import access_settings
from runyard.embedded.up.token_files import ensure_token

REAL = GitHubCredentials(app_id=1)


@pytest.mark.parametrize(
    ("github", "url", "pages"),
    [
        (None, "http://127.0.0.1:9", ""),
        (REAL, "https://api.github.com", "https://github.com"),
        (REAL, "https://ghe.example/api/v3", "https://ghe.example"),
    ],
    ids=["practice", "github.com", "Enterprise Server"],
)
def test_runs_are_linked_only_where_pages_exist(
    tmp_path: Path, github: GitHubCredentials | None, url: str, pages: str
) -> None:
    for path in (Layout(tmp_path).dashboard_token, Layout(tmp_path).metrics_token):
        ensure_token(path, random.Random(1))
    boot = Boot(
        role="server",
        name="server",
        root=str(tmp_path),
        kube_url="",
        server_url="",
        github_url=url,
        github=github,
    )
    context = Context(boot=boot, clock=RealClock(), rng=random.SystemRandom(), ready=lambda: None)
    assert access_settings(context, "127.0.0.1").github == pages
