"""A command that is killed or told to stop leaves no process and no directory behind."""

import contextlib
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest


def _marked(mark: str) -> list[int]:
    """Processes whose environment carries our mark."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def _wait_for_the_end_of(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        end = os.pidfd_open(pid)
        try:
            select.select([end], [], [])
        finally:
            os.close(end)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["terminated", "killed"])
def test_a_command_that_ends_early_takes_its_processes_with_it(
    tmp_path: Path, how: signal.Signals
) -> None:
    mark = f"RUNYARD_TEST_MARK={tmp_path.name}-{how.name}"
    name, _, value = mark.partition("=")
    temp = tmp_path / "t"
    temp.mkdir()
    environ = {**os.environ, name: value, "TMPDIR": str(temp)}
    command = [sys.executable, "-m", "runyard.cli.main", "sim", "--seeds", "4", "--hours", "0.02"]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert "seed" in run.stdout.readline()  # the first run has ended, others are under way
        run.send_signal(how)
        run.stdout.read()  # ends when the last process that writes to it has ended
    while left := _marked(mark):  # the database server may take a moment longer to end
        for pid in left:
            _wait_for_the_end_of(pid)
    assert _marked(mark) == []
    assert list(temp.glob("runyard-sim-*")) == []
