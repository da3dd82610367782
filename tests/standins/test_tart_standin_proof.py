"""The script for Macs, `tools/prove_on_a_mac.sh`, finds the stand-in right, and a wrong one wrong.

It also shows that its report holds no secret: the script cannot be run on a Mac here.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import lawtree
import pytest
from tests.fixtures_registry import RegistryServer, registry, registry_program  # noqa: F401 - fixtures
from tests.hosts.services.computer import Computer
from tests.standins.tart.helper import StandIn, archive
from tests.tart_images import tart_image

SCRIPT = lawtree.ROOT / "tools" / "prove_on_a_mac.sh"
IMAGE = "registry.test/acme/macos:one"


def prove(tart: StandIn, tmp_path: Path, **more: str) -> tuple[int, str]:
    tart.set("registry-directory", tmp_path / "registry")
    tart.create("made", {})
    assert tart.call("push", "made", IMAGE).code == 0
    report = tmp_path / "report.txt"
    env = {
        **tart.environment,
        "PYTHON": sys.executable,
        "RUNYARD_LEASES": str(tart.home / "dhcpd_leases"),
        "RUNYARD_SKIP_DRIVER": "1",
        "RUNYARD_BOOT_SECONDS": "20",
        "LOGNAME": "somebodys-name",
        "TART_REGISTRY_USERNAME": "ci",
        "TART_REGISTRY_PASSWORD": "correct-horse",
        "TMPDIR": str(tmp_path),
        **more,
    }
    done = subprocess.run(
        ["sh", str(SCRIPT), IMAGE, str(report)], env=env, capture_output=True, check=False
    )
    assert done.stderr == b""
    return done.returncode, report.read_text()


def failed(report: str) -> list[str]:
    return [line for line in report.splitlines() if line.startswith("FAIL")]


def test_the_report_has_the_names_of_user_and_host_nowhere(tmp_path: Path) -> None:
    text = SCRIPT.read_text("utf-8")
    functions = text[text.index("literal() {") : text.index("line() {")]
    for name, said in (("id", "j.doe"), ("hostname", "mini-2.lan")):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\necho {said}\n")
        program.chmod(0o755)
    given = (
        "j.doe",
        "j.doe j.doe j.doe,j.doe",
        "of mini-2",
        "mini-2 mini-2.lan mini-2",
        "/Users/j.doe/x /tmp/w+k/y aa:bb:cc:0:1:ff",
        "vnc://:secret@127.0.0.1 jxdoe ajdoe mini-22",
    )
    done = subprocess.run(
        ["sh", "-c", f"work=/tmp/w+k\n{functions}\nclean"],
        input="\n".join(given) + "\n",
        env={"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "HOME": "/Users/j.doe"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [
        "USER",
        "USER USER USER,USER",
        "of HOST",
        "HOST HOST.lan HOST",
        "~/x WORK/y MAC-ADDRESS",
        "vnc://REDACTED@127.0.0.1 jxdoe ajdoe mini-22",
    ]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_proof_of_a_fleet_leaves_nothing_running(
    tart: StandIn,
    registry: RegistryServer,  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    registry.push(tart_image(disk=archive({})), "acme/macos", "one")
    report = tmp_path / "report.txt"
    (tmp_path / "computer").mkdir()
    computer = Computer(tmp_path / "computer", "systemd")  # its service manager
    env = {
        **tart.environment,
        "HOME": str(computer.home),
        "PATH": f"{computer.bin}:{tart.environment['PATH']}",
        "PYTHON": sys.executable,
        "RUNYARD_LEASES": str(tart.home / "dhcpd_leases"),
        "RUNYARD_SKIP_DRIVER": "1",
        "RUNYARD_BOOT_SECONDS": "60",
        "RUNYARD_INSECURE_REGISTRY": registry.address,
        "TMPDIR": str(tmp_path),
    }
    argv = [
        "sh",
        str(SCRIPT),
        "--join",
        "--service",
        f"{registry.address}/acme/macos:one",
        str(report),
    ]
    done = subprocess.run(argv, env=env, capture_output=True, check=False)
    text = report.read_text()
    assert (failed(text), done.returncode) == ([], 0)
    for words in (
        "a job of the practice GitHub ran in a VM",
        "host-1 is back",
        "over loopback",
        "the service runs",
    ):
        assert words in text, words
    assert str(tmp_path) not in text
    assert not re.search(r"code=[0-9a-f]{32}", text), "a link that opens the dashboard"
    assert "running" not in tart.call("list", "--source", "local").out
    assert computer.running == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_proof_finds_a_fault_of_the_stand_in(tart: StandIn, tmp_path: Path) -> None:
    code, report = prove(tart, tmp_path)
    assert (failed(report), code) == ([], 0)
    assert report.count("PASS") > 40
    assert "correct-horse" not in report
    assert str(tmp_path) not in report
    assert not re.search(r"(?:[0-9a-f]{1,2}:){5}[0-9a-f]{1,2}", report)
    assert tart.call("list", "-q", "--source", "local").out == "made\n", "it leaves VMs behind"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_proof_calls_a_wrong_tart_right(tart: StandIn, tmp_path: Path) -> None:
    tart.set("vm-limit", 3)
    tart.set("no-ip")
    tart.set("fail-get", "2 the specified VM does not exist")
    code, report = prove(tart, tmp_path, RUNYARD_LONGEST="10")
    found = "\n".join(failed(report))
    assert code == len(failed(report)) > 3
    for words in ("get of a missing VM", "has an address by DHCP", "a third VM"):
        assert words in found


@pytest.mark.parametrize("argv", [[], ["--help"]])
def test_the_proof_starts_without_an_image(tart: StandIn, argv: list[str]) -> None:
    done = subprocess.run(
        ["sh", str(SCRIPT), *argv], env=tart.environment, capture_output=True, check=False
    )
    assert done.returncode == 64
    assert b"sh tools/prove_on_a_mac.sh [--up] [--join] [--service] IMAGE [REPORT]\n" in done.stderr
    assert b"shellcheck" not in done.stderr
    assert not Path("runyard-mac-report.txt").exists()


def test_the_script_is_not_clean_for_shellcheck() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).with_name("shellcheck")), str(SCRIPT)],
        env=dict(os.environ),
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, b"")
