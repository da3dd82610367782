"""What merely looks like this machine is somebody else's: it must not be trusted like this machine."""

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
def test_this_machine_is_known(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", OTHERS)
def test_a_stranger_is_not_taken_for_this_machine(host: str) -> None:
    assert not is_loopback(host)
