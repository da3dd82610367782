"""The stand-in's `run`: locks, limits, signals and ends as those of the real one."""

import os
import re
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from tests.standins.tart import locks
from tests.standins.tart.helper import StandIn


def ended(process: "subprocess.Popen[bytes]") -> tuple[int, str, str]:
    out, err = process.communicate(timeout=30)
    return process.returncode, out.decode(), err.decode()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_running_vm_is_not_seen_as_running(tart: StandIn) -> None:
    tart.create("a")
    process = tart.start("a")
    assert locks.holder(tart.storage.local("a").file("config.json")) == process.pid
    assert tart.call("get", "a", "--format", "json").json()["State"] == "running"
    assert (tart.call("run", "a").code, tart.call("run", "a").err) == (
        2,
        'VM "a" is already running!\n',
    )
    assert (tart.call("delete", "a").code, tart.call("delete", "a").err) == (
        1,
        'VM "a" is running\n',
    )
    assert tart.call("stop", "a").code == 0
    assert ended(process) == (0, "Stopping VM...\n", "")
    assert tart.call("delete", "a").code == 0
    assert not Path(tart.storage.local("a").path).exists()


def test_the_line_about_vnc_differs_or_names_no_server(tart: StandIn) -> None:
    tart.create("a")
    process = tart.popen("run", "a", "--no-graphics", "--vnc-experimental")
    line = process.stdout.readline().decode()
    found = re.fullmatch(
        r"VNC server is running at vnc://:[a-z]+(?:-[a-z]+){3}@127\.0\.0\.1:(\d+)\n", line
    )
    assert found
    with socket.create_connection(("127.0.0.1", int(found[1])), timeout=10) as viewer:
        assert viewer.recv(100) == b"RFB 003.008\n"


def test_a_window_would_open_where_graphics_are_not_refused(tart: StandIn) -> None:
    tart.create("a")
    process = tart.popen("run", "a", "--vnc-experimental")
    assert process.stdout.readline().startswith(b"Opening vnc://:")
    environment = {**tart.environment, "CI": "1"}
    tart.create("b")
    other = tart.popen("run", "b", "--vnc-experimental", env=environment)
    assert other.stdout.readline().startswith(b"VNC server is running at ")


def test_a_third_vm_runs(tart: StandIn) -> None:
    for name in ("a", "b", "c"):
        tart.create(name)
    tart.start("a")
    second = tart.start("b")
    done = tart.call("run", "c")
    assert (done.code, done.err) == (
        1,
        "The number of VMs exceeds the system limit (other running VMs: a, b)\n",
    )
    second.kill()
    second.wait()
    assert tart.start("c").poll() is None
    tart.set("vm-limit", 3)
    assert tart.start("b").poll() is None


def test_two_vms_run_with_one_address(tart: StandIn) -> None:
    first, second = tart.create("a"), tart.create("b")
    second.save(first.config())
    tart.start("a")
    process = tart.popen("run", "b", "--no-graphics", "--vnc-experimental")
    assert process.stdout.readline() == (
        b"There is already a running VM with the same MAC address!\n"
    )
    assert process.stdout.readline() == b"Resetting VM to assign a new MAC address...\n"
    assert b"vnc" in process.stdout.readline()
    assert first.mac != second.mac


@pytest.mark.parametrize("victim", ["run", "boot"])
def test_a_guest_outlives_its_power(tart: StandIn, tmp_path: Path, victim: str) -> None:
    """The guest and an orphan of it hold a FIFO: its end shows that both are gone."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    boot = f"#!/bin/sh\n(setsid sleep 1000 >{fifo} &)\nexec sleep 1000 >{fifo}\n"
    tart.create("a", {"boot": boot})
    process = tart.start("a")
    with fifo.open("rb") as reader:
        tart.call("exec", "a", "true")
        os.kill(tart.pids("a")[victim], signal.SIGKILL)
        assert reader.read() == b""
    assert ended(process)[0] == (-signal.SIGKILL if victim == "run" else 0)
    assert not tart.storage.local("a").pid


@pytest.mark.parametrize(
    "script",
    [
        "exit 3",
        "shutdown -h now; exec sleep 1000",
        "sudo -n shutdown -h now; exec sleep 1000",
        "sudo /sbin/shutdown -h now; exec sleep 1000",
    ],
)
def test_a_guest_cannot_power_itself_off(tart: StandIn, script: str) -> None:
    tart.create("a", disk=f"#!/bin/sh\n{script}\n".encode())
    code, out, _ = ended(tart.popen("run", "a", "--no-graphics"))
    assert (code, out) == (0, "guest has stopped the virtual machine\n")


def test_a_guest_that_crashes_ends_well(tart: StandIn) -> None:
    tart.create("a")
    tart.set("crash-after", 0.01)
    code, out, err = ended(tart.popen("run", "a", "--no-graphics"))
    assert (code, "due to error" in out) == (1, True)
    assert err.startswith("Error: Internal Virtualization error.")


def test_a_changed_disk_is_lost_at_the_next_start(tart: StandIn) -> None:
    tart.create("a", {"boot": "#!/bin/sh\necho again >>count\n"})
    for _ in range(2):
        ended(tart.popen("run", "a", "--no-graphics"))
    tart.call("clone", "a", "b")
    ended(tart.popen("run", "b", "--no-graphics"))
    count = Path(tart.storage.local("b").file("guest-disk")) / "count"
    assert count.read_text() == "again\n" * 3


def test_a_read_only_share_can_be_written(tart: StandIn, tmp_path: Path, absent) -> None:
    for name in ("env", "status"):
        (tmp_path / name).mkdir()
    (tmp_path / "env" / "token").write_text("made-up")
    tart.create("a")
    shares = ["--dir", f"env:{tmp_path}/env:ro", "--dir", f"status:{tmp_path}/status"]
    tart.start("a", *shares)
    if tart.call("exec", "a", "printenv", "STANDIN_READONLY").out != "enforced\n":
        absent("mount namespaces", "allow this user to make them")
    script = 'cd "/Volumes/My Shared Files"; cat env/token; echo 3 >status/rc; rm env/token'
    done = tart.call("exec", "a", "sh", "-c", script)
    assert (done.out, done.code) == ("made-up", 1)
    assert "Read-only file system" in done.err
    assert (tmp_path / "status" / "rc").read_text() == "3\n"


def test_an_unknown_suffix_of_a_share_is_understood(tart: StandIn, tmp_path: Path) -> None:
    tart.create("a")
    done = tart.call("run", "a", "--no-graphics", "--dir", f"env:{tmp_path}:rw")
    assert done.code == 1
    assert f"{tmp_path}:rw" in done.err


def test_a_closed_stdout_is_survived(tart: StandIn) -> None:
    """The defect of the real one: it dies by SIGPIPE at its next line, and its VM with it."""
    tart.create("a")
    tart.set("run-prints-every", 0.02)
    process = tart.start("a")
    process.stdout.close()
    assert process.wait(timeout=30) == -signal.SIGPIPE


def test_stop_gives_up_on_a_run_that_ignores_it(tart: StandIn) -> None:
    tart.create("a")
    tart.set("run-ignores-int", vm="a")
    process = tart.start("a")
    assert tart.call("stop", "a", "--timeout", "0").code == 0
    assert process.wait(timeout=30) == -signal.SIGKILL


def test_a_request_to_stop_is_ignored_by_linux_or_obeyed_by_macos(tart: StandIn) -> None:
    tart.create("mac", {"boot": "#!/bin/sh\nexec sleep 1000\n"})
    tart.create("linux", {"boot": "#!/bin/sh\nexec sleep 1000\n"}, system="linux")
    mac, linux = tart.start("mac"), tart.start("linux")
    mac.send_signal(signal.SIGUSR2)
    linux.send_signal(signal.SIGUSR2)
    assert ended(linux)[0] == 0
    assert tart.storage.local("mac").pid == mac.pid


def test_a_suspended_vm_is_listed_as_stopped(tart: StandIn) -> None:
    tart.create("a")
    process = tart.start("a", "--suspendable")
    assert tart.call("suspend", "a").code == 0
    assert ended(process)[0] == 0
    assert tart.call("get", "a", "--format", "json").json()["State"] == "suspended"
    again = tart.popen("run", "a", "--no-graphics", "--vnc-experimental")
    assert again.stdout.readline() == b"restoring VM state from a snapshot...\n"


def test_an_address_is_known_too_early_or_gone_with_the_vm(tart: StandIn) -> None:
    tart.create("a")
    tart.set("ip-after", 1000)
    tart.start("a")
    assert tart.call("ip", "a").err == "no IP address found\n"
    tart.create("b")
    tart.set("ip-after", 0, vm="b")
    process = tart.start("b")
    address = tart.call("ip", "b").out
    assert re.fullmatch(r"[\d.]+\n", address)
    for resolver in ("agent", "arp"):
        assert tart.call("ip", "b", "--resolver", resolver).out == address
    process.kill()
    process.wait()
    assert tart.call("ip", "b").out == address
    assert tart.call("ip", "b", "--resolver", "agent").err == (
        "no IP address found, is your VM running?\n"
    )
    leases = (tart.home / "dhcpd_leases").read_text()
    assert re.search(r"\thw_address=1,[0-9a-f:]+\n\tidentifier=.*\n\tlease=0x[0-9a-f]+\n}", leases)


def test_an_expired_lease_or_an_older_one_counts(tart: StandIn) -> None:
    vm = tart.create("a")
    vm.save({**vm.config(), "macAddress": "0a:00:0b:01:02:03"})
    blocks = [
        "{{\n\tname=x\n\tip_address=192.168.64.{}\n\thw_address=1,a:0:b:1:2:3\n"
        "\tidentifier=1,a:0:b:1:2:3\n\tlease=0x{:x}\n}}\n".format(*each)
        for each in ((7, 1 << 40), (8, (1 << 40) + 1), (9, 1))
    ]
    (tart.home / "dhcpd_leases").write_text("".join(blocks))
    assert tart.call("ip", "a").out == "192.168.64.8\n"
    (tart.home / "dhcpd_leases").write_text(blocks[2])
    assert tart.call("ip", "a").code == 1


def test_the_exit_code_of_a_guest_is_not_in_its_share(tart: StandIn, tmp_path: Path) -> None:
    tart.create("a", {"boot": "#!/bin/sh\n"})
    tart.set("guest-exit-code", 7)
    ended(tart.popen("run", "a", "--no-graphics", "--dir", f"status:{tmp_path}"))
    assert (tmp_path / "runner-rc").read_text() == "7\n"
