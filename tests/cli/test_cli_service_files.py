"""What a service is started from stays there, and its log stays small."""

import os
from pathlib import Path

import pytest

from runyard.cli.options import BadSetting
from runyard.cli.serviceargs import service_path, stable_program
from runyard.cli.servicelog import keep_short


def environment(prefix: Path) -> Path:
    """An environment with the command; returns the command."""
    program = prefix / "bin" / "runyard"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (prefix / "pyvenv.cfg").touch()
    return program


def found(argv0: Path | str, prefix: Path, *temporary: Path) -> Path:
    return stable_program("runyard", str(argv0), prefix=prefix, temporary=temporary)


def test_the_link_of_a_tool_is_kept_because_upgrades_may_move_what_it_leads_to(
    tmp_path: Path,
) -> None:
    prefix = tmp_path / "share" / "uv" / "tools" / "runyard"
    link = tmp_path / "bin" / "runyard"
    link.parent.mkdir()
    link.symlink_to(environment(prefix))
    assert found(link, prefix) == link


def test_a_relative_call_becomes_an_absolute_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = environment(tmp_path / "venv")
    monkeypatch.chdir(tmp_path)
    assert found("venv/bin/runyard", tmp_path / "venv") == program


def test_a_call_as_a_module_finds_the_command_of_its_environment(tmp_path: Path) -> None:
    program = environment(tmp_path / "venv")
    module = tmp_path / "main.py"
    module.touch(mode=0o755)
    assert found(module, tmp_path / "venv") == program


def test_an_environment_that_uv_marked_itself_is_no_cache(tmp_path: Path) -> None:
    program = environment(tmp_path / "venv")
    (tmp_path / "venv" / "CACHEDIR.TAG").touch()
    assert found(program, tmp_path / "venv") == program


def test_an_environment_for_one_run_is_refused(tmp_path: Path) -> None:
    uvx = tmp_path / "uv" / "archive-v0" / "x"
    (tmp_path / "uv").mkdir()
    (tmp_path / "uv" / "CACHEDIR.TAG").touch()
    pipx = tmp_path / "pipx" / ".cache" / "x"
    scratch = tmp_path / "scratch" / "x"
    for prefix in (uvx, pipx, scratch):
        program = environment(prefix)
        with pytest.raises(BadSetting, match="uv tool install"):
            found(program, prefix, tmp_path / "scratch")
        link = prefix.with_name("runyard")
        link.symlink_to(program)
        with pytest.raises(BadSetting, match="uv tool install"):
            found(link, prefix, tmp_path / "scratch")


def test_without_an_installed_command_there_is_nothing_to_start(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="does not exist"):
        found("/usr/bin/python3", tmp_path)


def test_programs_found_elsewhere_are_found_by_the_service_too() -> None:
    path = service_path(["/opt/tart/bin/tart", "/usr/bin/git", None]).split(":")
    assert path[0] == "/opt/homebrew/bin"
    assert path[-1] == "/opt/tart/bin" and path.count("/usr/bin") == 1


def test_a_log_above_the_limit_is_moved_and_begins_again(tmp_path: Path) -> None:
    log = tmp_path / "service.log"
    output = os.open(log, os.O_WRONLY | os.O_CREAT)  # without O_APPEND: the worst case
    try:
        for number in range(200):
            keep_short(log, output=output, limit=1000)
            os.write(output, f"line {number:04}\n".encode())
            assert log.stat().st_size <= 1010
    finally:
        os.close(output)
    kept = (tmp_path / "service.log.1").read_text() + log.read_text()
    assert kept.splitlines()[-1] == "line 0199"
    numbers = [int(line.split()[1]) for line in kept.splitlines()]
    assert numbers == list(range(numbers[0], 200)), "no line between both files is lost"
    assert (tmp_path / "service.log.1").stat().st_size <= 1010


def test_a_file_that_is_not_the_output_is_never_emptied(tmp_path: Path) -> None:
    log, other = tmp_path / "service.log", tmp_path / "other"
    log.write_text("x" * 2000)
    with other.open("w") as output:
        keep_short(log, output=output.fileno(), limit=1000)
    link = tmp_path / "link"
    link.symlink_to(other)
    other.write_text("y" * 2000)
    with other.open("a") as output:
        keep_short(link, output=output.fileno(), limit=1000)
    assert (len(log.read_text()), len(other.read_text())) == (2000, 2000)
