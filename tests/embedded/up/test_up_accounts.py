"""A component whose token expires soon gets a new one, also after a jump of the clock."""

import base64
import json
from pathlib import Path

import pytest

from runyard.embedded.up import accounts
from runyard.embedded.up.layout import Layout
from runyard.files import write_whole

NOW = 1_800_000_000.0
DAY = 86400.0


def token(exp: object) -> str:
    payload = base64.urlsafe_b64encode(json.dumps({"exp": exp}).encode()).decode().rstrip("=")
    return f"eyJhbGciOiJIUzI1NiJ9.{payload}.signature"


@pytest.mark.parametrize(
    ("text", "is_due"),
    [
        (token(NOW + DAY), False),
        (token(NOW + 0.6 * DAY), False),
        (token(NOW + 0.4 * DAY), True),
        (token(NOW - 1), True),  # the machine slept for days
        (token(NOW + 400 * DAY), False),  # the clock was wrong when it was made
        (token("soon"), True),
        ("not a token", True),
        ("a.b.c", True),
        ("", True),
    ],
)
def test_a_token_that_will_not_last_is_renewed(tmp_path: Path, text: str, *, is_due: bool) -> None:
    layout = Layout(tmp_path)
    layout.prepare()
    write_whole(layout.token("server"), text)
    assert accounts.due(layout, ("server",), now=NOW) == (("server",) if is_due else ())


def test_a_component_without_a_token_gets_one(tmp_path: Path) -> None:
    assert accounts.due(Layout(tmp_path), ("operator", "host-1"), now=NOW) == ("operator", "host-1")


def test_the_operator_uses_the_account_that_the_server_accepts() -> None:
    names = [accounts.account_of(component) for component in ("operator", "server", "host-1")]
    assert names == ["tuist-runners-controller", "tuist-runners-server", "tart-kubelet-host-1"]
