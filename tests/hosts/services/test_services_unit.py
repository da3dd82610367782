"""Both renderings give back exactly what the service says, and refuse what a service manager would misread."""

import plistlib
import re
import subprocess
from pathlib import Path
from shutil import which
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import Absent
from tests.hosts.services.managers import sections, words

from runyard.hosts.services.unit import BadService, Service, launchd_plist, systemd_unit

SERVICE = Service(
    name="up",
    description="runyard up in /srv/yard",
    version="1.2",
    argv=("/usr/bin/env", "up", "--data=/srv/yard"),
    environment={"PATH": "/opt/homebrew/bin:/usr/bin:/bin", "HOME": "/home/m1"},
    directory="/srv",
    log="/srv/yard/logs/service.log",
)
TEXT = st.text(
    st.characters(exclude_categories=("Cc", "Cs"), exclude_characters="\u2028\u2029\ufffe\uffff"),
    max_size=12,
)
NASTY = st.one_of(TEXT, st.text("\"'\\%$ ;#=a{}", max_size=8))
PROGRAMS = NASTY.map(lambda text: "/" + re.sub(r"[\"'\\]", "", text).strip() + "/x")
PATHS = NASTY.map(lambda text: "/" + text.strip().rstrip("\\").strip() + "/x")


def with_(**changed: Any) -> Service:
    return msgspec.structs.replace(SERVICE, **changed)


@given(program=PROGRAMS, arguments=st.lists(NASTY), log=PATHS, folder=PATHS, value=NASTY)
def test_no_character_of_a_service_changes_its_meaning(
    program: str, arguments: list[str], log: str, folder: str, value: str
) -> None:
    argv = (program, *arguments)
    made = with_(argv=argv, log=log, directory=folder, environment={"A": value, "HOME": folder})
    plist = plistlib.loads(launchd_plist(made))
    assert plist["ProgramArguments"] == list(argv)
    assert (plist["StandardOutPath"], plist["WorkingDirectory"]) == (log, folder)
    assert plist["EnvironmentVariables"] == made.environment
    unit = sections(systemd_unit(made).decode())["Service"]
    single = dict(unit)
    assert words(single["ExecStart"]) == list(argv)
    assert single["WorkingDirectory"].replace("%%", "%") == folder
    assert single["StandardOutput"].replace("%%", "%") == f"append:{log}"
    assert [words(text) for name, text in unit if name == "Environment"] == [
        [f"A={value}"],
        [f"HOME={folder}"],
    ]


def test_a_mac_starts_it_in_the_session_that_can_start_vms_and_restarts_it_always() -> None:
    plist = plistlib.loads(launchd_plist(SERVICE))
    assert plist["Label"] == "dev.runyard.up"
    assert plist["LimitLoadToSessionType"] == "Aqua"
    assert plist["RunAtLoad"] is True and plist["KeepAlive"] is True
    assert plist["ThrottleInterval"] == 10
    assert "UserName" not in plist
    assert plist["EnvironmentVariables"]["PATH"].startswith("/opt/homebrew/bin")


def test_a_restart_of_the_service_leaves_the_shims_of_vms_alone() -> None:
    assert plistlib.loads(launchd_plist(SERVICE))["AbandonProcessGroup"] is True
    assert dict(sections(systemd_unit(SERVICE).decode())["Service"])["KillMode"] == "process"


def test_linux_starts_it_at_boot_and_never_gives_up() -> None:
    unit = sections(systemd_unit(SERVICE).decode())
    assert dict(unit["Install"]) == {"WantedBy": "default.target"}
    assert dict(unit["Unit"])["StartLimitIntervalSec"] == "0"
    assert dict(unit["Service"])["Restart"] == "always"
    assert dict(unit["Service"])["RestartSec"] == "10"


@pytest.mark.parametrize("render", [launchd_plist, systemd_unit])
def test_the_order_of_variables_makes_no_new_file(render: Any) -> None:
    turned = dict(reversed(SERVICE.environment.items()))
    assert list(turned) != list(SERVICE.environment)
    assert render(with_(environment=turned)) == render(SERVICE)


@pytest.mark.parametrize("render", [launchd_plist, systemd_unit])
def test_an_upgrade_is_another_file(render: Any) -> None:
    assert render(with_(version="1.3")) != render(SERVICE)


REFUSED: dict[str, dict[str, Any]] = {
    "a line break in an argument": {"argv": ("/bin/x", "a\nExecStartPre=/bin/evil")},
    "a line break in a variable": {"environment": {"A": "a\nb"}},
    "a half of a character": {"argv": ("/bin/x", "\udcff")},
    "a name of a variable with a quote": {"environment": {'A"': "a"}},
    "a relative program": {"argv": ("runyard",)},
    "a relative log": {"log": "service.log"},
    "a directory that continues the line": {"directory": "/srv\\"},
    "a directory that ends in a blank": {"directory": "/srv "},
    "a description that continues the line": {"description": "x\\"},
    "a name that is a path": {"name": "../up"},
    "no program": {"argv": ()},
}


@pytest.mark.parametrize("changed", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("render", [launchd_plist, systemd_unit])
def test_what_a_manager_would_misread_is_refused(render: Any, changed: dict[str, Any]) -> None:
    with pytest.raises(BadService):
        render(with_(**changed))


@pytest.mark.parametrize("character", ['"', "'", "\\"])
def test_a_program_that_systemd_would_refuse_is_refused_with_the_reason(character: str) -> None:
    made = with_(argv=(f"/opt/o{character}brien/runyard",))
    with pytest.raises(BadService, match="systemd refuses"):
        systemd_unit(made)
    assert plistlib.loads(launchd_plist(made))["ProgramArguments"] == list(made.argv)


def test_systemd_itself_finds_nothing_wrong_with_the_unit(tmp_path: Path, absent: Absent) -> None:
    if which("systemd-analyze") is None:
        absent("systemd-analyze", "apt-get install systemd")
    folder = tmp_path / "a b%h"
    folder.mkdir()
    nasty = ('a "b" \\ c', "100%", "$HOME", "; x", "", "'")
    unit = tmp_path / SERVICE.unit
    unit.write_bytes(systemd_unit(with_(argv=("/usr/bin/env", *nasty), directory=str(folder))))
    argv = ["systemd-analyze", "verify", "--user", "--man=no", str(unit)]
    done = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)},
    )
    # What it reports of other units of this machine does not concern us.
    ours = [line for line in done.stderr.splitlines() if SERVICE.unit in line]
    assert (done.returncode, ours) == (0, [])
