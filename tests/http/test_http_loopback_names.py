"""Names that only resemble loopback are not trusted as loopback."""

import pytest

from runyard.http.addresses import is_loopback

OURS = (
    "127.0.0.1",
    "127.8.9.10",
    "::1",
    "[::1]",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "::ffff:127.0.0.1",
)
OTHERS = (
    *(
        "",
        "0.0.0.0",
        "::",
        "10.0.0.1",
        "192.0.2.1",
        "127",
        "127.0.0.1.nip.example",
        "127.evil.example",
    ),
    *(
        "localhost.example",
        "notlocalhost",
        "::ffff:10.0.0.1",
        "127.0.0.1 ",
        "0x7f.1",
        "128.0.0.1",
        "1::1",
    ),
)


@pytest.mark.parametrize("host", OURS)
def test_loopback_names_are_recognised(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", OTHERS)
def test_names_that_resemble_loopback_are_not_loopback(host: str) -> None:
    assert not is_loopback(host)
