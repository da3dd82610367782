"""Installing proves that a new process stays, changes nothing without need, and goes back if it must."""

import asyncio
import errno
from pathlib import Path

import pytest
from tests.hosts.services.computer import Computer

from runyard.hosts.services.errors import CommandFailed, DidNotStay, NoManager, NotWritable
from runyard.hosts.services.here import manager_here
from runyard.hosts.services.installing import Installed, Status, install, status, uninstall
from runyard.hosts.services.unit import Service


def do_install(computer: Computer, service: Service) -> Installed:
    return asyncio.run(install(service, computer.manager(), clock=computer.clock))


def do_uninstall(computer: Computer) -> bool:
    return asyncio.run(uninstall("up", computer.manager()))


def status_of(computer: Computer) -> Status:
    return asyncio.run(status("up", computer.manager()))


def file_of(computer: Computer) -> Path:
    return computer.manager().path("up")


def test_what_is_installed_runs_and_its_files_are_readable_by_whom_they_should(
    computer: Computer,
) -> None:
    done = do_install(computer, computer.service("up"))
    assert (done.change, done.pid) == ("installed", 101)
    assert computer.running == [["/opt/bin/runyard", "up"]]
    assert file_of(computer).stat().st_mode & 0o777 == 0o644
    log = Path(done.log)
    assert log.stat().st_mode & 0o777 == 0o600
    assert log.parent.stat().st_mode & 0o777 == 0o700


def test_a_second_install_changes_and_restarts_nothing(computer: Computer) -> None:
    first = do_install(computer, computer.service("up"))
    written = file_of(computer).stat()
    computer.calls()
    again = do_install(computer, computer.service("up"))
    assert (again.change, again.pid) == ("unchanged", first.pid)
    assert file_of(computer).stat().st_mtime_ns == written.st_mtime_ns
    changing = ("bootstrap", "bootout", "kickstart", "restart", "stop", "daemon-reload")
    assert not [call for call in computer.calls() if any(verb in call for verb in changing)]


def test_other_options_replace_the_running_service(computer: Computer) -> None:
    first = do_install(computer, computer.service("up"))
    done = do_install(computer, computer.service("up", "--hosts=3"))
    assert done.change == "replaced" and done.pid != first.pid
    assert computer.running == [["/opt/bin/runyard", "up", "--hosts=3"]]


def test_one_that_does_not_run_is_started_by_another_install(computer: Computer) -> None:
    do_install(computer, computer.service("up"))
    state = computer.state
    for job in state["jobs"].values():
        job.update(pid=0, next=None)
    computer.set(jobs=state["jobs"])
    assert do_install(computer, computer.service("up")).change == "started"
    assert len(computer.running) == 1


def test_a_program_that_dies_after_two_seconds_is_no_success(computer: Computer) -> None:
    with pytest.raises(DidNotStay) as failure:
        do_install(computer, computer.service("up", "--dies-after=2"))
    assert "code 1" in str(failure.value) and "removed again" in str(failure.value)
    assert failure.value.said[0] == "start 1 of up --dies-after=2"
    assert computer.running == []
    assert not file_of(computer).exists()
    assert status_of(computer).loaded is False


def test_a_program_that_looks_alive_between_its_deaths_is_no_success(computer: Computer) -> None:
    """Both looks find a process, but not the same one: it is restarted within the time between them."""
    with pytest.raises(DidNotStay):
        do_install(computer, computer.service("up", "--dies-after=2", throttle=3))


def test_the_previous_version_comes_back_and_runs(computer: Computer) -> None:
    do_install(computer, computer.service("up"))
    before = file_of(computer).read_bytes()
    with pytest.raises(DidNotStay, match="previous version is back") as failure:
        do_install(computer, computer.service("up", "--dies-after=2"))
    assert file_of(computer).read_bytes() == before
    assert computer.running == [["/opt/bin/runyard", "up"]]
    assert set(failure.value.said) <= {f"start {n} of up --dies-after=2" for n in (1, 2, 3)}


def test_a_stopped_service_stays_stopped_when_its_new_version_fails(computer: Computer) -> None:
    do_install(computer, computer.service("up"))
    asyncio.run(computer.manager().unload("up"))
    with pytest.raises(DidNotStay):
        do_install(computer, computer.service("up", "--dies-after=2"))
    assert computer.running == []


def test_escape_sequences_of_a_log_do_not_reach_the_terminal(computer: Computer) -> None:
    with pytest.raises(DidNotStay) as failure:
        do_install(computer, computer.service("\u202e", "--dies-after=2"))
    assert failure.value.said and "\u202e" not in "".join(failure.value.said)


def test_uninstalling_stops_it_and_keeps_its_data_and_twice_is_no_error(computer: Computer) -> None:
    done = do_install(computer, computer.service("up"))
    assert do_uninstall(computer) is True
    assert computer.running == []
    assert not file_of(computer).exists()
    assert Path(done.log).exists()
    assert do_uninstall(computer) is False


def test_a_service_whose_file_was_removed_by_hand_is_stopped_by_uninstall(
    computer: Computer,
) -> None:
    do_install(computer, computer.service("up"))
    file_of(computer).unlink()
    assert do_uninstall(computer) is True
    assert computer.running == []


def test_a_program_whose_files_have_changed_is_started_anew_though_its_service_is_the_same(
    computer: Computer,
) -> None:
    service = computer.service("up")
    first = do_install(computer, service)
    again = asyncio.run(install(service, computer.manager(), clock=computer.clock, restart=True))
    assert (first.change, again.change) == ("installed", "restarted")
    assert again.pid > first.pid
    assert computer.running == [["/opt/bin/runyard", "up"]]


def test_status_says_what_runs_since_when(computer: Computer) -> None:
    do_install(computer, computer.service("up"))
    started = computer.clock.now() - 5
    computer.clock.pass_by(100_000)
    found = status_of(computer)
    assert found.installed and found.loaded
    assert (found.pid, found.since, found.restarts) == (101, started, 0)


def test_status_shows_a_program_that_ends_again_and_again(computer: Computer) -> None:
    service = computer.service("up")
    do_install(computer, service)
    state = computer.state
    for job in state["jobs"].values():
        job["argv"].append("--dies-after=2")
    computer.set(jobs=state["jobs"])
    computer.clock.pass_by(43)
    found = status_of(computer)
    assert found.restarts == 4
    assert (found.pid, found.last_exit) == (0, "code 1")


def test_status_of_nothing_is_no_error(computer: Computer) -> None:
    found = status_of(computer)
    assert (found.installed, found.loaded, found.pid) == (False, False, 0)


def test_what_is_not_installed_needs_no_session(computer: Computer) -> None:
    computer.set(no_session=True)
    assert status_of(computer).installed is False
    assert do_uninstall(computer) is False


def test_without_a_session_the_error_says_how_to_get_one(computer: Computer) -> None:
    computer.set(no_session=True)
    with pytest.raises(NoManager, match="og in"):
        do_install(computer, computer.service("up"))
    assert not file_of(computer).exists()


def test_without_the_managers_programs_the_error_names_them(computer: Computer) -> None:
    for program in computer.bin.iterdir():
        if program.name in {"launchctl", "systemctl"}:
            program.unlink()
    with pytest.raises(NoManager, match="was not found"):
        do_install(computer, computer.service("up"))


def test_a_file_in_place_of_the_directory_is_named(computer: Computer) -> None:
    folder = file_of(computer).parent
    folder.parent.mkdir(parents=True)
    folder.write_text("")
    with pytest.raises(NotWritable, match=folder.name):
        do_install(computer, computer.service("up"))


def test_a_mac_that_accepts_a_registration_without_a_start_gets_one_forced(mac: Computer) -> None:
    mac.set(throttled=True)
    assert do_install(mac, mac.service("up")).pid == 101
    kicks = [call for call in mac.calls() if "kickstart" in call]
    assert kicks == ["launchctl kickstart -k gui/501/dev.runyard.up"]


def test_a_mac_waits_for_the_end_of_the_previous_program(mac: Computer) -> None:
    do_install(mac, mac.service("up"))
    mac.set(ends_within=12.0)
    assert do_install(mac, mac.service("up", "--hosts=3")).change == "replaced"
    assert mac.running == [["/opt/bin/runyard", "up", "--hosts=3"]]


def test_a_program_that_does_not_end_is_named(mac: Computer) -> None:
    do_install(mac, mac.service("up"))
    mac.set(ends_within=1000.0)
    with pytest.raises(CommandFailed, match="is still there"):
        do_uninstall(mac)


def test_a_mac_repeats_a_bootstrap_that_comes_too_soon(mac: Computer) -> None:
    mac.set(bootstrap_fails=2)
    assert do_install(mac, mac.service("up")).change == "installed"


def test_a_bootstrap_that_never_succeeds_is_an_error_with_its_words(mac: Computer) -> None:
    mac.set(bootstrap_fails=100)
    with pytest.raises(CommandFailed, match="Input/output error"):
        do_install(mac, mac.service("up"))
    assert not file_of(mac).exists()


def test_a_job_that_somebody_disabled_is_enabled_by_an_install(mac: Computer) -> None:
    mac.set(disabled=["dev.runyard.up"])
    assert do_install(mac, mac.service("up")).change == "installed"
    mac.set(disabled=["dev.runyard.up"], auto_login=True)
    assert status_of(mac).at_boot.code == "disabled"
    assert do_install(mac, mac.service("up")).change == "unchanged"
    assert status_of(mac).at_boot.code == "ready"


def test_a_mac_without_automatic_login_starts_nothing_after_a_reboot(mac: Computer) -> None:
    do_install(mac, mac.service("up"))
    found = status_of(mac).at_boot
    assert found.code == "no-auto-login" and "sysadminctl -autologin" in found.command


def test_a_file_that_cannot_be_removed_is_an_error_with_its_fix(
    linux: Computer, monkeypatch: pytest.MonkeyPatch
) -> None:
    do_install(linux, linux.service("up"))

    def refused(path: Path, **_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "unlink", refused)
    with pytest.raises(NotWritable, match=r"cannot be removed .Permission denied.*repeat this"):
        asyncio.run(uninstall("up", linux.manager()))


BOOTS = {
    "another user": ({"login_user": "guest"}, "other-auto-login", "sysadminctl -autologin"),
    "FileVault": ({"filevault": "FileVault is On."}, "filevault", "fdesetup disable"),
    "FileVault soon": (
        {"filevault": "FileVault is Off.\nDeferred enablement appears to be active for user 'm1'."},
        "filevault",
        "fdesetup disable",
    ),
    "no answer": ({"filevault": "Error: 1"}, "unknown", "runyard doctor"),
    "no user": ({"login_user": "-- x --"}, "unknown", "runyard doctor"),
}


@pytest.mark.parametrize(("state", "code", "command"), BOOTS.values(), ids=BOOTS)
def test_a_mac_that_waits_for_a_person_is_not_ready_at_boot(
    state: dict[str, str], code: str, command: str, mac: Computer
) -> None:
    do_install(mac, mac.service("up"))
    mac.set(auto_login=True, **state)
    found = status_of(mac).at_boot
    assert found.code == code and command in found.command


def test_linux_without_lingering_starts_nothing_after_a_reboot(linux: Computer) -> None:
    do_install(linux, linux.service("up"))
    found = status_of(linux).at_boot
    assert found.code == "no-linger" and "loginctl enable-linger" in found.command
    linux.set(linger=True)
    assert status_of(linux).at_boot.code == "ready"


def test_a_unit_that_cannot_start_at_all_is_rolled_back(linux: Computer) -> None:
    do_install(linux, linux.service("up"))
    with pytest.raises(CommandFailed, match="previous version is back"):
        do_install(linux, linux.service("up", "--cannot-start"))
    assert linux.running == [["/opt/bin/runyard", "up"]]


def test_root_on_a_mac_is_sent_to_the_user_of_the_screen(mac: Computer) -> None:
    with pytest.raises(NoManager, match="without sudo"):
        manager_here({}, platform="darwin", home=mac.home, uid=0, clock=mac.clock)
