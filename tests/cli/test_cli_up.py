"""`runyard up` on the command line: bad values are refused in one line, and what happens is said in lines."""

import contextlib
import copy
import io
import json
import re
import shlex
import socket
import tempfile
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from rich.console import Console
from tests.standins.tart.helper import StandIn, archive

from runyard.cli import uprun as module
from runyard.cli.github_auth import GithubIdentity
from runyard.cli.githubfiles import AppDirectory, Connected
from runyard.cli.main import cli
from runyard.cli.main import run as run_cli
from runyard.cli.up_output import JsonLines, LiveOutput, UpOutput
from runyard.clock import RealClock
from runyard.embedded.github.identity import KeyPair
from runyard.embedded.lock import DirectoryInUse
from runyard.embedded.up import lifecycle, ports
from runyard.embedded.up.demo.events import Fault, FaultView, JobState, LeftOver
from runyard.embedded.up.demo.scenario import DemoFailed, Outcome
from runyard.embedded.up.layout import BadDirectory, Layout
from runyard.embedded.up.machine import Machine, Options, RealGitHub, Urls
from runyard.embedded.up.ports import PortTaken
from runyard.embedded.up.supervisor import ComponentFailed, ComponentView

OUTCOME = Outcome(
    jobs=20,
    succeeded=19,
    failed_as_scripted=1,
    leaked=0,
    healed=(FaultView(fault=Fault.AGENT_KILLED, what="a fault", seconds=2.0),),
    findings=(),
)


def run(*argv: str) -> int:
    """The command's exit code, however it is given."""
    try:
        return run_cli(cli, name="runyard", argv=["up", *argv])
    except SystemExit as ended:
        return int(ended.code or 0)


def test_its_help_shows_how_to_begin(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    shown = capsys.readouterr().out
    for words in ("runyard up --demo", "--data", "--hosts", "--listen", "kubectl"):
        assert words in shown


BAD = {
    "no hosts": ["--hosts", "0"],
    "too many hosts": ["--hosts", "51"],
    "hosts that are no number": ["--hosts", "x"],
    "no port": ["--listen", "127.0.0.1"],
    "a port that is none": ["--listen", "127.0.0.1:70000"],
    "a port without a next one, at which hosts join": ["--listen", "127.0.0.1:65535"],
    "a file as directory": ["--data", __file__],
    "half an App": ["--github", "--github-app-id", "1"],
    "an App without GitHub": ["--github-app-id", "1"],
    "a demo with GitHub": ["--demo", "--github", "--github-app-id", "1"],
    "an unknown option": ["--nope"],
    "two actions, the last of which removes": ["--install", "--uninstall"],
    "two actions": ["--uninstall", "--status"],
    "slots of VMs for processes": ["--driver", "process", "--vm-slots", "1"],
    "a directory in VMs for processes": ["--driver", "process", "--runner-directory", "/r"],
}


@pytest.mark.parametrize("argv", BAD.values(), ids=BAD)
def test_a_bad_value_is_refused_before_anything_starts(
    argv: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    assert run(*argv) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("runyard")
    assert said.err.count("\n") == 1
    assert not (tmp_path / "home").exists()


TART: dict[str, tuple[list[str], str]] = {
    "an image that no registry can have": (
        ["--image", "bad image:::"],
        "--image: image 'bad image:::': no registry",
    ),
    "a tart that is not there": (
        ["--tart-binary", "/no/such/tart"],
        "--driver tart: /no/such/tart",
    ),
    "more hosts than macOS has VM slots": (
        ["--hosts", "3"],
        "a second Mac joins with 'runyard host join'",
    ),
    "a runner that the practice GitHub does not use": (
        ["--runner", "runner.tar"],
        "--runner: the practice GitHub has a runner of its own",
    ),
    "a runner that no VM can unpack": (
        ["--github", "--github-dir", ".", "--runner", "garbage.tar.gz"],
        "garbage.tar.gz is not compressed by gzip",
    ),
}


@pytest.mark.parametrize("install", [False, True], ids=["run", "install"])
@pytest.mark.parametrize(("argv", "words"), TART.values(), ids=TART)
def test_what_no_vm_can_use_is_refused_before_anything_starts(
    argv: list[str],
    words: str,
    app_keys: KeyPair,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    *,
    install: bool,
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    directory = AppDirectory(tmp_path)
    directory.prepare()
    app = Connected(app_id=9, slug="s", html_url="", github_url="https://api.github.com")
    directory.keep(app, key=app_keys.private_pem, secret="hush")
    (tmp_path / "runner.tar").write_bytes(archive({"run.sh": "exit 0"}))
    (tmp_path / "garbage.tar.gz").write_bytes(bytes(range(250)) * 4)
    tart = () if "--tart-binary" in argv else ("--tart-binary", str(StandIn(tmp_path).program))
    before = sorted(tmp_path.iterdir())
    assert run("--driver", "tart", *tart, *argv, *(["--install"] if install else [])) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert words in said.err and said.err.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_an_image_with_its_runner_elsewhere_and_the_seats_of_a_mac_reach_the_hosts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[Options] = []

    async def live(options: Options, show: UpOutput, who: GithubIdentity | None) -> int:
        seen.append(options)
        return 0

    monkeypatch.setattr(module, "_live", live)
    tart = ("--driver", "tart", "--tart-binary", str(StandIn(tmp_path).program))
    for given, slots, folder in (
        ((), 2, ""),
        (("--vm-slots", "1", "--runner-directory", "/opt/run ner"), 1, "/opt/run ner"),
    ):
        assert run("--data", str(tmp_path / "d"), *tart, *given) == 0
        options = seen.pop()
        assert (options.pods, options.vm_slots, options.runner_directory) == (slots, slots, folder)
    assert run("--vm-slots", "0") == run("--vm-slots", "65") == 2


KINDS: dict[str, tuple[list[str], RealGitHub]] = {
    "an App": (
        ["--github-app-id", "7", "--github-key-file", "app.pem"],
        RealGitHub(url="https://api.github.com", app_id=7, key=Path("app.pem")),
    ),
    "a token, by webhook, elsewhere": (
        [
            *("--github-token-file", "token", "--github-repository", "mona/dots"),
            *("--github-url", "https://ghe.example/api/v3", "--github-intake", "webhook"),
            *("--runner-group", "5"),
        ],
        RealGitHub(
            url="https://ghe.example/api/v3",
            token=Path("token"),
            repository="mona/dots",
            pull=False,
            runner_group=5,
        ),
    ),
    "what connect left": (
        ["--github-dir", "left"],
        RealGitHub(url="https://api.github.com", app_id=9, key=Path("left/app.pem"), secret="hush"),
    ),
}


@pytest.mark.parametrize(("argv", "meant"), KINDS.values(), ids=KINDS)
def test_a_real_github_reaches_the_machine_as_it_was_described(
    argv: list[str],
    meant: RealGitHub,
    app_keys: KeyPair,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.pem").write_text(app_keys.private_pem)
    (tmp_path / "token").write_text("github_pat_of_the_test")
    (tmp_path / "runner").mkdir()
    directory = AppDirectory(tmp_path / "left")
    directory.prepare()
    app = Connected(app_id=9, slug="s", html_url="", github_url="https://api.github.com")
    directory.keep(app, key=app_keys.private_pem, secret="hush")
    seen: list[Options] = []

    async def live(options: Options, show: UpOutput, who: GithubIdentity | None) -> int:
        seen.append(options)
        return 0

    monkeypatch.setattr(module, "_live", live)
    assert run("--data", "d", "--github", "--runner", "runner", *argv) == 0
    got = seen[0].github
    assert got is not None
    for name in ("key", "token"):
        path, expected = getattr(got, name), getattr(meant, name)
        assert path == (None if expected is None else tmp_path / expected)
    rest = ("url", "app_id", "repository", "secret", "pull", "runner_group")
    assert [getattr(got, name) for name in rest] == [getattr(meant, name) for name in rest]
    assert "hush" not in repr(got)


def test_a_demo_leaves_the_directory_of_the_environment_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[Options] = []

    async def live(options: Options, show: UpOutput, who: GithubIdentity | None) -> int:
        seen.append(options)
        return 0

    monkeypatch.setattr(module, "_live", live)
    monkeypatch.setenv("RUNYARD_DATA", str(tmp_path / "fleet"))
    for argv in (["--demo"], [], ["--demo", "--data", str(tmp_path / "typed")]):
        assert run(*argv) == 0
    assert seen[0].data not in (tmp_path / "fleet", tmp_path / "typed")
    assert [each.data for each in seen[1:]] == [tmp_path / "fleet", tmp_path / "typed"]


def output() -> tuple[UpOutput, io.StringIO]:
    file = io.StringIO()
    return UpOutput(Console(file=file, width=60)), file


ENDINGS = {
    "in use": (DirectoryInUse("d is in use"), 2),
    "bad directory": (BadDirectory("d cannot be used. Do this"), 2),
    "port": (PortTaken("p is taken. Do this"), 2),
    "part": (ComponentFailed("the part x ended"), 1),
    "demo": (DemoFailed("not as scripted"), 1),
}


@pytest.mark.parametrize(("error", "code"), ENDINGS.values(), ids=ENDINGS)
@pytest.mark.parametrize("depth", [0, 1, 3])
def test_what_a_person_can_act_upon_is_said_without_a_traceback(
    error: Exception,
    code: int,
    depth: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    raised: BaseException = error
    for _ in range(depth):
        raised = BaseExceptionGroup("inside", [raised])

    async def live(options: Options, show: UpOutput, who: GithubIdentity | None) -> int:
        raise raised

    monkeypatch.setattr(module, "_live", live)
    assert run("--data", str(tmp_path)) == code
    said = capsys.readouterr().err
    assert said == f"runyard: {error}\n"


def test_a_demo_without_a_directory_takes_its_own_away_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[Path] = []

    async def live(options: Options, show: UpOutput, who: GithubIdentity | None) -> int:
        seen.append(options.data)
        (options.data / "something").write_text("")
        return 0

    monkeypatch.setattr(module, "_live", live)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert run("--demo") == 0
    assert len(seen) == 1 and list(tmp_path.iterdir()) == []


def test_the_outcome_is_the_last_line_and_is_not_wrapped() -> None:
    shown, file = output()
    with shown:
        shown.outcome(OUTCOME)
        shown.report("stopping")
    assert file.getvalue().splitlines()[-1] == OUTCOME.line()


def test_a_death_and_a_return_are_told_once() -> None:
    shown, file = output()
    with shown:
        for view in (
            ComponentView(name="kube", state="starting", pid=1, starts=1),
            ComponentView(name="kube", state="running", pid=1, starts=1),
            ComponentView(name="kube", state="waiting", starts=1, code=-9),
            ComponentView(name="kube", state="starting", pid=2, starts=2),
            ComponentView(name="kube", state="running", pid=2, starts=2),
        ):
            shown.component(view)
    lines = [line.split(" s  ", 1)[1] for line in file.getvalue().splitlines()]
    assert len(lines) == 2
    assert lines[0].startswith("kube died (code -9)") and lines[1] == "kube is back (process 2)"


def test_a_job_is_told_when_it_ends_and_only_then() -> None:
    shown, file = output()
    states = [
        JobState(name="[red]a", state="queued"),
        JobState(name="[red]a", state="in_progress", runner="r"),
        JobState(name="[red]a", state="completed", conclusion="success", runner="r"),
    ]
    with shown:
        for state in (*states, states[-1]):
            shown.jobs((state,))
    assert [line.split(" s  ", 1)[1] for line in file.getvalue().splitlines()] == [
        "job '[red]a': success on r"
    ]


@pytest.mark.parametrize("data", ["/data", "/Users/Ada Byron/d", "/Users/o'brien/d", '/a"b$c'])
def test_a_printed_command_does_not_name_another_directory(data: str) -> None:
    machine = copy.copy(MACHINE)
    machine.options = msgspec.structs.replace(MACHINE.options, data=Path(data), demo=False)
    machine.layout = Layout(Path(data))
    shown, file = output()
    with shown:
        shown.up(machine, "")
    lines = [line for line in told(file.getvalue()) if "--data" in line or "RUNYARD_DATA" in line]
    assert len(lines) >= 3, lines
    for line in lines:
        command = line.rpartition(": ")[2]
        assert data in {word.removeprefix("RUNYARD_DATA=") for word in shlex.split(command)}
    (kubectl,) = (line for line in told(file.getvalue()) if line.startswith("kubectl "))
    assert f"{data}/kubeconfig" in shlex.split(kubectl)


def play_demo(shown: UpOutput) -> None:
    """What a demo tells its output, with many lines after each fact."""
    killed = FaultView(fault=Fault.AGENT_KILLED, what="the agent", detail="kill -9 of the agent")
    leaked = FaultView(fault=Fault.POD_LEAKED, what="the Pod", detail="a Pod is stamped")
    job = JobState(name="build", state="completed", conclusion="failure", runner="r")
    with shown:
        shown.component(ComponentView(name="kube", state="running", pid=7, starts=1))
        shown.up(MACHINE, "")
        for view in (killed, msgspec.structs.replace(killed, seconds=1.5), leaked):
            shown.fault(view)
        shown.component(ComponentView(name="kube", state="waiting", starts=1, code=-9))
        shown.component(ComponentView(name="kube", state="running", pid=8, starts=2))
        shown.jobs((job, JobState(name="test", state="in_progress"), JobState(name="c")))
        shown.left_over(LeftOver(kinds={"pods": (), "vms": ("vm-1",)}))
        for number in range(60):
            shown.report(f"line {number}")
        shown.outcome(OUTCOME)
        shown.report("stopping")


MACHINE = Machine(
    options=Options(data=Path("/data"), demo=True),
    secrets=None,  # type: ignore[arg-type] # not shown
    urls=Urls(kube="", server="http://127.0.0.1:1", github=""),
    supervisor=None,  # type: ignore[arg-type] # not shown
    database=SimpleNamespace(notice=""),  # type: ignore[arg-type] # only its notice is shown
    kube=None,  # type: ignore[arg-type] # not shown
    clock=RealClock(),
)
KEPT = (
    "Dashboard: http://127.0.0.1:1/",
    "healed: the agent, after 1.5 s",
    "fault: a Pod is stamped",
    "left over: pods 0, vms 1 (vm-1)",
)


def told(text: str) -> list[str]:
    """The lines of an output, without their times and without colours."""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "\n")
    return [line.split(" s  ", 1)[-1].rstrip() for line in plain.splitlines()]


def live_picture() -> list[str]:
    file = io.StringIO()
    play_demo(LiveOutput(Console(file=file, width=100, height=30, force_terminal=True)))
    return told(file.getvalue())


def test_a_terminal_is_told_every_line_that_a_pipe_is_told() -> None:
    shown, file = output()
    play_demo(shown)
    live = iter(live_picture())
    for line in told(file.getvalue()):
        assert line in live, f"{line!r} is missing, or comes too early"


def test_the_address_the_faults_and_what_is_left_over_stay_on_the_screen() -> None:
    live = live_picture()
    last = live[len(live) - live[::-1].index("stopping") :]  # below the last line
    for fact in KEPT:
        assert fact in last
    assert any("✗" in line for line in last)


def test_a_fact_is_not_cut_at_the_edge_of_a_narrow_screen() -> None:
    file = io.StringIO()
    picture = LiveOutput(
        Console(file=file, width=24, height=30, force_terminal=True, _environ={"TERM": "xterm"})
    )
    with picture:
        picture.up(MACHINE, "http://127.0.0.1:1/login?code=0123456789abcdef")
        picture.left_over(LeftOver(kinds={"pods": (), "vms": ("vm-1",)}))
        picture._live.refresh()  # as its thread does, several times a second
        picture.report("a line")
        drawn = file.getvalue()  # below a line, and before the next frame
    frame = drawn.rsplit("a line", 1)[1]
    shown = "".join(told(frame)).replace(" ", "")
    assert "login?code=0123456789abcdef" in shown
    assert "vms1(vm-1)" in shown


@pytest.mark.parametrize("waits", ["tart", ""])
def test_a_job_is_to_be_tried_although_its_pool_waits(waits: str, tmp_path: Path) -> None:
    machine = copy.copy(MACHINE)
    machine.options = Options(data=tmp_path)
    machine.layout = Layout(tmp_path)
    machine.waits_for = waits
    shown, file = output()
    with shown:
        shown.up(machine, "")
    text = file.getvalue()
    assert ("try a job" in text) is not bool(waits)
    assert ("jobs wait: the pool practice is made for tart" in text) is bool(waits)


def test_a_pipe_is_told_every_fact_that_stays_on_a_screen() -> None:
    shown, file = output()
    play_demo(shown)
    lines = [line.removeprefix("up. ") for line in told(file.getvalue())]
    for fact in KEPT:
        assert fact in lines


def test_json_has_the_facts_as_fields() -> None:
    file = io.StringIO()
    play_demo(JsonLines(Console(file=file, width=60)))
    events = [json.loads(line) for line in file.getvalue().splitlines()]
    faults = [(e["fault"], e["took"]) for e in events if e["event"] == "fault"]
    assert faults == [("agent-killed", None), ("agent-killed", 1.5), ("pod-leaked", None)]
    assert [e["kinds"] for e in events if e["event"] == "left_over"] == [
        {"pods": [], "vms": ["vm-1"]}
    ]


def test_a_screen_that_is_too_low_shows_what_matters_first() -> None:
    file = io.StringIO()
    play_demo(LiveOutput(Console(file=file, width=100, height=7, force_terminal=True)))
    live = told(file.getvalue())
    assert "Dashboard: http://127.0.0.1:1/" in live[len(live) - live[::-1].index("stopping") :]


def test_the_live_picture_ends_with_the_outcome_too() -> None:
    file = io.StringIO()
    picture = LiveOutput(Console(file=file, width=100, force_terminal=True))
    with picture:
        picture.component(ComponentView(name="kube", state="running", pid=7, starts=2))
        picture.jobs(
            (
                JobState(name="a", state="completed", conclusion="failure"),
                JobState(name="b", state="in_progress"),
                JobState(name="c"),
            )
        )
        picture.report("something happened")
        picture.outcome(OUTCOME)
    shown = file.getvalue()
    assert "something happened" in shown and "✗" in shown
    assert shown.rstrip().endswith(OUTCOME.line())


def test_other_machines_are_sent_to_an_address_that_they_can_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "reachable", lambda _: "192.0.2.7")
    names = ("kube", "server", "github", ports.PUBLIC, ports.HOSTS)
    with contextlib.ExitStack() as stack:
        sockets = {each: stack.enter_context(socket.create_server(("", 0))) for each in names}
        urls = lifecycle._urls(MACHINE.options, sockets, ())
    assert urls.public.startswith("https://192.0.2.7:") and urls.hosts.startswith(
        "https://192.0.2.7:"
    )
    assert urls.server.startswith("http://127.0.0.1:")
    file = io.StringIO()
    shown = UpOutput(Console(file=file, width=200))
    with shown:
        machine = copy.copy(MACHINE)
        machine.urls = urls
        shown.up(machine, "")
    said = file.getvalue()
    assert f"from other machines: {urls.public}/ (certificate authority: /data/tls/ca.crt)" in said
