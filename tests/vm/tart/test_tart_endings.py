"""Tests how VMs of the tart driver end: the guest is asked, tart powers it off, and only the log stays."""

import msgspec
from tests.vm.tart_harness import NAME, QUICK, TartHarness, run

from runyard.vm.contract import VmState

BRIEF = msgspec.structs.replace(QUICK, power_off=0.2)


def test_the_guest_is_asked_before_tart_powers_it_off() -> None:
    async def scenario(harness: TartHarness) -> None:
        await harness.up("handles-term")
        await harness.driver.stop(NAME, grace=30)
        ended = await harness.view()
        assert ended is not None and ended.exit_code == 0  # its handler ran
        assert not harness.tart.journal("stop")

    run(scenario)


def wrapped(harness: TartHarness, script: str) -> None:
    """Let the driver run this script instead of tart; it may go on with tart itself."""
    program = harness.root / "wrapped"
    program.write_text(f'#!/bin/sh\n{script}\nexec {harness.tart.program} "$@"\n')
    program.chmod(0o755)
    harness.settings = msgspec.structs.replace(harness.settings, binary=str(program))
    harness.driver = harness.reopened()


def test_a_guest_that_is_stopped_before_tart_runs_it_is_powered_off_unasked() -> None:
    async def scenario(harness: TartHarness) -> None:
        wrapped(harness, 'case "$1" in run) sleep 1 ;; esac')
        harness.put_image()
        await harness.driver.create(harness.spec())
        await harness.driver.start(NAME)
        await harness.driver.stop(NAME, grace=30)
        ended = await harness.view()
        assert ended is not None and ended.state is VmState.EXITED
        assert not harness.tart.journal("stop")

    run(scenario)


def test_why_tart_does_not_run_a_vm_is_only_in_its_log() -> None:
    async def scenario(harness: TartHarness) -> None:
        wrapped(harness, 'case "$1" in run) echo "Error: no such share" >&2; exit 1 ;; esac')
        harness.put_image()
        await harness.driver.create(harness.spec())
        await harness.driver.start(NAME)
        ended = await harness.exited()
        assert "Error: no such share" in ended.exit_reason and ended.exit_status == 1

    run(scenario)


def test_a_guest_without_an_agent_is_powered_off_after_its_grace() -> None:
    async def scenario(harness: TartHarness) -> None:
        harness.tart.set("no-agent")
        await harness.up("handles-term")
        await harness.driver.stop(NAME, grace=0.3)
        ended = await harness.view()
        assert ended is not None and ended.state is VmState.EXITED and ended.exit_code is None
        log = b"".join([each async for each in harness.driver.logs(NAME)])
        assert b"Stopping VM..." in log  # tart has ended it, in order

    run(scenario)


def test_a_guest_without_sudo_is_asked_without_it() -> None:
    async def scenario(harness: TartHarness) -> None:
        refuses = 'echo "sudo: command not found" >&2; exit 127'
        wrapped(harness, f'case "$1 $3" in "exec sudo") {refuses} ;; esac')
        await harness.up("handles-term")
        await harness.driver.stop(NAME, grace=30)
        ended = await harness.view()
        assert ended is not None and ended.exit_code == 0  # its handler ran
        assert not harness.tart.journal("stop")

    run(scenario)


def test_a_vm_is_powered_off_by_tart_or_without_it_if_that_hangs() -> None:
    async def scenario(harness: TartHarness) -> None:
        for name, hangs in (("one", False), ("two", True)):
            await harness.up("ignores-term", name=name)
            if hangs:
                harness.tart.set("hang-stop")
            await harness.driver.stop(name, grace=0)
            ended = await harness.view(name)
            assert ended is not None and ended.state is VmState.EXITED
            assert harness.tart.journal("stop")[-1][1] == name
            log = b"".join([each async for each in harness.driver.logs(name)])
            assert b"Stopping VM..." in log  # it was interrupted, not killed
        assert len(harness.tart.journal("stop")) == 2

    run(scenario)


def test_the_password_of_tarts_vnc_server_is_in_no_log() -> None:
    async def scenario(harness: TartHarness) -> None:
        program = harness.root / "with-vnc"
        line = "VNC server is running at vnc://:apple-pear@127.0.0.1:5999"
        program.write_text(
            f'#!/bin/sh\n[ "$1" != run ] || echo "{line}"\nexec {harness.tart.program} "$@"\n'
        )
        program.chmod(0o755)
        harness.settings = msgspec.structs.replace(harness.settings, binary=str(program))
        harness.driver = harness.reopened()
        await harness.up()
        log = b"".join([each async for each in harness.driver.logs(NAME)])
        assert b"apple-pear" not in log and b"vnc://:REDACTED@127.0.0.1:" in log
        await harness.driver.stop(NAME, grace=0)

    run(scenario)


def test_a_run_that_ignores_everything_is_killed() -> None:
    async def scenario(harness: TartHarness) -> None:
        await harness.up()
        harness.tart.set("run-ignores-int")
        await harness.driver.stop(NAME, grace=0)
        ended = await harness.view()
        assert ended is not None and ended.state is VmState.EXITED
        await harness.driver.delete(NAME)

    run(scenario, BRIEF)


def test_deleting_what_tart_no_longer_has_is_success() -> None:
    async def scenario(harness: TartHarness) -> None:
        harness.put_image()
        await harness.driver.create(harness.spec())
        assert harness.tart.call("delete", NAME).code == 0
        await harness.driver.delete(NAME)
        assert await harness.driver.list() == ()
        await harness.driver.remove_image("registry.test/a@sha256:0")

    run(scenario)


def test_the_log_stays_until_it_is_forgotten() -> None:
    async def scenario(harness: TartHarness) -> None:
        harness.put_image()
        harness.tart.set("run-prints-every", 0.01)
        await harness.driver.create(harness.spec())
        await harness.driver.start(NAME)
        follower = harness.driver.logs(NAME, follow=True)
        assert (await anext(follower)).startswith(b"line ")
        await harness.driver.stop(NAME, grace=0)
        rest = b"".join([chunk async for chunk in follower])
        assert b"Stopping VM..." in rest
        await harness.driver.delete(NAME)
        kept = b"".join([chunk async for chunk in harness.reopened().logs(NAME)])
        assert kept.startswith(b"line ") and kept.endswith(rest[-20:])
        for _ in range(2):
            await harness.driver.forget(NAME)
        assert [chunk async for chunk in harness.driver.logs(NAME)] == []

    run(scenario)
