"""The command line teaches, refuses bad input in one line, and never shows a traceback."""

import importlib
import re
from importlib.util import find_spec

import click
import pytest

from runyard.cli.main import COMMANDS, cli, run


def test_help_teaches_how_to_start(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(cli, name="runyard", argv=["--help"]) == 0
    shown = capsys.readouterr().out
    assert "runyard sim --seed 1 --hours 2 --demo" in shown
    assert "Exit codes" in shown


def test_no_arguments_show_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(cli, name="runyard", argv=[]) == 0
    assert "Usage: runyard" in capsys.readouterr().out


def test_help_imports_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(f"imported {name}")

    monkeypatch.setattr(importlib, "import_module", refuse)
    assert run(cli, name="runyard", argv=["--help"]) == 0


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        pytest.param(["nope"], "No such command 'nope'", id="unknown command"),
        pytest.param(["--nope"], "No such option '--nope'", id="unknown option"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(cli, name="runyard", argv=argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"runyard: {said}")
    assert captured.err.count("\n") == 1
    assert captured.err.endswith("Try 'runyard --help'.\n")


SAID = {
    "one near command": ["tenant", "lis"],
    "several near commands": ["tenant", "lst"],
    "a near option": ["tenant", "show", "--jso", "x"],
    "no integer": ["up", "--hosts", "abc"],
    "an integer out of range": ["up", "--hosts", "100"],
    "no number": ["tenant", "set", "acme", "--weight", "x"],
    "a weight of nothing": ["tenant", "set", "acme", "--weight", "0"],
    "a weight that is no number": ["tenant", "set", "acme", "--weight", "nan"],
    "a repository's weight": ["tenant", "set", "acme", "--repository-weight", "-1"],
    "a priority out of range": ["tenant", "set", "acme", "--priority", "99999999999"],
    "hours that are no number": ["sim", "--hours", "nan"],
}
ODD = re.compile(r"[?!.)]\.|\(Did|integer range|float|`|\$\.")


@pytest.mark.parametrize("argv", SAID.values(), ids=SAID)
def test_a_message_reads_as_a_sentence(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(cli, name="runyard", argv=argv) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "Try 'runyard" in said
    assert not ODD.search(said), said


def test_no_range_takes_what_is_no_number() -> None:
    assert not [each for each in ranges(cli) if type(each) is click.FloatRange]


def ranges(command: click.Command) -> list[click.FloatRange]:
    context = click.Context(command)
    found = [each.type for each in command.params if isinstance(each.type, click.FloatRange)]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            found += ranges(inner) if inner is not None else []
    return found


def test_every_installed_command_loads_under_its_own_name() -> None:
    context = click.Context(cli, info_name="runyard")
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        assert command.name == name


def test_only_installed_commands_are_offered() -> None:
    offered = cli.list_commands(click.Context(cli, info_name="runyard"))
    installed = [name for name in sorted(COMMANDS) if find_spec(f"runyard.cli.{name}") is not None]
    assert offered == installed


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        pytest.param(KeyboardInterrupt(), 130, id="interrupted"),
        pytest.param(click.ClickException("no"), 1, id="failed"),
        pytest.param(click.BadParameter("no"), 2, id="bad parameter"),
        pytest.param(click.exceptions.Exit(3), 3, id="chosen exit"),
    ],
)
def test_every_ending_becomes_an_exit_code(ending: BaseException, code: int) -> None:
    @click.command()
    def end() -> None:
        raise ending

    assert run(end, name="end", argv=[]) == code
