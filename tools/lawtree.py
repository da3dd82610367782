"""Which files of the repository a law looks at.

In a clone the answer is what git tracks or would track; in a copy without git it is every file outside
the directories that tools make.
"""

import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MADE_BY_TOOLS = frozenset(
    {".git", ".venv", ".cache", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis"}
    | {".import_linter_cache", "__pycache__", "build", "dist"}
)


def tracked() -> list[Path]:
    """Every file that belongs to the repository, sorted."""
    if (ROOT / ".git").exists():
        listed = subprocess.run(
            ["git", "-c", "safe.directory=*", "ls-files", "-z", "-co", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            check=False,
        )
        if listed.returncode == 0:
            paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
            return sorted(path for path in paths if path.is_file())
    return sorted(
        path
        for path in ROOT.rglob("*")
        if path.is_file()
        and not MADE_BY_TOOLS.intersection(path.relative_to(ROOT).parts)
        and ".egg-info" not in str(path.parent)
    )


def python(*folders: str) -> list[Path]:
    """The Python files under these folders."""
    return under(folders, suffix=".py")


def sql() -> list[Path]:
    """The SQL files of the package."""
    return under(["src"], suffix=".sql")


def under(folders: Iterable[str], *, suffix: str) -> list[Path]:
    """The tracked files below these folders whose names end so."""
    roots = [ROOT / folder for folder in folders]
    return [
        path
        for path in tracked()
        if path.suffix == suffix and any(path.is_relative_to(root) for root in roots)
    ]


def break_law(law: Callable[[str], list[str]], paths: Iterable[Path]) -> list[str]:
    """Everything that these files do against this law, as `path: line n: what`."""
    return [
        f"{path.relative_to(ROOT)}: {complaint}"
        for path in paths
        for complaint in law(path.read_text(encoding="utf-8"))
    ]
