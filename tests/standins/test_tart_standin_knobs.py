"""The stand-in's knobs make it fail as they say, and its journal counts what was asked."""

import json
import os
import select
import signal
import subprocess
import threading
from collections.abc import Callable

import pytest
from tests.standins.tart.helper import StandIn, install


def test_the_journal_has_the_environment_or_lacks_an_invocation(tart: StandIn) -> None:
    tart.create("a")
    tart.call("run", "gone", TART_REGISTRY_PASSWORD="made-up")
    tart.start("a")
    tart.call("run", "a")
    assert (tart.runs("a"), tart.runs("gone")) == (2, 1)
    lines = [json.loads(line) for line in (tart.home / "journal").read_text().splitlines()]
    assert [line["number"] for line in lines] == [1, 2, 3]
    assert tart.journal("list") == []
    assert "made-up" not in (tart.home / "journal").read_text()


def end_of(process: "subprocess.Popen[bytes]", seconds: float) -> bool:
    """Whether its stdout is closed by every process within so many seconds."""
    ready, _, _ = select.select([process.stdout], [], [], seconds)
    return bool(ready) and process.stdout.read() == b""


def until(condition: Callable[[], object]) -> None:
    """Wait for what another process does."""
    tick = threading.Event()
    for _ in range(6000):
        if condition():
            return
        tick.wait(0.01)
    raise AssertionError("it did not happen within a minute")


@pytest.mark.parametrize(("how", "kept"), [("1", False), ("own-session", True)])
def test_a_hanging_command_holds_no_pipe_or_outlives_its_group(
    tart: StandIn, how: str, kept: bool
) -> None:
    tart.set("hang-list", how)
    process = tart.popen("list", start_new_session=True)
    until(lambda: tart.hanging("list"))
    (child,) = tart.hanging("list")
    process.kill()
    process.wait()
    assert not end_of(process, 0), "the child of a killed command holds its stdout"
    assert (os.getpgid(child) == process.pid) is not kept
    if kept:
        tart.unset("hang-list")
    else:
        os.killpg(process.pid, signal.SIGKILL)
    assert end_of(process, 30)


def test_a_command_goes_on_hanging_without_the_knob(tart: StandIn) -> None:
    tart.set("hang-list", "times=1 ")
    first = tart.popen("list", "--format", "json")
    until(lambda: tart.hanging("list"))
    assert tart.call("get", "gone").code == 2
    assert tart.call("list").code == 0, "the second one does not hang"
    assert first.poll() is None
    first.send_signal(signal.SIGINT)
    tart.unset("hang-list")
    out, _ = first.communicate(timeout=30)
    assert (first.returncode, out) == (0, b"[\n\n]\n")


def test_a_failure_is_repeated_too_often(tart: StandIn) -> None:
    tart.set("fail-list", "times=2 3 made up")
    ends = [tart.call("list") for _ in range(3)]
    assert [(end.code, end.err) for end in ends] == [(3, "made up\n"), (3, "made up\n"), (0, "")]


def test_a_knob_for_one_vm_acts_on_another(tart: StandIn) -> None:
    tart.create("a")
    tart.create("b")
    tart.set("fail-get", "1 for one", vm="a")
    tart.set("fail-get", "1 for all")
    assert tart.call("get", "a").err == "for one\n"
    assert tart.call("get", "b").err == "for all\n"
    tart.unset("fail-get")
    assert tart.call("get", "b").code == 0


@pytest.mark.parametrize(
    ("value", "out"),
    [("cut", "[\n  {\n    "), ("empty", ""), ("not JSON", "not JSON\n")],
)
def test_bad_json_is_good(tart: StandIn, value: str, out: str) -> None:
    tart.create("a")
    tart.set("bad-json", value)
    found = tart.call("list", "--format", "json").out
    assert found.startswith(out) and bool(found) == bool(out)
    with pytest.raises(json.JSONDecodeError):
        json.loads(found)


@pytest.mark.parametrize("command", ["clone", "run"])
def test_a_full_disk_is_not_noticed(tart: StandIn, command: str) -> None:
    tart.create("a")
    tart.set(f"no-space-{command}")
    done = tart.call(command, "a", *(["b"] if command == "clone" else []))
    assert done.code == 1
    assert done.err.startswith("Error: The file “disk.img” couldn’t be saved")
    assert not list((tart.home / "tmp").iterdir())


def test_a_variable_is_no_knob(tart: StandIn) -> None:
    assert tart.call("list", TART_STANDIN_FAIL_LIST="4 made up").code == 4


def test_a_launcher_needs_tart_home(tart: StandIn, tmp_path) -> None:
    program = install(tmp_path / "a folder", home=tmp_path / "its home")
    env = {"PATH": os.environ["PATH"]}
    done = subprocess.run([program, "list", "-q"], env=env, capture_output=True, check=True)
    assert done.stdout == b"" and (tmp_path / "its home" / "vms").is_dir()
