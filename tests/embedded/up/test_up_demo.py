"""The demo as root and as a plain user, with each kind of isolation; it leaves nothing behind."""

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.conftest import Absent
from tests.embedded.up.upsupport import (
    HAS_PROC,
    OUTCOME,
    ROOT,
    command,
    directory,
    environment,
    nothing_left,
)

from runyard.embedded.up.demo.leaks import KINDS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not HAS_PROC, reason="searches for processes in /proc"),
]
NOBODY = 65534


def play(
    argv: list[str], place: Path, env: Mapping[str, str], *, user: int | None = None
) -> list[str]:
    """Runs a demo with temporary files below `place`; returns its lines."""
    done = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env={**env, "TMPDIR": str(place), "HOME": str(place)},
        user=user,
        group=user,
        extra_groups=None if user is None else [],
    )
    printed = f"{done.stdout}\n{done.stderr}"
    assert done.returncode == 0, printed
    lines = done.stdout.splitlines()
    assert OUTCOME.match(lines[-1]), printed
    assert "Traceback" not in printed
    nothing_left(place)
    assert [each.name for each in place.iterdir() if each.name.startswith("runyard")] == []
    return lines


def timeless(line: str) -> str:
    return re.sub(r"max \d+ s", "max N s", line)


def test_the_demo_ends_as_scripted_and_leaves_nothing_behind() -> None:
    with directory() as place:
        place.mkdir()
        lines = play(command("--demo"), place, environment())
    assert sum("  fault: " in line for line in lines) == 4
    assert sum("  healed: " in line for line in lines) == 4
    (left,) = [line.partition("left over: ")[2] for line in lines if "  left over: " in line]
    assert left == ", ".join(f"{kind} 0" for kind in KINDS)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert timeless(lines[-1]) in map(timeless, readme.splitlines())


@pytest.mark.long
def test_the_demo_works_without_a_sandbox() -> None:
    with directory() as place:
        place.mkdir()
        lines = play(command("--demo"), place, environment(RUNYARD_ISOLATION="none"))
    assert any("isolation: none" in line for line in lines), lines[:8]


@pytest.mark.long
def test_the_demo_works_with_a_directory_of_its_own_twice() -> None:
    with directory() as place:
        place.mkdir()
        for _ in range(2):
            play(command("--demo", "--data", str(place / "kept")), place, environment())
        assert (place / "kept" / "secrets.json").exists()


def python_for_all(place: Path, absent: Absent) -> Path:
    """A Python with our packages that every user of this machine can run."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (place / "bin").mkdir(parents=True)
    library = place / "lib" / name
    library.mkdir(parents=True)
    (library / "site-packages").symlink_to(sysconfig.get_paths()["purelib"])
    shutil.copytree(ROOT / "src", place / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for base in (Path(getattr(sys, "_base_executable", sys.executable)), Path("/usr/bin") / name):
        (place / "bin" / "python").unlink(missing_ok=True)
        (place / "bin" / "python").symlink_to(base.resolve())
        (place / "pyvenv.cfg").write_text(f"home = {base.resolve().parent}\n")
        for folder in (place, *place.rglob("*")):
            if folder.is_dir() and not folder.is_symlink():
                folder.chmod(0o755)
        if _runs_for_all(place):
            return place / "bin" / "python"
    return absent(f"a {name} that every user can run", f"install {name} for all users")


def _runs_for_all(place: Path) -> bool:
    try:
        done = subprocess.run(
            [str(place / "bin" / "python"), "-c", "import aiohttp, psycopg, runyard.cli.up"],
            capture_output=True,
            check=False,
            cwd="/",
            env={"PYTHONPATH": str(place / "src")},
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
        )
    except OSError:
        return False
    return done.returncode == 0


@pytest.mark.parametrize("isolation", [pytest.param("auto", marks=pytest.mark.long), "none"])
def test_a_plain_user_can_run_the_demo(isolation: str, absent: Absent) -> None:
    if os.geteuid() != 0:
        pytest.skip("this whole run is a plain user's")
    with directory() as folder:
        folder.parent.chmod(0o755)
        python = python_for_all(folder.parent / "env", absent)
        folder.mkdir()
        os.chown(folder, NOBODY, NOBODY)
        env = {
            "PATH": f"{python.parent}:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(python.parent.parent / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "RUNYARD_ISOLATION": isolation,
        }
        argv = [str(python), *command("--demo")[1:]]
        lines = play(argv, folder, env, user=NOBODY)
    if isolation == "none":
        assert any("isolation: none" in line for line in lines), lines[:8]


def test_a_demo_that_is_interrupted_leaves_nothing_either() -> None:
    with directory() as place:
        place.mkdir()
        demo = subprocess.Popen(
            command("--demo"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(TMPDIR=str(place)),
        )
        assert demo.stdout is not None
        for line in demo.stdout:
            if "fault:" in line:
                break
        demo.send_signal(signal.SIGINT)
        _, errors = demo.communicate(timeout=30)
        assert demo.returncode == 130, errors
        assert "Traceback" not in errors
        nothing_left(place)
        assert list(place.iterdir()) == []
