"""Tests the end of a process VM: no process is left, and its result survives a killed shim or agent."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.conftest import Absent
from tests.vm.process_harness import WAYS, ProcessHarness, Scenario, isolation, run_on

from runyard.vm.contract import DriverFailed, VmState
from runyard.vm.process.cgroup_probe import probe_cgroups
from runyard.vm.shim.directory import ShimState
from runyard.vm.shim.exits import SHIM_DIED, read_report
from runyard.vm.shim.processes import (
    Process,
    mark_variables,
    parse_marks,
    parse_ps,
    read_by_ps,
    signal_process,
    table,
)
from runyard.vm.teardown import stop_all

Run = Callable[[Scenario], None]
NAME = "vm-1"

# A classic daemon: two forks, a session of its own, another folder, and here no environment.
DAEMON = """
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.chdir("/")
        held = os.open(os.environ["RUNYARD_STATUS_DIR"] + "/held", os.O_WRONLY)
        os.set_inheritable(held, True)
        os.write(held, b"daemon\\n")
        os.execve("/bin/sleep", ["sleep", "86400"], {} if sys.argv[1] == "bare" else os.environ)
    os._exit(0)
os.wait()
"""
BOOT = """#!/bin/sh
wait_for() { read -r line <"$RUNYARD_STATUS_DIR/go"; }
"$RUNYARD_PYTHON" -I -S "$RUNYARD_VM_DIR/image/daemon.py" "$(sed -n 's/^HOW=//p' "$RUNYARD_ENV_DIR/tuist.env")"
trap 'exit 3' TERM
echo up >"$RUNYARD_STATUS_DIR/up"
wait_for & wait
echo 7 >"$RUNYARD_STATUS_DIR/runner-rc"
"""


@pytest.fixture(params=WAYS)
def run(request: pytest.FixtureRequest, absent: Absent) -> Run:
    way = isolation(request.param)
    if isinstance(way, str):
        absent(f"a machine for VMs as processes, {request.param}", way)
    return lambda scenario: run_on(way, scenario)


async def up(
    harness: ProcessHarness, how: str = "bare"
) -> tuple[Callable[[], bool], Callable[[], None]]:
    """Start a VM with a daemon; returns whether the daemon is alive, and a function that ends the guest."""
    harness.put_image(BOOT, **{"daemon.py": DAEMON})
    await harness.create(NAME, HOW=how)
    held, started, go = (harness.pipe(NAME, label) for label in ("held", "up", "go"))
    await harness.driver.start(NAME)
    assert await held.line() == "daemon"
    assert await started.line() == "up"
    assert held.held()

    return held.held, lambda: go.send("go")


def test_a_daemon_does_not_outlive_a_guest_that_ended(run: Run) -> None:
    async def scenario(harness: ProcessHarness) -> None:
        daemon_alive, end_guest = await up(harness)
        end_guest()
        ended = await harness.exited(NAME)
        assert (ended.exit_code, daemon_alive()) == (7, False)

    run(scenario)


@pytest.mark.parametrize("grace", [0, 30], ids=["power-off", "shutdown"])
def test_a_daemon_does_not_outlive_a_stop(run: Run, grace: float) -> None:
    async def scenario(harness: ProcessHarness) -> None:
        daemon_alive, _ = await up(harness)
        await harness.driver.stop(NAME, grace=grace)
        assert not daemon_alive()
        ended = await harness.view(NAME)
        assert ended.state is VmState.EXITED and ended.exit_code is None and ended.exit_reason

    run(scenario)


def test_a_killed_shim_leaves_an_exit_and_no_processes(run: Run) -> None:
    async def scenario(harness: ProcessHarness) -> None:
        hides = harness.isolation.kind == "bwrap" or harness.isolation.users != ""
        daemon_alive, _ = await up(harness, "bare" if hides else "marked")
        directory = harness.directory(NAME)
        shim = int((directory.state / "started").read_text())
        os.kill(shim, signal.SIGKILL)
        await harness.gone(NAME)
        assert directory.shim_state() is ShimState.ORPHANED
        ended = await harness.view(NAME)
        assert (ended.state, ended.exit_code, ended.exit_reason) == (
            VmState.EXITED,
            None,
            SHIM_DIED,
        )
        assert not daemon_alive()
        assert await harness.view(NAME) == ended
        with pytest.raises(DriverFailed):
            await harness.driver.start(NAME)

    run(scenario)


@pytest.mark.parametrize("act", ["stop", "delete"])
def test_a_vm_whose_shim_was_killed_can_be_torn_down(absent: Absent, act: str) -> None:
    way = isolation("plain")
    assert not isinstance(way, str), way

    async def scenario(harness: ProcessHarness) -> None:
        daemon_alive, _ = await up(harness, "marked")
        os.kill(int((harness.directory(NAME).state / "started").read_text()), signal.SIGKILL)
        await harness.gone(NAME)
        if act == "stop":
            await harness.driver.stop(NAME, grace=30)
        else:
            await harness.driver.delete(NAME)
        assert not daemon_alive()

    run_on(way, scenario)


def test_a_control_group_finds_processes_without_mark_and_user(absent: Absent) -> None:
    way = isolation("plain")
    assert not isinstance(way, str), way
    group = probe_cgroups(wanted=()).group
    if not group:
        absent("a writable control group (version 2)", "delegate one to the tests")

    async def scenario(harness: ProcessHarness) -> None:
        daemon_alive, _ = await up(harness, "bare")
        own = json.loads((harness.directory(NAME).state / "order.json").read_text())["cgroup"]
        assert Path(own).parent == Path(group)
        os.kill(int((harness.directory(NAME).state / "started").read_text()), signal.SIGKILL)
        await harness.gone(NAME)
        assert (await harness.view(NAME)).exit_reason == SHIM_DIED
        assert not daemon_alive()
        assert not Path(own).exists()

    run_on(msgspec.structs.replace(way, cgroup=group), scenario)


def test_stop_all_ends_every_vm(absent: Absent) -> None:
    way = isolation("plain")
    assert not isinstance(way, str), way

    async def scenario(harness: ProcessHarness) -> None:
        daemon_alive, _ = await up(harness)
        await harness.create("vm-2", HOW="bare")
        await stop_all(harness.driver, grace=30)
        assert not daemon_alive()
        states = {view.name: view.state for view in await harness.driver.list()}
        assert states == {NAME: VmState.EXITED, "vm-2": VmState.STOPPED}

    run_on(way, scenario)


AGENT = """
import asyncio, sys
from pathlib import Path
import msgspec
from runyard.clock import RealClock
from runyard.vm.process.driver import ProcessDriver
from runyard.vm.process.isolation import Isolation

async def main():
    home, source, way, name = sys.argv[1:]
    driver = ProcessDriver(Path(home), image_source=Path(source), clock=RealClock(),
                           isolation=msgspec.json.decode(way, type=Isolation))
    await driver.start(name)
    sys.stdout.write("started\\n")
    sys.stdout.flush()
    await asyncio.Event().wait()

asyncio.run(main())
"""


def test_a_killed_agent_loses_neither_the_vm_nor_its_result(run: Run) -> None:
    async def scenario(harness: ProcessHarness) -> None:
        harness.put_image(BOOT, **{"daemon.py": DAEMON})
        await harness.create(NAME, HOW="bare")
        started, go, _held = (harness.pipe(NAME, label) for label in ("up", "go", "held"))
        way = msgspec.json.encode(harness.isolation).decode()
        argv = [
            sys.executable,
            "-c",
            AGENT,
            str(harness.home),
            str(harness.root / "source"),
            way,
            NAME,
        ]
        path = {"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ["PATH"]}
        agent = subprocess.Popen(
            argv, stdout=subprocess.PIPE, env=path, start_new_session=True, text=True
        )
        assert agent.stdout is not None
        assert agent.stdout.readline() == "started\n"
        os.killpg(agent.pid, signal.SIGKILL)
        agent.wait()
        agent.stdout.close()
        assert await started.line() == "up"
        harness.driver = harness.reopened()
        assert (await harness.view(NAME)).state is VmState.RUNNING
        await harness.driver.start(NAME)
        go.send("go")
        assert (await harness.exited(NAME)).exit_code == 7

    run(scenario)


def test_the_exit_record_is_written_after_the_last_process_ended(run: Run) -> None:
    """Once the exit record exists, every process is gone; checked at the first moment it exists."""

    async def scenario(harness: ProcessHarness) -> None:
        daemon_alive, end_guest = await up(harness)
        directory = harness.directory(NAME)
        end_guest()
        while directory.ended() is None:
            await asyncio.get_running_loop().run_in_executor(None, os.sched_yield)
        assert not daemon_alive()
        await harness.exited(NAME)

    run(scenario)


# ── the guest's report ──────────────────────────────────────────────────────────────────────────


REPORTS: dict[str, tuple[bytes, int | None]] = {
    "zero": (b"0\n", 0),
    "the greatest": (b"255", 255),
    "with blanks": (b" 7 \n", 7),
    "too great": (b"256\n", None),
    "negative": (b"-1\n", None),
    "empty": (b"", None),
    "words": (b"fine\n", None),
    "two numbers": (b"0\n0\n", None),
    "huge": (b"0" * 100_000, None),
    "NUL": (b"0\0", None),
    "not ASCII": ("٣".encode(), None),
    "a fraction": (b"1.0", None),
}


@pytest.mark.parametrize(("data", "code"), REPORTS.values(), ids=list(REPORTS))
def test_only_a_valid_exit_code_is_accepted(tmp_path: Path, data: bytes, code: int | None) -> None:
    (tmp_path / "runner-rc").write_bytes(data)
    assert read_report(str(tmp_path)) == code


def _link(path: Path) -> None:
    (path / "elsewhere").write_text("0")
    (path / "runner-rc").symlink_to(path / "elsewhere")


def _full_pipe(path: Path) -> None:
    os.mkfifo(path / "runner-rc")
    os.write(os.open(path / "runner-rc", os.O_RDWR), b"0\n")  # left open: so it can be read


TRAPS: dict[str, Callable[[Path], None]] = {
    "nothing": lambda path: None,
    "a link": _link,
    "a pipe that never ends": lambda path: os.mkfifo(path / "runner-rc"),
    "a pipe with a report in it": _full_pipe,
    "a folder": lambda path: (path / "runner-rc").mkdir(),
    "a device": lambda path: (path / "runner-rc").symlink_to("/dev/zero"),
    "no folder at all": lambda path: path.rmdir(),
    "a link for a folder": lambda path: (path.rmdir(), path.symlink_to("/etc"))[0],
}


@pytest.mark.parametrize("prepare", TRAPS.values(), ids=list(TRAPS))
def test_a_report_that_is_no_regular_file_is_ignored(
    tmp_path: Path, prepare: Callable[[Path], None]
) -> None:
    status = tmp_path / "status"
    status.mkdir()
    prepare(status)
    assert read_report(str(status)) is None


# ── where there is no /proc ─────────────────────────────────────────────────────────────────────


def test_the_process_table_of_macos_is_parsed() -> None:
    text = (
        "    1     0     0 Ss   Mon Nov  2 10:00:00 2026\n"
        "  501     1   502 S    Mon Nov  2 10:00:01 2026\n"
        "  502   501   502 Z    Mon Nov  2 10:00:02 2026\n"
        "garbage\n"
    )
    found = parse_ps(text)
    assert list(found) == [1, 501]
    assert (found[501].parent, found[501].uid) == (1, 502)
    assert found[501].start == "Mon Nov 2 10:00:01 2026"


MARKED = {10: "/v/a", 11: "/v/ab", 12: "/v v/a", 13: "/v v/a b"}


def variables(mark: str) -> str:
    return "".join(f" {name}={value}" for name, value in mark_variables(mark).items())


@pytest.mark.parametrize(("pid", "mark"), MARKED.items())
def test_only_whole_marks_match_and_those_with_blanks_do(pid: int, mark: str) -> None:
    lines = [f"  {pid} sh A=1{variables(mark)} B=2\n" for pid, mark in MARKED.items()]
    assert parse_marks("".join(lines) + "  14 sh\n", mark) == [pid]


@pytest.mark.skipif(not Path("/bin/ps").exists(), reason="it reads what ps prints")
def test_a_process_with_the_number_of_another_one_is_not_signalled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with subprocess.Popen(["sleep", "3600"]) as child:
        with monkeypatch.context() as patched:
            patched.setattr(sys, "platform", "darwin")
            found = table()[child.pid]
            earlier = Process(child.pid, found.parent, uid=found.uid, start="an earlier one's")
            signal_process(earlier, signal.SIGKILL)
            assert read_by_ps(child.pid) is not None
            signal_process(found, signal.SIGTERM)
        assert child.wait(60) == -signal.SIGTERM
        assert read_by_ps(child.pid) is None
