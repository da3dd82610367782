"""Tests cannot leave this machine, and what was absent is told at the end."""

import asyncio
import shlex
import socket
from pathlib import Path

import lawtree
import pytest

pytest_plugins = ["pytester"]


@pytest.mark.parametrize("address", [("192.0.2.1", 80), ("example.invalid", 80)])
def test_an_outside_connection_is_refused(address: tuple[str, int]) -> None:
    with (
        socket.socket() as outside,
        pytest.raises(Exception, match="a test tried to reach") as caught,
    ):
        outside.connect(address)
    assert caught.type.__name__ == "OutsideConnection"


def test_an_outside_connection_of_a_loop_is_refused() -> None:
    async def reach() -> None:
        await asyncio.open_connection("192.0.2.1", 80)

    with pytest.raises(Exception, match="a test tried to reach"):
        asyncio.run(reach())


def test_loopback_stays_open() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        assert client.getpeername() == server.getsockname()


@pytest.mark.parametrize("workers", ["0", "2"])
def test_absent_components_are_counted(pytester: pytest.Pytester, workers: str) -> None:
    conftest = (lawtree.ROOT / "tests" / "conftest.py").read_text(encoding="utf-8")
    Path(pytester.path / "conftest.py").write_text(conftest, encoding="utf-8")
    pytester.makeini(
        f"[pytest]\npythonpath = {shlex.quote(str(lawtree.ROOT))}\n"
    )  # where the conftest finds its tiers
    pytester.makepyfile(
        "def test_one(absent):\n    absent('kubectl', 'install it')\n"
        "def test_two(absent):\n    absent('kubectl', 'install it')\n"
        "def test_three():\n    pass\n"
    )
    done = pytester.runpytest_subprocess("-n", workers, "-p", "no:randomly")
    done.assert_outcomes(passed=1, skipped=2)
    done.stdout.fnmatch_lines(["2 tests not run for want of kubectl: install it"])
