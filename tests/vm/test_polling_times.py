"""Tests how long polling waits for its own programs; the time is given, the programs are real."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runyard.vm.shim.guest import Guest
from runyard.vm.shim.polling import BAD_ARCHIVE, NO_WORKER, WORKER, Polling

IDLE, SILENCE = 100.0, 600.0
ANSWERS = ["printf", '\\n{"jit": "x", "env": {}}']
STUCK = ["sleep", "3600"]


class Recorder:
    """A shim without a loop: it remembers how the VM was ended."""

    def __init__(self) -> None:
        self.ended: list[tuple[str, int | None]] = []

    def listen(self, handle: int, act: Callable[[bytes], None]) -> None:
        os.set_blocking(handle, False)

    def forget(self, handle: int) -> None:
        return

    def end(self, why: str, code: int | None = None) -> None:
        self.ended.append((why, code))


class Play:
    """A polling whose guest does what a script says: `$3` is the command that it would run."""

    def __init__(self, folder: Path, script: str, *, poller: list[str] = ANSWERS) -> None:
        program = folder / "guest"
        program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        program.chmod(0o755)
        polling: dict[str, Any] = {
            "exec": [str(program)],
            "poller": poller,
            "runner": "",
            "archive": "",
            "env": [],
            "boot": 900.0,
            "idle": IDLE,
            "silence": SILENCE,
        }
        order = {"env": {"PATH": os.environ["PATH"]}, "mark": "m", "polling": polling}
        self.host = Recorder()
        self.shown = b""
        self.polling = Polling(self.host, Guest(str(folder), order), self.show)

    def show(self, data: bytes) -> None:
        self.shown += data

    def child(self, now: float) -> int:
        """Waits for the end of one child, which is reported; returns how it ended."""
        pid, status = os.wait()
        code = os.waitstatus_to_exitcode(status)
        assert self.polling.child_ended(pid, code, now)
        return code

    def to_job(self) -> None:
        """Until the runner is started."""
        for _ in range(2):
            self.polling.work(0.0)
            assert self.child(0.0) == 0
        self.polling.work(0.0)


def test_a_poller_that_is_stuck_is_replaced(tmp_path: Path) -> None:
    play = Play(tmp_path, "exit 0", poller=STUCK)
    play.polling.work(0.0)
    assert play.child(0.0) == 0
    assert play.polling.work(0.0) == SILENCE
    play.polling.work(SILENCE - 1)
    play.polling.work(SILENCE)
    assert play.child(SILENCE) == -9
    assert play.polling.work(SILENCE + 10) == SILENCE  # another one polls
    play.polling.work(2 * SILENCE + 10)
    assert play.child(0.0) == -9
    assert play.host.ended == []


# The runner is the first command with this text, the look at the processes the other one.
GUEST = 'case $3 in *"ps -A"*) {check} ;; *"--jitconfig"*) exec sleep 3600 ;; esac'


@pytest.mark.parametrize(
    ("code", "ended"), [(NO_WORKER, True), (WORKER, False), (1, False), (127, False), (0, False)]
)
def test_only_a_guest_that_says_so_is_idle(tmp_path: Path, code: int, *, ended: bool) -> None:
    play = Play(tmp_path, GUEST.format(check=f"exit {code}"))
    play.to_job()
    play.polling.work(IDLE)
    assert play.child(IDLE) == code
    assert [code for _, code in play.host.ended] == ([0] if ended else [])
    end_runner(play)


def test_a_look_at_the_runner_that_hangs_is_ended_and_repeated(tmp_path: Path) -> None:
    play = Play(tmp_path, GUEST.format(check="exec sleep 3600"))
    play.to_job()
    for now in (IDLE, IDLE + 1000):
        play.polling.work(now)
        play.polling.work(now + 30)
        assert play.child(now + 30) == -9
    assert play.host.ended == []
    end_runner(play)


def end_runner(play: Play) -> None:
    os.killpg(play.polling._pid, 9)
    play.child(0.0)


def test_a_runner_whose_command_never_reached_the_guest_is_started_again(tmp_path: Path) -> None:
    script = f'case $3 in *"--jitconfig"*) echo again >>{tmp_path}/runs; exit 1 ;; esac'
    play = Play(tmp_path, script)
    play.to_job()
    for now in (0.0, 10.0, 119.0):
        assert play.child(now) == 1
        assert play.host.ended == []
        play.polling.work(now + 1.0)
    assert play.child(120.0) == 1
    assert [code for _, code in play.host.ended] == [None]
    assert (tmp_path / "runs").read_text() == "again\n" * 4


@pytest.mark.parametrize("phase", ["prepare", "poll", "run", "look"])
def test_a_vm_ends_because_a_program_is_missing_for_a_moment(tmp_path: Path, phase: str) -> None:
    """As while tart, or this package, is upgraded."""
    poller = tmp_path / "poller"
    poller.write_text('#!/bin/sh\nprintf \'\\n{"jit": "x", "env": {}}\'\n', encoding="utf-8")
    poller.chmod(0o755)
    up = tmp_path / "up"  # a pipe that is opened when the shell has read its program
    os.mkfifo(up)
    script = GUEST.format(check=f"exit {WORKER}").replace("exec sleep", f": >{up}; exec sleep")
    play = Play(tmp_path, script, poller=[str(poller)])
    program = poller if phase == "poll" else tmp_path / "guest"
    away = tmp_path / "away"
    now = 0.0
    for each in ("prepare", "poll", "run", "look"):
        now += IDLE if each == "look" else 1.0
        if each == phase:
            program.rename(away)
            play.polling.work(now)
            assert play.host.ended == []
            away.rename(program)
            now += IDLE
        play.polling.work(now)
        if each == "run":
            up.read_bytes()
        else:
            play.child(now)
    assert play.host.ended == []
    end_runner(play)


def test_a_program_that_stays_missing_is_named(tmp_path: Path) -> None:
    play = Play(tmp_path, "exit 0")
    (tmp_path / "guest").unlink()
    play.polling.work(0.0)
    play.polling.work(40.0)
    assert b"a program cannot be started" in play.shown and play.host.ended == []
    play.polling.work(901.0)
    assert [why.partition(":")[0] for why, _ in play.host.ended] == [
        "the guest did not answer within 900 s"
    ]
    assert "No such file" in play.host.ended[0][0]


def test_a_vm_whose_poller_stays_missing_is_idle_for_ever(tmp_path: Path) -> None:
    """A program that was removed, and not upgraded: another VM gets the one that is there now."""
    play = Play(tmp_path, "exit 0", poller=[str(tmp_path / "poller")])
    play.polling.work(0.0)
    play.child(0.0)
    for now in (1.0, 500.0, 600.0):
        assert play.polling.work(now) == 1.0
        assert play.host.ended == []
    play.polling.work(601.0)
    assert [why.partition(":")[0] for why, _ in play.host.ended] == [
        "the host cannot poll for the guest"
    ]
    assert "No such file" in play.host.ended[0][0]


def test_a_guest_that_never_gets_ready_says_why_and_each_reason_once(tmp_path: Path) -> None:
    play = Play(tmp_path, f'cat {tmp_path}/why >&2; exit "$(cat {tmp_path}/code)"')
    (tmp_path / "code").write_text("1")
    for now, why in (
        (0.0, "no agent"),  # it boots
        (29.0, "no agent"),
        (30.0, "no agent"),
        (40.0, "no agent"),
        (50.0, "no space"),
        (60.0, "no agent"),
        (70.0, ""),
    ):
        (tmp_path / "why").write_text(why)
        play.polling.work(now)
        assert play.child(now) == 1
    assert play.shown.decode().splitlines() == [
        "runyard: the guest is not ready yet: no agent",
        "runyard: the guest is not ready yet: no space",
        "runyard: the guest is not ready yet: a command in it ended with 1",
    ]
    assert play.host.ended == []
    (tmp_path / "code").write_text(str(BAD_ARCHIVE))
    (tmp_path / "why").write_text("the archive x cannot be unpacked")
    play.polling.work(80.0)
    assert play.child(80.0) == BAD_ARCHIVE
    assert play.host.ended == [("the archive x cannot be unpacked", None)]
    assert play.shown.endswith(b"runyard: the archive x cannot be unpacked\n")
