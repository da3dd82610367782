"""The stand-in's `exec`: streams, terminals, exit codes and a missing agent."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios

import pytest
from tests.standins.tart.helper import StandIn


@pytest.fixture
def running(tart: StandIn) -> StandIn:
    tart.create("a", {"hello": "#!/bin/sh\necho hello $1\n"})
    tart.start("a")
    return tart


@pytest.mark.parametrize(
    ("argv", "code", "out", "err"),
    [
        (["./hello", "you"], 0, "hello you\n", ""),
        (["sh", "-c", "echo out; echo err >&2; exit 7"], 7, "out\n", "err\n"),
        (["sh", "-c", "kill -9 $$"], 255, "", ""),
        (["cat"], 0, "", ""),
        (["sh", "-c", 'echo "$HOME" "$PWD"'], 0, "{disk} {disk}\n", ""),
        (["nowhere"], 1, "", 'Error: exec: "nowhere": executable file not found in $PATH\n'),
    ],
    ids=["output", "both streams and a code", "killed", "no input", "home", "not found"],
)
def test_a_command_ends_differently(
    running: StandIn, argv: list[str], code: int, out: str, err: str
) -> None:
    done = running.call("exec", "a", *argv, stdin=b"not read")
    disk = running.storage.local("a").file("guest-disk")
    assert (done.code, done.out, done.err) == (code, out.format(disk=disk), err)


def test_options_of_the_command_are_taken_for_those_of_exec(running: StandIn) -> None:
    assert running.call("exec", "a", "echo", "-i", "--tty").out == "-i --tty\n"


def test_input_is_lost_or_has_no_end(running: StandIn) -> None:
    sent = os.urandom(3_000_000).hex().encode()
    assert running.call("exec", "-i", "a", "cat", stdin=sent).out == sent.decode()


def test_a_missing_agent_has_another_message(tart: StandIn) -> None:
    tart.create("a")
    tart.set("no-agent", vm="a")
    tart.start("a")
    done = tart.call("exec", "a", "true")
    assert done.code == 1
    assert done.err.startswith("Failed to connect to the VM using its control socket: ")
    assert done.err.endswith(", is the Tart Guest Agent running?\n")
    tart.unset("no-agent", vm="a")
    assert tart.call("exec", "a", "true").code == 0


def test_an_agent_answers_before_it_has_booted(tart: StandIn) -> None:
    tart.create("a")
    tart.set("boot-seconds", 1000)
    tart.start("a")
    assert tart.call("exec", "a", "true").code == 1
    tart.set("boot-seconds", 0)
    assert tart.call("exec", "a", "true").code == 0


def test_a_guest_cannot_be_shut_down_by_exec(tart: StandIn) -> None:
    tart.create("a")
    process = tart.start("a")
    done = tart.call("exec", "a", "sudo", "-n", "/sbin/shutdown", "-h", "now")
    # On a busy machine the guest may be gone before its command has ended, as a real one may be.
    assert (done.code, done.out) == (0, "Shutdown NOW!\n") or done.code != 0
    assert process.wait(timeout=30) == 0


def test_a_vm_that_ends_leaves_an_exec_behind(tart: StandIn) -> None:
    tart.create("a")
    process = tart.start("a")
    session = tart.popen("exec", "a", "sh", "-c", "echo ready; exec sleep 1000")
    assert session.stdout.readline() == b"ready\n"
    process.kill()
    _, err = session.communicate(timeout=30)
    assert (session.returncode, b"control socket" in err) == (1, True)


def test_a_command_outlives_its_client(running: StandIn, tmp_path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    script = f"echo ready; exec sleep 1000 3>{fifo}"
    session = running.popen("exec", "a", "sh", "-c", script)
    with fifo.open("rb") as reader:
        assert session.stdout.readline() == b"ready\n"
        session.kill()
        session.wait()
        assert reader.read() == b""


def test_a_slow_reader_does_not_slow_the_command(running: StandIn, tmp_path) -> None:
    """Nobody reads: the command must stand still, so its last act must not happen."""
    script = f"head -c 5000000 /dev/zero; touch {tmp_path}/done"
    session = running.popen("exec", "a", "sh", "-c", script)
    assert session.stdout.read(1) == b"\0"
    assert not (tmp_path / "done").exists()
    assert len(session.stdout.read()) == 4_999_999
    assert session.wait(timeout=30) == 0 and (tmp_path / "done").exists()


def resize(descriptor: int, rows: int, columns: int) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def read_until(descriptor: int, wanted: bytes) -> bytes:
    found = b""
    while wanted not in found:
        assert select.select([descriptor], [], [], 30)[0], found
        found += os.read(descriptor, 1000)
    return found


def test_a_terminal_has_no_size_or_keeps_it(running: StandIn) -> None:
    master, slave = pty.openpty()
    resize(slave, 40, 100)
    script = "stty size; trap 'stty size; exit 5' WINCH; echo ready; while :; do read x; done"
    session = running.popen(
        "exec", "-i", "-t", "a", "sh", "-c", script, stdin=slave, stdout=slave, stderr=slave
    )
    assert b"40 100" in read_until(master, b"ready")
    resize(slave, 50, 120)
    session.send_signal(signal.SIGWINCH)
    read_until(master, b"50 120")
    os.write(master, b"\n")
    assert session.wait(timeout=30) == 5
    os.close(master)
    os.close(slave)


def test_a_terminal_is_a_pipe_without_one_here(running: StandIn) -> None:
    done = running.call("exec", "-t", "a", "sh", "-c", "test -t 0 && test -t 1 && stty size")
    assert (done.code, done.out) == (0, "24 80\r\n")


def test_an_interrupted_exec_goes_on(running: StandIn) -> None:
    session = running.popen("exec", "a", "sh", "-c", "echo ready; exec sleep 1000")
    assert session.stdout.readline() == b"ready\n"
    session.send_signal(signal.SIGINT)
    assert session.wait(timeout=30) == -signal.SIGINT
    assert isinstance(session, subprocess.Popen)
