"""The real runner gives judges what programs print; one that hangs, is missing or prints garbage stops nothing."""

import asyncio
import os
import threading
from pathlib import Path

import msgspec
import pytest
from tests.hosts.doctor import outputs_linux, outputs_macos
from tests.hosts.doctor.cases import Case, Ran, facts, facts_of
from tests.hosts.doctor.stubs import HANG, write_files, write_programs

from runyard.hosts.doctor import inspections
from runyard.hosts.doctor.checks import Check, Command, Inspect, checks_for
from runyard.hosts.doctor.plans.findings import Findings, Verdict
from runyard.hosts.doctor.plans.ids import CheckId
from runyard.hosts.doctor.plans.reasons import Found
from runyard.hosts.doctor.runner import Runner, apart, environment

CASES = [*outputs_macos.CASES, *outputs_linux.CASES]
# Checks with programs; those without are the same for the runner and for the table.
PROGRAMS = [
    each
    for platform in ("darwin", "linux")
    for each in checks_for(platform)
    if each.probes and isinstance(each.probes[0], Command) and platform in each.platforms
]


def judged(case: Case, check: Check, folder: Path, **more: float) -> Findings:
    root = write_files(folder / "root", case.files)
    runner = Runner(facts_of(case), env={"PATH": str(folder / "bin")}, root=root, **more)
    return asyncio.run(runner.run([check]))[check.id]


@pytest.fixture
def inspected(monkeypatch: pytest.MonkeyPatch):
    def set_values(case: Case) -> None:
        for name, value in case.values.items():
            monkeypatch.setitem(inspections.INSPECTIONS, name, lambda _, value=value: value)

    return set_values


@pytest.mark.parametrize(
    "case",
    [each for each in CASES if each.ran],
    ids=lambda each: f"{each.platform}-{each.id}-{each.label}",
)
def test_what_a_program_prints_reaches_no_judge(case: Case, tmp_path: Path, inspected) -> None:
    inspected(case)
    write_programs(tmp_path / "bin", case.ran)
    [finding] = judged(case, case.check, tmp_path)
    assert (finding.reason.code, finding.verdict.value) == (case.found, case.verdict)


def good(check: Check) -> Case:
    platform = check.platforms[0] if len(check.platforms) == 1 else "linux"
    return next(
        each
        for each in CASES
        if each.id is check.id and each.platform == platform and each.verdict == "ok"
    )


def name(check: Check) -> str:
    return f"{check.platforms[0]}-{check.id}"


# What these judge by is a setting that may be read, or this very Python.
SPARED = {CheckId.UPDATES, CheckId.PYTHON}
PROBED = [each for each in PROGRAMS if each.id not in SPARED]


@pytest.mark.parametrize("check", PROBED, ids=name)
def test_a_program_that_hangs_holds_up_the_doctor(check: Check, tmp_path: Path, inspected) -> None:
    case = good(check)
    inspected(case)
    write_programs(tmp_path / "bin", dict.fromkeys(case.ran, HANG))
    [finding] = judged(case, check, tmp_path, slack=0.02)
    assert (finding.reason.code, finding.verdict) == (Found.PROBE_HUNG, Verdict.UNKNOWN)


@pytest.mark.parametrize("check", PROBED, ids=name)
def test_a_program_that_prints_garbage_is_believed(check: Check, tmp_path: Path, inspected) -> None:
    case = good(check)
    inspected(case)
    write_programs(tmp_path / "bin", dict.fromkeys(case.ran, Ran("\x1b[2J?\n\n<html>\n")))
    [finding] = judged(case, check, tmp_path)
    assert finding.verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("check", PROBED, ids=name)
def test_a_program_that_is_missing_is_not_reported(check: Check, tmp_path: Path, inspected) -> None:
    case = good(check)
    inspected(case)
    write_programs(tmp_path / "bin", {})
    [finding] = judged(case, check, tmp_path)
    assert finding.verdict is not Verdict.OK
    assert finding.reason.code in {
        Found.PROBE_MISSING, Found.TART_ABSENT, Found.SANDBOX_ABSENT, Found.NETWORK_ABSENT,
    }  # fmt: skip


def test_a_program_that_may_not_be_started_breaks_the_doctor(tmp_path: Path) -> None:
    case = next(each for each in CASES if each.id is CheckId.SLEEP)
    (write_programs(tmp_path / "bin", case.ran) / "pmset").write_bytes(b"\x7fELF broken")
    [finding] = judged(case, case.check, tmp_path)
    assert finding.reason.code is Found.PROBE_REFUSED


def test_one_hanging_check_delays_or_hides_the_others(tmp_path: Path) -> None:
    cases = [
        next(each for each in outputs_macos.CASES if each.id is wanted and each.verdict == "ok")
        for wanted in (CheckId.SLEEP, CheckId.FILEVAULT, CheckId.MACOS_VERSION)
    ]
    ran = {words: what for each in cases for words, what in each.ran.items()}
    write_programs(tmp_path / "bin", {**ran, "fdesetup status": HANG})
    soon = (Command(("fdesetup", "status"), 0.1),)
    checks = [
        msgspec.structs.replace(each.check, probes=soon)
        if each.id is CheckId.FILEVAULT
        else each.check
        for each in cases
    ]
    runner = Runner(facts("darwin"), env={"PATH": str(tmp_path / "bin")})
    found = asyncio.run(runner.run(checks))
    assert [each[0].verdict.value for each in found.values()] == ["ok", "unknown", "ok"]
    assert list(found) == [each.id for each in cases]


def test_a_dead_disk_holds_up_the_doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    monkeypatch.setitem(inspections.INSPECTIONS, "tart-home", lambda _: released.wait())
    check = next(each for each in checks_for("darwin") if each.id is CheckId.VM_SLOTS)
    runner = Runner(facts("darwin"), env={"PATH": str(tmp_path)}, slack=0.02)
    [finding] = asyncio.run(runner.run([check]))[check.id]
    assert finding.reason.code is Found.PROBE_HUNG
    released.set()


def test_an_error_of_a_read_is_lost() -> None:
    def denied() -> None:
        raise PermissionError

    async def scenario() -> None:
        with pytest.raises(PermissionError):
            await apart(denied, within=5)

    asyncio.run(scenario())


def test_programs_of_the_system_are_not_found_with_the_path_of_a_service() -> None:
    assert environment({"PATH": "/opt/x"})["PATH"].split(os.pathsep)[:2] == ["/opt/x", "/usr/bin"]
    assert "/usr/sbin" in environment({})["PATH"]


def test_a_language_of_the_user_changes_what_programs_print(tmp_path: Path) -> None:
    write_programs(tmp_path / "bin", {"pmset -g": 'printf " sleep %s\\n" "${LC_ALL#C}0"; exit 0'})
    check = next(each for each in checks_for("darwin") if each.id is CheckId.SLEEP)
    env = {"PATH": str(tmp_path / "bin"), "LC_ALL": "9"}
    [finding] = asyncio.run(Runner(facts("darwin"), env=env).run([check]))[check.id]
    assert finding.reason.code is Found.STAYS_AWAKE


def test_a_probe_changes_the_machine() -> None:
    reading = {
        "bwrap --version", "df -P -k {data_disk}", "df -P -k {tart_disk}", "fdesetup status",
        "launchctl print gui/{uid}", "mount", "pmset -g", "slirp4netns --version", "sntp time.apple.com",
        "softwareupdate --schedule", "sw_vers -productVersion", "tart --version",
        "timedatectl show -p NTP -p NTPSynchronized", "unshare --user --map-root-user true",
    }  # fmt: skip
    for platform in ("darwin", "linux"):
        for check in checks_for(platform):
            for probe in check.probes:
                if isinstance(probe, Command):
                    words = " ".join(probe.argv)
                    assert words in reading or words.startswith(("defaults read ", "sysctl -n "))
                assert not isinstance(probe, Inspect) or probe.name in inspections.INSPECTIONS
