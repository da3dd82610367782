"""Tests the commands that a host which polls runs in a guest: finding a runner, unpacking one, looking for a job."""

import os
import random
import subprocess
from pathlib import Path

import pytest

from runyard.vm.shim.polling import (
    BAD_ARCHIVE,
    HAS_JOB,
    NO_RUNNER,
    NO_WORKER,
    PREPARE,
    RUN,
    STARTED_BEFORE,
    STARTS,
    WORKER,
    exports,
)

RUNNER = '#!/bin/sh\nprintf "%s|" "$1" "$LINES_OF_TEXT" "$QUOTED"\nexit 42\n'
VALUES = {"LINES_OF_TEXT": "a\nb\n", "QUOTED": "it's $(exit 3) `x` \\n", "9BAD": "x"}


def sh(script: str, *words: str, home: Path, data: bytes = b"", path: str = "") -> tuple[int, str]:
    done = subprocess.run(
        ["/bin/sh", "-c", script, "sh", *words],
        input=data,
        capture_output=True,
        env={"HOME": str(home), "PATH": path or os.environ["PATH"]},
        check=False,
        timeout=60,
    )
    return done.returncode, (done.stdout + done.stderr).decode()


@pytest.fixture(params=["runner.tgz", "runner.tar"])
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "a-part").write_bytes(os.urandom(200_000))
    (folder / "run.sh").write_text(RUNNER, encoding="utf-8")
    (folder / "run.sh").chmod(0o755)
    (folder / "z-part").write_bytes(os.urandom(200_000))
    path = tmp_path / str(request.param)
    flags = "-czf" if path.suffix == ".tgz" else "-cf"
    names = ["a-part", "run.sh", "z-part"]
    subprocess.run(["tar", flags, str(path), *names], cwd=folder, check=True)
    return path


@pytest.mark.parametrize("kept", [0.6, 0.999])
def test_an_archive_that_was_cut_short_is_no_runner_for_the_next_attempt(
    archive: Path, tmp_path: Path, kept: float
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    data = archive.read_bytes()
    words = ("", archive.name, str(len(data)))
    code, _ = sh(PREPARE, *words, home=home, data=data[: int(len(data) * kept)])
    assert code not in (0, NO_RUNNER)
    assert list(home.iterdir()) == []
    assert sh(PREPARE, *words, home=home, data=data) == (0, "")
    assert sorted(path.name for path in home.iterdir()) == ["actions-runner"]
    found = sorted(path.name for path in (home / "actions-runner").iterdir())
    assert found == ["a-part", "run.sh", "z-part"]
    assert sh(PREPARE, *words, home=home) == (0, "")  # it is found, nothing is read


@pytest.mark.parametrize(
    "archive", ["runner.tgz"], indirect=True
)  # a tar has no sum of its content
def test_an_archive_whose_content_is_damaged_is_no_runner(archive: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    data = bytearray(archive.read_bytes())
    data[len(data) // 2] ^= 0xFF
    code, _ = sh(PREPARE, "", archive.name, str(len(data)), home=home, data=bytes(data))
    assert code == BAD_ARCHIVE
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("name", ["runner.tar.gz", "runner.tgz", "runner.tar"])
def test_an_archive_that_cannot_be_unpacked_is_no_guest_that_cannot_be_reached(
    tmp_path: Path, name: str
) -> None:
    data = random.Random(1).randbytes(1000)
    code, output = sh(PREPARE, "", name, str(len(data)), home=tmp_path, data=data)
    assert code == BAD_ARCHIVE
    words = f"the archive {name} cannot be unpacked: "
    assert output.startswith(words) and len(output) > len(words) + 5, (
        "with the words of gzip or tar"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_variable_with_lines_or_quotes_reaches_the_runner_as_it_is(tmp_path: Path) -> None:
    runner = tmp_path / "actions-runner"
    runner.mkdir()
    (runner / "run.sh").write_text(RUNNER, encoding="utf-8")
    (runner / "run.sh").chmod(0o755)
    data = f"jit\n{exports(VALUES)}".encode()
    code, text = sh(RUN, "", home=tmp_path, data=data)
    assert text == f"{STARTS}\n--jitconfig|{VALUES['LINES_OF_TEXT']}|{VALUES['QUOTED']}|"
    assert code == 42


def test_a_runner_that_was_started_is_not_started_by_a_second_attempt(tmp_path: Path) -> None:
    runner = tmp_path / "actions-runner"
    runner.mkdir()
    (runner / "run.sh").write_text("#!/bin/sh\necho again >>runs\n", encoding="utf-8")
    (runner / "run.sh").chmod(0o755)
    assert sh(RUN, "", home=tmp_path, data=b"")[0] == 1  # nothing arrived: it may be repeated
    assert sh(RUN, "", home=tmp_path, data=b"jit\n") == (0, f"{STARTS}\n")
    assert sh(RUN, "", home=tmp_path, data=b"jit\n") == (STARTED_BEFORE, "")
    assert (runner / "runs").read_text() == "again\n"


PROCESSES = {
    "a worker": ("echo /x/bin/Runner.Worker spawnclient", WORKER),
    "no worker": ("echo /x/bin/Runner.Listener run", NO_WORKER),
    "no processes": (":", 1),
    "ps fails": ("echo Runner.Listener; exit 1", 1),
    "no ps": ("", 1),
}


@pytest.mark.parametrize(("ps", "code"), PROCESSES.values(), ids=list(PROCESSES))
def test_a_guest_that_cannot_list_its_processes_is_not_idle(
    tmp_path: Path, ps: str, code: int
) -> None:
    if ps:
        (tmp_path / "ps").write_text(f"#!/bin/sh\n{ps}\n", encoding="utf-8")
        (tmp_path / "ps").chmod(0o755)
    grep = subprocess.run(["/bin/sh", "-c", "command -v grep"], capture_output=True, check=True)
    (tmp_path / "grep").symlink_to(grep.stdout.decode().strip())
    assert sh(HAS_JOB, home=tmp_path, path=str(tmp_path))[0] == code
