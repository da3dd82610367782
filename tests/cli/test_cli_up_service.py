"""`runyard up --install`, `--uninstall` and `--status`: the options arrive unchanged, and nothing is done twice."""

import json
import plistlib
import shlex
from collections.abc import Callable
from pathlib import Path

import click
import msgspec
import pytest
from tests.cli.servicesupport import use_computer
from tests.hosts.services.computer import Computer
from tests.hosts.services.managers import sections, words
from tests.standins.tart.helper import StandIn
from tests.transcripts import check, transcripts

from runyard.cli import uprun, upservice
from runyard.cli.main import cli
from runyard.cli.main import run as run_cli
from runyard.cli.serviceargs import given_options
from runyard.cli.up import ACTIONS, NOT_OF_THE_SERVICE, up
from runyard.cli.uprun import UpFlags
from runyard.embedded.lock import DirectoryLock
from runyard.embedded.up.layout import Layout
from runyard.hosts.services.unit import Service

PAGE = "docs/one-machine.md"
Prepare = Callable[[str], Computer]


def run(*argv: str) -> int:
    """The command's exit code, however it is given."""
    try:
        return run_cli(cli, name="runyard", argv=["up", *argv])
    except SystemExit as ended:
        return int(ended.code or 0)


@pytest.fixture
def prepare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Prepare:
    """Let this process use a computer with stand-ins for launchd or systemd."""

    def make(kind: str) -> Computer:
        return use_computer(kind, tmp_path, monkeypatch)

    return make


@pytest.fixture
def linux(prepare: Prepare) -> Computer:
    return prepare("systemd")


@pytest.fixture
def mac(prepare: Prepare) -> Computer:
    return prepare("launchd")


def unit(computer: Computer, name: str = "runyard-up.service") -> dict[str, str]:
    """The assignments of an installed unit's service."""
    file = computer.home / ".config" / "systemd" / "user" / name
    return dict(sections(file.read_text())["Service"])


def installed_argv(computer: Computer) -> list[str]:
    return words(unit(computer)["ExecStart"])


def flags_of(monkeypatch: pytest.MonkeyPatch, argv: list[str]) -> UpFlags:
    """What `runyard up` would run with these words."""
    found: list[UpFlags] = []

    def noting(flags: UpFlags, **_rest: object) -> int:
        found.append(flags)
        return 0

    monkeypatch.setattr(uprun, "run", noting)
    assert run(*argv) == 0
    return found[0]


GIVEN = {
    "nothing": [],
    "hosts and an address": ["--hosts", "3", "--listen", "0.0.0.0:8443"],
    "a directory with blanks and quotes": ["--data", 'my "yard" 100% $HOME'],
}


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_the_service_runs_exactly_what_was_given(
    given: list[str], linux: Computer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upservice, "service_name", lambda _root: "up")
    assert run("--install", *given) == 0
    program, command, *arguments = installed_argv(linux)
    assert Path(program).is_absolute() and command == "up"
    monkeypatch.chdir("/")  # relative paths must mean the same elsewhere
    served = flags_of(monkeypatch, arguments)
    monkeypatch.chdir(linux.home)
    meant = flags_of(monkeypatch, given)
    assert served.service and not meant.service
    root = (meant.data or Path(".local/share/runyard")).absolute()
    assert (served.data, served.hosts, served.listen) == (root, meant.hosts, meant.listen)


def test_every_option_of_up_reaches_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """An option that is added later must not get lost: each is given once, in a form that parses back."""
    values = {
        "--listen": "127.0.0.1:1",
        "--github-intake": "webhook",
        "--runner": ".",
        "--driver": "process",
    }
    for option in up.params:
        assert isinstance(option, click.Option)
        if option.name in {"service", "demo", "data", "plain", "as_json", *ACTIONS}:
            continue
        flag = option.opts[0]
        given = [flag] if option.is_flag else [flag, values.get(flag, "7")]
        with up.make_context("up", given) as context:
            there = given_options(context, without=NOT_OF_THE_SERVICE).arguments
            with up.make_context("up", list(there)) as again:
                name = option.name or ""
                first, second = context.params[name], again.params[name]
        if isinstance(first, Path):
            assert second == first.absolute(), flag
        else:
            assert second == first, flag
            assert second != option.get_default(context), flag


def test_variables_reach_the_service_as_variables(
    linux: Computer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNYARD_LISTEN", "127.0.0.1:9999")
    monkeypatch.setenv("RUNYARD_ISOLATION", "none")
    assert run("--install") == 0
    file = linux.home / ".config" / "systemd" / "user" / "runyard-up.service"
    variables = [
        words(text)[0]
        for name, text in sections(file.read_text())["Service"]
        if name == "Environment"
    ]
    assert "RUNYARD_LISTEN=127.0.0.1:9999" in variables
    assert "RUNYARD_ISOLATION=none" in variables
    assert f"HOME={linux.home}" in variables
    assert not any("--listen" in word for word in installed_argv(linux))


def variables(computer: Computer, name: str = "runyard-up.service") -> dict[str, str]:
    """The environment of an installed unit."""
    file = computer.home / ".config" / "systemd" / "user" / name
    service = sections(file.read_text())["Service"]
    pairs = [words(text)[0].partition("=") for name, text in service if name == "Environment"]
    return {name: value for name, _, value in pairs}


def test_what_images_are_pulled_with_reaches_the_service(
    linux: Computer, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {
        "SSL_CERT_FILE": "ca.pem",  # of a registry with an authority of its own
        "SSL_CERT_DIR": "/etc/ours",
        "TART_HOME": "/Volumes/fast/tart",
        "TART_REGISTRY_HOSTNAME": "registry.example",
        "TART_REGISTRY_USERNAME": "ci",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert run("--install", "--driver", "process") == 0
    found = variables(linux)
    assert {name: found[name] for name in given} == {
        **given,
        "SSL_CERT_FILE": f"{linux.home}/ca.pem",  # services run in another directory
    }


def test_a_registry_password_is_refused_with_the_place_for_it(
    linux: Computer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TART_REGISTRY_PASSWORD", "hush")
    tart = str(StandIn(linux.home / "tools").program)
    assert run("--install", "--driver", "tart", "--tart-binary", tart) == 2
    said = capsys.readouterr().err
    assert "tart login" in said and ".docker/config.json" in said and "hush" not in said
    assert not (linux.home / ".config").exists()
    assert run("--install", "--driver", "process") == 0  # which pulls nothing from a registry
    assert "TART_REGISTRY_PASSWORD" not in variables(linux)


def test_a_relative_program_means_the_same_in_the_directory_of_the_service(
    linux: Computer,
) -> None:
    program = StandIn(linux.home).program.relative_to(linux.home)
    assert run("--install", "--driver", "tart", "--tart-binary", f"./{program}") == 0
    assert f"--tart-binary={linux.home}/{program}" in installed_argv(linux)


@pytest.mark.slow
def test_an_edit_of_the_options_restarts_it_and_a_repetition_does_not(
    linux: Computer, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = []
    for argv in (["--hosts", "2"], ["--hosts", "2"], ["--hosts", "3"]):
        assert run("--install", "--json", *argv) == 0
        changes.append(json.loads(capsys.readouterr().out)["change"])
    assert changes == ["installed", "unchanged", "replaced"]


@pytest.mark.slow
def test_two_data_directories_have_two_services(linux: Computer) -> None:
    assert run("--install") == 0
    assert run("--install", "--data", "second") == 0
    assert len(linux.running) == 2
    assert run("--uninstall") == 0
    assert [argv[2] for argv in linux.running] == [f"--data={linux.home / 'second'}"]


REFUSED = {
    "a demo": ["--install", "--demo"],
    "a bad address": ["--install", "--listen", "x"],
    "a GitHub without a key": ["--install", "--github", "--runner", ".", "--github-app-id", "1"],
    "a status with options": ["--status", "--hosts", "2"],
    "an uninstall with options": ["--uninstall", "--github"],
    "a signed URL, which the service's file would show": [
        *("--install", "--driver", "tart", "--tart-binary", "tart", "--runner-sha256", "0" * 64),
        *("--runner", "https://h.test/runner.tgz?signature=secret"),
    ],
    "a password in a URL": [
        *("--install", "--github", "--runner", ".", "--github-token-file", "token"),
        *("--github-repository", "a/b", "--github-url", "https://me:secret@ghe.example/api/v3"),
    ],
}


@pytest.mark.parametrize("argv", REFUSED.values(), ids=REFUSED)
def test_what_up_would_refuse_is_refused_before_anything_is_installed(
    argv: list[str], linux: Computer, capsys: pytest.CaptureFixture[str]
) -> None:
    (linux.home / "token").write_text("t")
    assert run(*argv) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    assert "secret" not in said.err
    assert not (linux.home / ".config").exists()


def test_a_password_of_the_environment_is_not_written_down(
    linux: Computer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://me:hush@db/runyard")
    assert run("--install") == 2
    said = capsys.readouterr().err
    assert "DATABASE_URL" in said and "hush" not in said
    assert not (linux.home / ".config").exists()


def test_a_directory_that_runs_already_is_not_taken_over(
    linux: Computer, capsys: pytest.CaptureFixture[str]
) -> None:
    root = linux.home / "data"
    root.mkdir()
    lock = DirectoryLock(root)
    lock.acquire()
    try:
        assert run("--install", "--data", str(root)) == 2
    finally:
        lock.release()
    assert "Ctrl-C" in capsys.readouterr().err
    assert linux.running == []


@pytest.mark.slow
def test_a_service_that_does_not_stay_shows_why(
    linux: Computer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = upservice.service_of

    def doomed(*given: object, **named: object) -> Service:
        made = real(*given, **named)  # type: ignore[arg-type]  # passed on as they are
        return msgspec.structs.replace(made, argv=(*made.argv, "--dies-after=2"))

    monkeypatch.setattr(upservice, "service_of", doomed)
    assert run("--install") == 1
    said = capsys.readouterr().err
    assert "start 1 of up" in said
    assert "did not stay alive as runyard-up.service" in said.splitlines()[-1]


def test_uninstalling_ends_the_vms_that_the_service_left(
    linux: Computer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended: list[Path] = []

    async def stop_vms(layout: Layout, **_rest: object) -> None:
        ended.append(layout.root)

    monkeypatch.setattr(upservice, "stop_vms", stop_vms)
    assert run("--install") == 0
    assert run("--uninstall") == 0
    root = linux.home / ".local" / "share" / "runyard"
    assert ended == [root]
    assert root.is_dir() and linux.running == []
    assert run("--uninstall") == 0
    assert ended == [root]
    assert "nothing to do" in capsys.readouterr().out


@pytest.mark.slow
def test_status_tells_a_script_whether_it_runs(
    linux: Computer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--status", "--json") == 1
    assert json.loads(capsys.readouterr().out)["installed"] is False
    assert run("--install", "--json") == 0
    capsys.readouterr()
    assert run("--status", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["pid"] == 101 and found["at_boot"]["code"] == "no-linger"


def test_a_mac_gets_a_launch_agent(mac: Computer, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--install", "--hosts", "2") == 0
    file = mac.home / "Library" / "LaunchAgents" / "dev.runyard.up.plist"
    content = plistlib.loads(file.read_bytes())
    assert content["ProgramArguments"][1:] == [
        *("up", f"--data={mac.home}/.local/share/runyard", "--service", "--plain", "--hosts=2")
    ]
    assert "automatic login is off" in capsys.readouterr().out


def printed(line: str, computer: Computer, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command of the page prints, with the paths as the page writes them."""
    program, command, *argv = shlex.split(line)
    assert (program, command) == ("runyard", "up")
    run(*argv)
    said = capsys.readouterr()
    assert said.err == ""
    return said.out.replace(str(computer.home), "~")


@pytest.mark.parametrize("kind", ["systemd", "launchd"])
def test_the_page_shows_what_is_printed(
    kind: str, prepare: Prepare, capsys: pytest.CaptureFixture[str]
) -> None:
    computer = prepare(kind)
    computer.set(auto_login=True)
    found = [each for each in transcripts(PAGE) if "up --install" in each.steps[0].command]
    shown = found[["systemd", "launchd"].index(kind)]
    check(shown, [printed(step.command, computer, capsys) for step in shown.steps])
