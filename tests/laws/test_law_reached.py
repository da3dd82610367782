"""Every module of the package is used by the product: what only tests use lives beside the tests."""

import tomllib

import lawgraph
import lawtree
import pytest

from runyard.cli.main import COMMANDS

# Modules that no import leads to, and how they are started.
STARTED = {
    "runyard.embedded.up.roles.": "imported by name: one role for each process of `runyard up`",
    "runyard.embedded.github.runner.": "a program of its own that is copied into the sandbox",
    "runyard.embedded.postgres.launcher": "run by its path, so that it can change its user first",
    "runyard.vm.process.guest_init": "run by its path: the first process of a sandbox",
    "runyard.vm.guest.": "copied into the images of guests",
}


@pytest.fixture(scope="module")
def modules() -> lawgraph.Graph:
    root = lawtree.ROOT / "src"
    sources = {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): (
            path.read_text(encoding="utf-8")
        )
        for path in lawtree.python("src")
    }
    return lawgraph.graph(sources)


def entries() -> list[str]:
    project = tomllib.loads((lawtree.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    scripts = [each.partition(":")[0] for each in project["project"]["scripts"].values()]
    return [*scripts, *(f"runyard.cli.{name}" for name in COMMANDS), *STARTED]


def test_no_module_serves_tests_only(modules: lawgraph.Graph) -> None:
    assert lawgraph.unreached(modules, entries()) == []


def test_what_is_started_without_an_import_is_still_there_and_still_needs_it(
    modules: lawgraph.Graph,
) -> None:
    for entry in STARTED:
        others = [each for each in entries() if each != entry]
        assert lawgraph.unreached(modules, others), f"{entry} is reached without this line"


def test_a_module_that_nothing_imports_is_found() -> None:
    tree = lawgraph.graph(
        {
            "a": "",
            "a.main": "from a import one\n",
            "a.one": "def f():\n    import a.two\n    return ['-m', 'a.three']\n",
            "a.two": "'Text.'\n",
            "a.three": "'Text.'\n",
            "a.four": "import a.main, a.five\n",
            "a.five": "'Text.'\n",
            "a.roles.six": "'Text.'\n",
        }
    )
    assert lawgraph.unreached(tree, ["a.main"]) == ["a.five", "a.four", "a.roles.six"]
    assert lawgraph.unreached(tree, ["a.main", "a.roles."]) == ["a.five", "a.four"]
