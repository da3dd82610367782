"""`runyard host join` installs the agent's service, starts it anew, and `runyard host leave` removes both."""

import asyncio
import errno
import hashlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.cli.servicesupport import use_computer
from tests.hosts.joining.joinsupport import Served
from tests.hosts.services.computer import Computer
from tests.hosts.services.managers import sections, words
from tests.transcripts import check, transcripts
from tests.vm.process_harness import IMAGE

from runyard.cli import hostjoin, hostservice, servicehere
from runyard.cli.agent import Flags, agent
from runyard.cli.agentrun import NodeFlags, settings_of
from runyard.cli.joinedagent import joined_host
from runyard.cli.main import cli
from runyard.cli.main import run as run_cli
from runyard.cli.options import BadSetting
from runyard.clock import RealClock
from runyard.components.hosting import machine_size
from runyard.embedded.lock import DirectoryLock
from runyard.embedded.up.practice import IMAGES
from runyard.hosts.joining import membership
from runyard.hosts.joining.membership import MembershipFiles
from runyard.sim.driver import SimDriver
from runyard.vm.contract import VmSpec
from runyard.vm.guest.image import build_image
from runyard.vm.registry import Chosen, Opened, Traits, Wanted, image_directory, open_driver

PAGE = "docs/second-mac.md"
assert hostjoin and hostservice  # loaded before a test replaces the clock that they take


def run(*argv: str) -> int:
    """The command's exit code, however it is given."""
    try:
        return run_cli(cli, name="runyard", argv=["host", *argv])
    except SystemExit as ended:
        return int(ended.code or 0)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path / "main")
    yield made
    made.close()


@pytest.fixture
def real_github(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path / "main", practice="")
    yield made
    made.close()


@pytest.fixture(params=["launchd", "systemd"])
def computer(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Computer:
    return use_computer(request.param, tmp_path, monkeypatch)


@pytest.fixture
def linux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Computer:
    monkeypatch.setenv("RUNYARD_ISOLATION", "none")
    made = use_computer("systemd", tmp_path, monkeypatch)
    monkeypatch.setenv("RUNYARD_ISOLATION", "none")  # no sandbox is probed, which takes time
    return made


def join(served: Served, *more: str) -> int:
    return run("join", served.url, served.token(), "--name", "mini-2", *more)


def data_of(computer: Computer) -> Path:
    return computer.home / ".local" / "share" / "runyard-agent"


def environment_of(computer: Computer, name: str = "runyard-agent.service") -> dict[str, str]:
    file = computer.home / ".config" / "systemd" / "user" / name
    service = sections(file.read_text())["Service"]
    pairs = [words(text)[0].partition("=") for key, text in service if key == "Environment"]
    return {name: value for name, _, value in pairs}


def tart(folder: Path) -> Path:
    """A program that calls itself tart and has no VMs, which is all that is asked of it here."""
    folder.mkdir(exist_ok=True)
    program = folder / "tart"
    program.write_text("#!/bin/sh\n[ $1 = --version ] && echo 2.32.1 || echo '[]'\n")
    program.chmod(0o755)
    return program


def runner(folder: Path) -> Path:
    folder.mkdir()
    (folder / "run.sh").write_text("#!/bin/sh\n# the real one\n")
    return folder


# ── install, join again, leave ──────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_host_that_joined_runs_its_agent_until_it_leaves(
    computer: Computer, served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    data = data_of(computer)
    assert join(served, "--json") == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    kinds = [each["event"] for each in events]
    assert kinds == ["driver", "joined", "service", "boot", "status", "next"]
    assert (events[2]["change"], events[2]["pid"]) == ("installed", 101)
    (argv,) = computer.running
    assert Path(argv[0]).is_absolute()
    assert argv[1:] == ["agent", "--joined", "--data", str(data), "--listen", "127.0.0.1:0"]
    assert (data / "logs" / "service.log").stat().st_mode & 0o777 == 0o600
    files = MembershipFiles(data)
    first, identifier = files.credential(), (files.folder / "machine").read_text()

    assert run("status", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["pid"], shown["joined"]["name"], shown["joined"]["url"]) == (
        101,
        "mini-2",
        served.url,
    )

    # Joining again, for instance because the main machine has another address.
    assert join(served, "--json") == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (events[2]["change"], events[2]["pid"]) == ("restarted", 102)
    assert computer.running == [argv]
    assert served.works(files.credential()) and not served.works(first)

    assert run("leave") == 0
    assert "runyard host remove mini-2" in capsys.readouterr().out
    assert computer.running == []
    assert not computer.manager().path("agent").exists()
    assert [each.name for each in files.folder.iterdir()] == ["machine"]
    assert (files.folder / "machine").read_text() == identifier
    assert run("leave") == 0
    assert "nothing to do" in capsys.readouterr().out
    assert run("status") == 1
    assert "has joined no machine" in capsys.readouterr().out
    assert join(served) == 0  # under the same name: it is the same machine
    assert len(computer.running) == 1


@pytest.mark.slow
def test_options_reach_the_agent_and_joining_again_replaces_all_of_them(
    linux: Computer, served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    tart(linux.home / "tools")
    (linux.home / "runner.tar.gz").write_bytes(b"\x1f\x8b")
    digest = hashlib.sha256(b"\x1f\x8b").hexdigest()
    given = (
        *("--tart-binary", "./tools/tart", "--driver", "tart", "--vm-slots", "1"),
        *("--insecure-registry", "10.0.0.5:5000", "--insecure-registry", "10.0.0.6:5000"),
        *("--runner", "runner.tar.gz", "--runner-sha256", digest),
        *("--runner-directory", "/opt/run ner"),
    )
    assert join(served, *given) == 0
    (argv,) = linux.running
    parsed = agent.make_context("agent", argv[2:]).params
    assert (parsed["driver"], parsed["vm_slots"]) == ("tart", 1)
    assert parsed["tart_binary"] == f"{linux.home}/tools/tart"
    assert parsed["insecure_registry"] == ("10.0.0.5:5000", "10.0.0.6:5000")
    assert parsed["runner_archive"] == f"{linux.home}/runner.tar.gz"
    assert parsed["runner_sha256"] == digest
    assert parsed["runner_directory"] == "/opt/run ner"
    capsys.readouterr()
    assert join(served, "--driver", "process") == 0
    assert "service replaced" in capsys.readouterr().out
    (argv,) = linux.running
    assert argv[2:] == [
        *("--joined", "--data", str(data_of(linux)), "--driver", "process"),
        *("--listen", "127.0.0.1:0"),
    ]


@pytest.mark.parametrize(
    ("given", "pods"),
    [((), 2), (("--vm-slots", "1"), 1), (("--vm-slots", "1", "--pods", "2"), 2)],
)
def test_a_seat_that_a_mac_keeps_for_its_owner_is_not_offered_to_pods(
    tmp_path: Path, given: tuple[str, ...], pods: int
) -> None:
    """A second runner was bound to the host, and waited for a slot while other hosts were free."""
    params = agent.make_context("agent", [*given, "--driver", "tart"]).params
    flags = msgspec.convert(params | {"data": tmp_path, "images": tmp_path}, Flags)
    opened = Opened(
        driver=SimDriver(RealClock()),
        name="tart",
        why=Chosen.DRIVER_NAMED.because(),
        traits=Traits(os="darwin", arch="arm64", runtime="tart"),
    )
    place = NodeFlags("127.0.0.1", (), "", "")
    settings = settings_of(flags, "mini-2", opened, place)
    assert settings.pods == pods
    assert settings.memory_mb == machine_size(pods=pods).memory_mb * pods


@pytest.mark.slow
def test_two_directories_have_two_services_and_leaving_with_one_keeps_the_other(
    linux: Computer, served: Served
) -> None:
    assert join(served) == 0
    second = ("--data", "second")
    assert run("join", served.url, served.token(), "--name", "mini-3", *second) == 0
    assert len(linux.running) == 2
    assert run("status", *second) == 0
    assert run("leave") == 0
    assert [argv[4] for argv in linux.running] == [f"{linux.home}/second"]
    assert MembershipFiles(linux.home / "second").read().name == "mini-3"


def test_settings_of_the_environment_reach_the_service(
    linux: Computer, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TART_HOME", "/Volumes/fast/tart")
    monkeypatch.setenv("SSL_CERT_FILE", "/etc/ours.pem")
    assert join(served) == 0
    found = environment_of(linux)
    assert found["TART_HOME"] == "/Volumes/fast/tart"
    assert (found["SSL_CERT_FILE"], found["RUNYARD_ISOLATION"]) == ("/etc/ours.pem", "none")
    assert found["HOME"] == str(linux.home)


def test_an_agent_without_a_service_is_said_not_to_run(
    computer: Computer, served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    data = data_of(computer)
    assert join(served, "--no-service") == 0
    capsys.readouterr()
    assert run("status") == 1
    said = capsys.readouterr().out
    command = shlex.split(said.partition("has no service, and does not run; to start it: ")[2])
    assert Path(command[0]).parent == Path(sys.executable).parent
    assert " ".join(command).count(f"agent --joined --data {data}") == 1
    lock = DirectoryLock(data)
    lock.acquire()
    try:
        assert run("status") == 0
        assert "the agent runs, without a service" in capsys.readouterr().out
        assert run("status", "--json") == 0
        assert json.loads(capsys.readouterr().out)["runs_without_service"] is True
    finally:
        lock.release()


def test_without_a_service_manager_the_command_is_printed(
    linux: Computer, served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    linux.set(no_session=True)
    assert join(served) == 0
    said = capsys.readouterr().out
    assert "no service is installed" in said and "agent --joined" in said
    assert served.works(MembershipFiles(data_of(linux)).credential())


@pytest.mark.slow
def test_a_service_that_cannot_be_installed_does_not_hide_that_the_machine_has_joined(
    tmp_path: Path,
    served: Served,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mac = use_computer("launchd", tmp_path, monkeypatch)
    monkeypatch.setenv("RUNYARD_ISOLATION", "none")
    mac.set(bootstrap_fails=100)
    assert join(served) == 1
    said = capsys.readouterr().err
    assert "this machine has joined" in said and "agent --joined --data" in said
    assert not mac.manager().path("agent").exists()
    assert served.works(MembershipFiles(data_of(mac)).credential())


def test_an_agent_that_was_started_by_hand_is_to_be_started_anew_after_joining_again(
    linux: Computer, served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    assert join(served, "--no-service") == 0
    assert "Start the agent, and" in capsys.readouterr().out
    lock = DirectoryLock(data_of(linux))
    lock.acquire()
    try:
        assert join(served, "--no-service") == 0
        assert "Stop the agent that runs here, and start it" in capsys.readouterr().out
        assert run("leave") == 1
        assert "still runs here" in capsys.readouterr().err
        assert MembershipFiles(data_of(linux)).credential()
    finally:
        lock.release()
    assert run("leave") == 0


# ── refused before the token is sent ────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_what_no_service_can_be_made_of_is_refused_before_the_token_is_used(
    linux: Computer,
    served: Served,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # A directory that a unit cannot carry.
    assert join(served, "--data", f"{linux.home}/x\x07") == 2
    assert "no service manager takes" in capsys.readouterr().err

    # A program that is gone tomorrow.
    with monkeypatch.context() as patched:
        patched.setattr(servicehere, "TEMPORARY", (Path(sys.prefix),))
        assert join(served) == 2
        assert "uv tool install" in capsys.readouterr().err
        assert join(served, "--no-service") == 0
        capsys.readouterr()

    # Another agent, which would keep the service from starting.
    lock = DirectoryLock(data_of(linux))
    lock.acquire()
    try:
        assert join(served) == 2
    finally:
        lock.release()
    assert "is in use by an agent" in capsys.readouterr().err

    # A password that the service could not have.
    program = tart(linux.home / "tools")
    monkeypatch.setenv("TART_REGISTRY_PASSWORD", "hush")
    assert join(served, "--driver", "tart", "--tart-binary", str(program)) == 2
    said = capsys.readouterr().err
    assert "tart login" in said and "hush" not in said
    assert sorted(served.states()) == ["used", *["valid"] * 4]
    assert linux.running == []


ARCHIVES = {
    "another file": (
        ("--runner", "runner.tar.gz", "--runner-sha256", "ab" * 32),
        "has the SHA-256",
    ),
    "half a digest": (("--runner", "runner.tar.gz", "--runner-sha256", "ab"), "is not a SHA-256"),
    "a signed URL": (
        ("--runner", "https://h.test/runner.tgz?sig=HUSH", "--runner-sha256", "ab" * 32),
        "Download the archive, and give the file's path",
    ),
}


@pytest.mark.parametrize(("given", "words"), ARCHIVES.values(), ids=ARCHIVES)
def test_an_archive_that_the_agent_would_refuse_is_refused_before_the_token_is_used(
    given: tuple[str, ...],
    words: str,
    linux: Computer,
    served: Served,
    capsys: pytest.CaptureFixture[str],
) -> None:
    program = tart(linux.home / "tools")
    (linux.home / "runner.tar.gz").write_bytes(b"\x1f\x8b")
    more = ("--driver", "tart", "--tart-binary", str(program), *given)
    assert join(served, *more) == 2
    said = capsys.readouterr()
    assert words in said.err and said.err.count("\n") == 1
    assert "HUSH" not in said.err + said.out
    assert served.states() == ["valid"]


@pytest.mark.parametrize("name", ["token", "kubeconfig", "authority.crt", "membership.json"])
def test_a_file_that_cannot_be_written_is_noticed_before_the_token_is_used(
    name: str, linux: Computer, served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    (data_of(linux) / "join" / name).mkdir(parents=True)
    assert join(served, "--no-service") == 2
    said = capsys.readouterr().err
    assert f"/join/{name} is a directory. Move it away. The token was not used" in said
    assert said.count("\n") == 1
    assert served.states() == ["valid"]


def test_a_full_disk_is_noticed_before_the_token_is_used(
    linux: Computer,
    served: Served,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(membership, "write_whole", full)
    (data_of(linux) / "join").mkdir(parents=True)
    (data_of(linux) / "join" / "machine").write_text("ab" * 16 + "\n")
    assert join(served, "--no-service") == 2
    said = capsys.readouterr().err
    assert "is full. Free some space. The token was not used" in said and said.count("\n") == 1
    assert served.states() == ["valid"]


def test_a_write_that_fails_after_the_join_names_the_fix(
    linux: Computer,
    served: Served,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(MembershipFiles, "check_writable", lambda _: None)
    monkeypatch.setattr(MembershipFiles, "write_token", full)
    assert join(served, "--no-service") == 1
    said = capsys.readouterr().err
    assert "Free some space, and join again with another token" in said
    assert "Traceback" not in said
    assert served.states() == ["used"]


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("option", [("--vm-slots", "1"), ("--runner-directory", "/opt/runner")])
def test_a_machine_that_runs_processes_ignores_an_option_of_vms(
    linux: Computer,
    served: Served,
    capsys: pytest.CaptureFixture[str],
    option: tuple[str, str],
) -> None:
    assert join(served, "--driver", "process", *option) == 2
    assert f"{option[0]} is of VMs, and hosts run processes" in capsys.readouterr().err
    assert served.states() == ["valid"], "the token was not used"


@pytest.mark.slow
def test_processes_of_the_real_github_need_a_runner_before_the_token_is_used(
    linux: Computer, real_github: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    (linux.home / "empty").mkdir()
    (linux.home / "runner.tar.gz").write_bytes(b"\x1f\x8b")
    refused = {
        (): "give the directory of an unpacked one with --runner",
        ("--runner", "empty"): "run.sh",
        ("--runner", "runner.tar.gz"): "directory of an unpacked actions runner",
        ("--runner-sha256", "ab" * 32): "Give that too",
    }
    for given, said in refused.items():
        assert join(real_github, *given) == 2
        assert said in capsys.readouterr().err
    assert real_github.states() == ["valid"] * len(refused)
    assert not (data_of(linux) / "join" / "token").exists()
    program = tart(linux.home / "tools")
    assert join(real_github, "--driver", "tart", "--tart-binary", str(program)) == 0  # stock images


def test_the_agent_makes_the_images_of_the_practice_github_in_a_new_directory(
    linux: Computer, served: Served
) -> None:
    assert join(served) == 0
    (argv,) = linux.running

    async def start() -> str:
        async with joined_host(flags_of(argv), clock=RealClock()) as host:
            return host.flags.runner_archive

    assert Path(asyncio.run(start())).is_file()
    assert image_directory(data_of(linux) / "images", IMAGES[0]).is_dir()


@pytest.mark.slow
def test_the_agent_makes_the_images_of_a_real_github_from_the_runner_it_was_given(
    linux: Computer, real_github: Served, tmp_path: Path
) -> None:
    given = runner(tmp_path / "runner")
    assert join(real_github, "--runner", str(given)) == 0
    (argv,) = linux.running
    images = data_of(linux) / "images"
    built = image_directory(images, IMAGES[0]) / "work" / "runner" / "run.sh"
    assert "the real one" in built.read_text()
    (given / "run.sh").write_text("#!/bin/sh\n# a newer one\n")  # it updates itself

    async def start() -> None:
        async with joined_host(flags_of(argv), clock=RealClock()) as host:
            assert host.flags.runner_archive == ""

    asyncio.run(start())
    assert "a newer one" in built.read_text()
    (given / "run.sh").unlink()
    with pytest.raises(BadSetting, match="join again with another --runner"):
        asyncio.run(start())


def flags_of(argv: list[str]) -> Flags:
    """The agent's flags for the words of its service."""
    given = agent.make_context("agent", argv[2:]).params
    images = given["images"] or given["data"] / "images"
    return msgspec.convert({**given, "images": images}, Flags)


# ── leaving while something runs ────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_leaving_ends_no_runner_unless_it_is_forced(
    linux: Computer, served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    assert join(served) == 0
    home = data_of(linux) / "vm"
    source = linux.home / "source"
    scripts = linux.home / "scripts"

    async def started() -> None:
        build_image(image_directory(source, IMAGE), runner=runner(scripts))
        boot = image_directory(source, IMAGE) / "boot.sh"
        boot.write_text("#!/bin/sh\nexec sleep 86400\n")
        wanted = Wanted(home=home, driver="process", images=source, isolation="none")
        driver = (await open_driver(wanted, clock=RealClock())).driver
        await driver.pull(IMAGE)
        await driver.create(VmSpec(name="vm", image=IMAGE, cpu_milli=1, memory_mb=1))
        await driver.start("vm")

    os.environ["PATH"] += os.pathsep + os.defpath
    asyncio.run(started())
    assert run("leave") == 1
    said = capsys.readouterr().err
    assert "1 runner still runs here" in said and "runyard host drain mini-2" in said
    assert len(linux.running) == 1
    assert run("leave", "--force") == 0
    assert linux.running == []
    assert run("leave") == 0


# ── the page ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_the_page_shows_what_is_printed_on_the_second_mac(
    tmp_path: Path,
    served: Served,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mac = use_computer("launchd", tmp_path, monkeypatch)
    mac.set(auto_login=True)
    tart(mac.bin)
    names = {"URL": served.url, "TOKEN": served.token()}
    _, joined, _, _, left, _ = transcripts(PAGE)
    for shown in (joined, left):
        outputs = []
        for step in shown.steps:
            program, command, *argv = [names.get(each, each) for each in step.command.split()]
            assert (program, command, run(*argv)) == ("runyard", "host", 0)
            text = capsys.readouterr().out.replace(str(mac.home), "~")
            outputs.append(text.replace(served.url, "URL"))
        check(shown, outputs)


# ── the log ─────────────────────────────────────────────────────────────────────────────────────────

WRITES = """
import sys
from pathlib import Path
from runyard.cli.servicelog import ShortLog
log = ShortLog(Path(sys.argv[1]), limit=1000)
for number in range(500):
    log.write(f"line {number:04}\\n")
log.flush()
"""


def test_the_log_of_an_agent_stays_small_however_long_it_runs(tmp_path: Path) -> None:
    path = tmp_path / "service.log"
    with path.open("a") as output:
        subprocess.run([sys.executable, "-c", WRITES, str(path)], stderr=output, check=True)
    assert path.read_text().endswith("line 0499\n")
    assert path.stat().st_size + (tmp_path / "service.log.1").stat().st_size < 2100
