"""Tests that whatever a guest leaves in the shares that it may write to, its VM can be deleted."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.vm.process_harness import home
from tests.vm.tart_harness import NAME, TartHarness, run

from runyard.vm.tart.directory import TartDirectory, sweep

OTHER = 65534
HOSTILE = """#!/bin/sh
rm "$STANDIN_SHARES/token/sa_token"
mkdir -p "$STANDIN_SHARES/token/sa_token/deep" "$STANDIN_SHARES/status/runner-rc"
ln -s /etc "$STANDIN_SHARES/status/link"
"""


@contextlib.contextmanager
def no_root() -> Iterator[None]:
    """Root enters every directory, so this is another user for a while."""
    before = os.geteuid()
    os.seteuid(before or OTHER)
    try:
        yield
    finally:
        os.seteuid(before)


def left_by_a_guest(vm: Path) -> None:
    inner = vm / "status" / "made-by-the-guest"
    inner.mkdir(parents=True)
    (inner / "file").write_text("x")
    inner.chmod(0)


@pytest.mark.slow  # each command of tart is a program
def test_a_guest_that_makes_a_directory_of_its_token_keeps_its_vm_from_being_deleted() -> None:
    async def scenario(harness: TartHarness) -> None:
        harness.put_image({"boot": HOSTILE})
        await harness.driver.create(harness.spec(token="s3cret"))
        await harness.driver.start(NAME)
        await harness.exited()
        await harness.driver.delete(NAME)
        assert list((harness.root / "agent" / "vms").iterdir()) == []
        assert await harness.driver.list() == ()

    run(scenario)


def test_a_directory_that_cannot_be_entered_stays_on_the_host_for_ever() -> None:
    with home() as root:
        root.chmod(0o777)
        with no_root():
            left_by_a_guest(root / "vms" / "web-1")
            left_by_a_guest(root / "vms" / ".gone-1-web-2")
            TartDirectory(root / "vms" / "web-1").remove()
            sweep(root / "vms")
            assert list((root / "vms").iterdir()) == []


@pytest.mark.parametrize("mode", [0o000, 0o100, 0o500])
@pytest.mark.parametrize("share", ["token", "status"])
def test_a_share_that_its_guest_has_closed_keeps_its_vm_from_being_deleted(
    share: str, mode: int
) -> None:
    with home() as root:
        root.chmod(0o777)
        with no_root():
            left = root / "vms" / "web-1" / share / "sa_token"
            left.parent.mkdir(parents=True)
            left.write_text("s3cret")
            left.parent.chmod(mode)
            TartDirectory(root / "vms" / "web-1").remove()
            assert list((root / "vms").iterdir()) == []
