"""`runyard xcresult` when the place that its output goes to is odd, full or closed: one line, and nothing is lost."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.xcresult.writer.plan import Plan
from tests.xcresult.writer.writing import write_bundle

from runyard.cli.main import cli, run

# Buffered as for most people: what is in the buffer must not fail once more at the end.
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
    "PYTHONPATH": os.pathsep.join(sys.path),
}
PROGRAM = (sys.executable, "-c", "from runyard.cli.main import main; main()", "xcresult")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("outputs") / "App.xcresult"
    write_bundle(path, Plan(cases=3, failures=1))
    return path


def call(*words: object) -> int:
    return run(cli, name="runyard", argv=["xcresult", *map(str, words)])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("command", [("show",), ("figures",), ("verify",)])
def test_a_full_disk_under_standard_output_is_one_line(
    bundle: Path, command: tuple[str, ...]
) -> None:
    with open("/dev/full", "wb") as full:  # noqa: PTH123  (a device)
        done = subprocess.run(
            [*PROGRAM, *command, str(bundle)],
            stdout=full,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == b"runyard: standard output cannot be written: No space left on device\n"


def test_what_is_no_file_is_written_to_and_not_replaced(bundle: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert call("show", bundle, "-o", pipe) == 0
    assert pipe.is_fifo(), "as root, the same would take the place of /dev/null"
    assert os.read(reading, 65536).decode().startswith("✗ App.xcresult")
    os.close(reading)


def test_a_link_keeps_leading_to_its_file(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "real.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to("real.txt")
    assert call("show", bundle, "-o", tmp_path / "link.txt") == 0
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text().startswith("✗ App.xcresult")


def test_closed_standard_streams_are_told_in_one_line(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", None)
        assert call("show", "-") == 2
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", None)
        assert call("show", bundle) == 2
    assert capfd.readouterr().err.splitlines() == [
        "runyard: standard input: it is closed [xcresult_not_found]",
        "runyard: standard output cannot be written: Bad file descriptor",
    ]
